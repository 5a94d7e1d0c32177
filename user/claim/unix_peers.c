// SPDX-License-Identifier: GPL-2.0-only
#include <inttypes.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "claim/unix_peers.h"
#include "proc/proc_io.h"

static void peers_add(struct unix_peers *set, uint64_t ino)
{
	uint64_t *more = realloc(set->ino, (set->n + 1) * sizeof(*more));

	if (!more)
		return;
	set->ino = more;
	set->ino[set->n++] = ino;
}

static bool peers_has(const struct unix_peers *set, uint64_t ino)
{
	for (size_t i = 0; i < set->n; i++)
		if (set->ino[i] == ino)
			return true;
	return false;
}

static bool peers_parse_socket(const char *link, uint64_t *ino)
{
	return sscanf(link, "socket:[%" SCNu64 "]", ino) == 1;
}

static int peers_add_socket(void *arg, const char *number, const char *link, struct err *e)
{
	uint64_t ino;

	(void)number;
	(void)e;
	if (peers_parse_socket(link, &ino))
		peers_add(arg, ino);
	return 0;
}

struct peers_dump {
	const struct unix_peers *own;
	struct unix_peers *peers;
};

static int peers_take_row(struct nl_msg *msg, void *arg)
{
	struct nlattr *attr[UNIX_DIAG_MAX + 1];
	struct nlmsghdr *h = nlmsg_hdr(msg);
	const struct unix_diag_msg *row;
	struct peers_dump *d = arg;

	if (nlmsg_parse(h, sizeof(*row), attr, UNIX_DIAG_MAX, NULL) < 0)
		return NL_SKIP;
	row = nlmsg_data(h);
	if (attr[UNIX_DIAG_PEER] && peers_has(d->own, row->udiag_ino))
		peers_add(d->peers, nla_get_u32(attr[UNIX_DIAG_PEER]));
	return NL_OK;
}

/* Asks the kernel for all unix sockets, with their peers. */
static void peers_ask(struct nl_sock *sock, struct peers_dump *d)
{
	struct unix_diag_req req = {
		.sdiag_family = AF_UNIX, .udiag_states = UINT32_MAX, .udiag_show = UDIAG_SHOW_PEER,
	};

	nl_socket_modify_cb(sock, NL_CB_VALID, NL_CB_CUSTOM, peers_take_row, d);
	if (nl_connect(sock, NETLINK_SOCK_DIAG) >= 0 &&
	    nl_send_simple(sock, SOCK_DIAG_BY_FAMILY, NLM_F_DUMP, &req, sizeof(req)) >= 0)
		nl_recvmsgs_default(sock);
}

void unix_peers_find(const char *proc, struct unix_peers *peers)
{
	struct unix_peers own = { 0 };
	struct peers_dump d = { .own = &own, .peers = peers };
	struct nl_sock *sock = nl_socket_alloc();
	struct err ignored = { 0 };

	*peers = (struct unix_peers) { 0 };
	proc_each_fd(proc, peers_add_socket, &own, &ignored);
	if (sock && own.n)
		peers_ask(sock, &d);
	if (sock)
		nl_socket_free(sock);
	free(own.ino);
}

void unix_peers_free(struct unix_peers *peers)
{
	free(peers->ino);
	*peers = (struct unix_peers) { 0 };
}

static int peers_is_peer(void *arg, const char *number, const char *link, struct err *e)
{
	uint64_t ino;

	(void)number;
	(void)e;
	return peers_parse_socket(link, &ino) && peers_has(arg, ino);
}

bool unix_peers_has(const struct unix_peers *peers, const char *proc)
{
	struct err ignored = { 0 };

	return peers->n && proc_each_fd(proc, peers_is_peer, (void *)peers, &ignored) == 1;
}
