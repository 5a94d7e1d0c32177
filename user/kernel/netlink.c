// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <netlink/netlink.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/stop.h"
#include "kernel/netlink.h"

struct netlink {
	struct nl_sock *sock;
	int family;
};

static int netlink_failed(const char *what, int nlerr, struct err *e)
{
	if (nlerr == -NLE_PERM)
		return err_set(e, GW_NO_MODULE, EPERM, "%s: run godwit as root (CAP_SYS_ADMIN)", what);
	return err_set(e, GW_INTERNAL, EIO, "%s: %s", what, nl_geterror(nlerr));
}

int netlink_open(struct netlink **out, struct err *e)
{
	struct netlink *nl = calloc(1, sizeof(*nl));
	int r;

	if (!nl)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	nl->sock = nl_socket_alloc();
	r = nl->sock ? genl_connect(nl->sock) : -NLE_NOMEM;
	if (r < 0) {
		netlink_close(nl);
		return netlink_failed("generic netlink", r, e);
	}
	nl->family = genl_ctrl_resolve(nl->sock, GODWIT_GENL_NAME);
	if (nl->family < 0) {
		netlink_close(nl);
		return err_set(e, GW_NO_MODULE, ENOENT,
			       "godwit.ko is not loaded: load it with \"modprobe godwit\" or \"insmod kmod/godwit.ko\"");
	}
	*out = nl;
	return 0;
}

void netlink_close(struct netlink *nl)
{
	if (!nl)
		return;
	if (nl->sock)
		nl_socket_free(nl->sock);
	free(nl);
}

/*
 * libnl rejects an attribute that is shorter than the policy says, so nla_get_*() reads no byte
 * past it.
 */
static struct nla_policy policy[GODWIT_ATTRS] = {
	[GODWIT_A_ID] = { .type = NLA_U32 },
	[GODWIT_A_STATE] = { .type = NLA_U32 },
	[GODWIT_A_OWNER_PID] = { .type = NLA_U32 },
	[GODWIT_A_OWNER_COMM] = { .type = NLA_STRING },
	[GODWIT_A_VM_PID] = { .type = NLA_U32 },
	[GODWIT_A_MEMSLOTS] = { .type = NLA_U32 },
	[GODWIT_A_CHANGES] = { .type = NLA_U32 },
	[GODWIT_A_HARVESTS] = { .type = NLA_U64 },
	[GODWIT_A_CLEARS] = { .type = NLA_U64 },
	[GODWIT_A_PAGES] = { .type = NLA_NESTED },
	[GODWIT_A_NS] = { .type = NLA_NESTED },
};

static uint32_t netlink_get_u32(struct nlattr *a)
{
	return a ? nla_get_u32(a) : 0;
}

static uint64_t netlink_get_u64(struct nlattr *a)
{
	return a ? nla_get_u64(a) : 0;
}

/* Attribute n + 1 has values[n]; an unknown number comes from a newer module, and is skipped. */
static void netlink_get_nested(struct nlattr *nest, uint64_t *values, int n)
{
	struct nlattr *a;
	int left;

	if (!nest)
		return;
	nla_for_each_nested(a, nest, left)
		if (nla_type(a) >= 1 && nla_type(a) <= n && nla_len(a) == sizeof(uint64_t))
			values[nla_type(a) - 1] = nla_get_u64(a);
}

struct session_call {
	void (*each)(const struct session_info *s, void *arg);
	void *arg;
};

static int netlink_on_session(struct nl_msg *msg, void *arg)
{
	const struct session_call *call = arg;
	struct nlattr *a[GODWIT_ATTRS];
	struct session_info s = { 0 };

	if (genlmsg_parse(nlmsg_hdr(msg), 0, a, GODWIT_ATTRS - 1, policy) < 0)
		return NL_SKIP;
	s.id = netlink_get_u32(a[GODWIT_A_ID]);
	s.state = netlink_get_u32(a[GODWIT_A_STATE]);
	s.owner_pid = netlink_get_u32(a[GODWIT_A_OWNER_PID]);
	if (a[GODWIT_A_OWNER_COMM])
		nla_strlcpy(s.owner_comm, a[GODWIT_A_OWNER_COMM], sizeof(s.owner_comm));
	s.vm_pid = netlink_get_u32(a[GODWIT_A_VM_PID]);
	s.memslots = netlink_get_u32(a[GODWIT_A_MEMSLOTS]);
	s.changes = netlink_get_u32(a[GODWIT_A_CHANGES]);
	s.harvests = netlink_get_u64(a[GODWIT_A_HARVESTS]);
	s.clears = netlink_get_u64(a[GODWIT_A_CLEARS]);
	netlink_get_nested(a[GODWIT_A_PAGES], s.pages, GODWIT_ROWS);
	netlink_get_nested(a[GODWIT_A_NS], s.ns, GODWIT_PHASES);
	call->each(&s, call->arg);
	return NL_OK;
}

int netlink_sessions(struct netlink *nl, void (*each)(const struct session_info *s, void *arg),
		     void *arg, struct err *e)
{
	struct session_call call = { each, arg };
	int r;

	nl_socket_modify_cb(nl->sock, NL_CB_VALID, NL_CB_CUSTOM, netlink_on_session, &call);
	r = genl_send_simple(nl->sock, nl->family, GODWIT_CMD_GET_SESSION, GODWIT_GENL_VERSION,
			     NLM_F_DUMP);
	if (r >= 0)
		r = nl_recvmsgs_default(nl->sock);
	return r < 0 ? netlink_failed("list of sessions", r, e) : 0;
}

int netlink_subscribe(struct netlink *nl, struct err *e)
{
	int group = genl_ctrl_resolve_grp(nl->sock, GODWIT_GENL_NAME, GODWIT_GENL_GROUP);
	int r = group < 0 ? group : nl_socket_add_membership(nl->sock, group);

	if (r < 0)
		return netlink_failed("events of godwit.ko", r, e);
	nl_socket_disable_seq_check(nl->sock);
	nl_socket_set_nonblocking(nl->sock);
	return 0;
}

struct event_call {
	void (*each)(const struct session_event *ev, void *arg);
	void *arg;
};

static int netlink_on_event(struct nl_msg *msg, void *arg)
{
	const struct event_call *call = arg;
	struct nlattr *a[GODWIT_ATTRS];
	struct session_event ev;

	if (genlmsg_parse(nlmsg_hdr(msg), 0, a, GODWIT_ATTRS - 1, policy) < 0)
		return NL_SKIP;
	ev.cmd = genlmsg_hdr(nlmsg_hdr(msg))->cmd;
	ev.id = netlink_get_u32(a[GODWIT_A_ID]);
	ev.vm_pid = netlink_get_u32(a[GODWIT_A_VM_PID]);
	ev.owner_pid = netlink_get_u32(a[GODWIT_A_OWNER_PID]);
	ev.changes = netlink_get_u32(a[GODWIT_A_CHANGES]);
	call->each(&ev, call->arg);
	return NL_OK;
}

int netlink_watch(struct netlink *nl, void (*each)(const struct session_event *ev, void *arg),
		  void *arg, struct err *e)
{
	struct event_call call = { each, arg };
	struct pollfd p = { .fd = nl_socket_get_fd(nl->sock), .events = POLLIN };
	int r;

	nl_socket_modify_cb(nl->sock, NL_CB_VALID, NL_CB_CUSTOM, netlink_on_event, &call);
	while (!stop_requested()) {
		if (poll(&p, 1, STOP_SLICE_NS / 1000000) <= 0)
			continue;
		r = nl_recvmsgs_default(nl->sock);
		if (r == -NLE_NOMEM)	/* libnl maps ENOBUFS to this */
			return -ENOBUFS;
		if (r < 0 && r != -NLE_AGAIN)
			return netlink_failed("events of godwit.ko", r, e);
	}
	return 0;
}
