// SPDX-License-Identifier: GPL-2.0-only
/*
 * Generic netlink: which process is at work on which VM, and what happens to them. The protocol
 * stands in uapi/linux/godwit.h.
 *
 * A session is read while it changes (see stats.c), and kept by a reference meanwhile. A
 * dump goes on behind the last number that it told, so sessions that come and go meanwhile
 * neither stop nor repeat it.
 */
#include <net/genetlink.h>
#include <net/sock.h>

#include "compat.h"
#include "internal.h"

static struct genl_family family;

static const struct nla_policy get_policy[GODWIT_A_ID + 1] = {
	[GODWIT_A_ID] = NLA_POLICY_MIN(NLA_U32, 1),
};

static int put_u64s(struct sk_buff *skb, int attr, const u64 *values, unsigned int n)
{
	struct nlattr *nest = nla_nest_start(skb, attr);
	unsigned int i;

	if (!nest)
		return -EMSGSIZE;
	for (i = 0; i < n; i++)
		if (nla_put_u64_64bit(skb, i + 1, READ_ONCE(values[i]), 0))
			return -EMSGSIZE;
	nla_nest_end(skb, nest);
	return 0;
}

static int put_vm(struct sk_buff *skb, const struct godwit_session *s)
{
	if (nla_put_u32(skb, GODWIT_A_VM_PID, READ_ONCE(s->vm_pid)) ||
	    nla_put_u32(skb, GODWIT_A_MEMSLOTS, READ_ONCE(s->view.nr_shown)) ||
	    nla_put_u32(skb, GODWIT_A_CHANGES, READ_ONCE(s->changes)) ||
	    nla_put_u64_64bit(skb, GODWIT_A_HARVESTS, READ_ONCE(s->stats.harvests), GODWIT_A_PAD) ||
	    nla_put_u64_64bit(skb, GODWIT_A_CLEARS, READ_ONCE(s->stats.clears), GODWIT_A_PAD))
		return -EMSGSIZE;
	return put_u64s(skb, GODWIT_A_PAGES, s->stats.pages, GODWIT_ROWS) ?:
	       put_u64s(skb, GODWIT_A_NS, s->stats.ns, GODWIT_PHASES);
}

static int put_session(struct sk_buff *skb, const struct godwit_session *s, u32 portid, u32 seq,
		       int flags)
{
	void *head = genlmsg_put(skb, portid, seq, &family, flags, GODWIT_CMD_SESSION);

	if (!head)
		return -EMSGSIZE;
	if (nla_put_u32(skb, GODWIT_A_ID, s->id) ||
	    nla_put_u32(skb, GODWIT_A_STATE, godwit_session_state(s)) ||
	    nla_put_u32(skb, GODWIT_A_OWNER_PID, s->owner_pid) ||
	    nla_put_string(skb, GODWIT_A_OWNER_COMM, s->owner_comm) ||
	    (READ_ONCE(s->vm_pid) && put_vm(skb, s))) {
		genlmsg_cancel(skb, head);
		return -EMSGSIZE;
	}
	genlmsg_end(skb, head);
	return 0;
}

static int get_session(struct sk_buff *skb, struct genl_info *info)
{
	struct godwit_session *s;
	struct sk_buff *answer;
	u32 id;
	int r;

	if (!netlink_capable(skb, CAP_SYS_ADMIN))
		return -EPERM;
	if (GENL_REQ_ATTR_CHECK(info, GODWIT_A_ID))
		return -EINVAL;
	id = nla_get_u32(info->attrs[GODWIT_A_ID]);
	answer = genlmsg_new(NLMSG_GOODSIZE, GFP_KERNEL);
	if (!answer)
		return -ENOMEM;
	s = godwit_session_next(id);
	r = s && s->id == id ? put_session(answer, s, info->snd_portid, info->snd_seq, 0) : -ENOENT;
	if (s)
		godwit_session_put(s);
	if (r) {
		nlmsg_free(answer);
		return r;
	}
	return genlmsg_reply(answer, info);
}

static int dump_start(struct netlink_callback *cb)
{
	if (!netlink_capable(cb->skb, CAP_SYS_ADMIN))
		return -EPERM;
	if (godwit_dump_attrs(cb)[GODWIT_A_ID]) {
		NL_SET_ERR_MSG(cb->extack, "a dump has all sessions: no GODWIT_A_ID");
		return -EINVAL;
	}
	return 0;
}

/* cb->args[0]: the last session told of. */
static int dump_sessions(struct sk_buff *skb, struct netlink_callback *cb)
{
	struct godwit_session *s;
	int r = 0;

	while (!r && (s = godwit_session_next(cb->args[0] + 1))) {
		r = put_session(skb, s, NETLINK_CB(cb->skb).portid, cb->nlh->nlmsg_seq,
				NLM_F_MULTI);
		if (!r)
			cb->args[0] = s->id;
		godwit_session_put(s);
	}
	/* What did not fit comes with the next call; not even one fits: an error. */
	return skb->len ?: r;
}

static const struct genl_ops ops[] = {
	{
		.cmd = GODWIT_CMD_GET_SESSION,
		.policy = get_policy,
		.maxattr = GODWIT_A_ID,
		.doit = get_session,
		.start = dump_start,
		.dumpit = dump_sessions,
	},
};

static const struct genl_multicast_group groups[] = {
	{ .name = GODWIT_GENL_GROUP, GODWIT_MCAST_ADMIN },
};

static struct genl_family family __ro_after_init = {
	.name = GODWIT_GENL_NAME,
	.version = GODWIT_GENL_VERSION,
	.module = THIS_MODULE,
	.netnsok = true,	/* helpers live in many */
	.ops = ops,
	.n_ops = ARRAY_SIZE(ops),
	.resv_start_op = GODWIT_CMD_GET_SESSION,	/* strict from the first command on */
	.mcgrps = groups,
	.n_mcgrps = ARRAY_SIZE(groups),
};

/*
 * To the network namespaces of the initial user namespace: in another one root may be a
 * container's, and is not told of this host's processes. Uses up skb.
 */
static void multicast(struct sk_buff *skb)
{
	struct sk_buff *copy;
	struct net *net;

	rcu_read_lock();
	for_each_net_rcu(net) {
		if (net->user_ns != &init_user_ns)
			continue;
		copy = skb_clone(skb, GFP_ATOMIC);
		if (copy)
			genlmsg_multicast_netns(&family, net, copy, 0, 0, GFP_ATOMIC);
	}
	rcu_read_unlock();
	nlmsg_free(skb);
}

/*
 * Context: may sleep. That no process listens, or that memory is short, is
 * no error of the caller's.
 */
void godwit_netlink_event(const struct godwit_session *s, enum godwit_cmd cmd)
{
	struct sk_buff *skb;
	void *head;

	skb = genlmsg_new(NLMSG_DEFAULT_SIZE, GFP_KERNEL);
	if (!skb)
		return;
	head = genlmsg_put(skb, 0, 0, &family, 0, cmd);
	if (!head || nla_put_u32(skb, GODWIT_A_ID, s->id) ||
	    nla_put_u32(skb, GODWIT_A_VM_PID, s->vm_pid) ||
	    nla_put_u32(skb, GODWIT_A_OWNER_PID, s->owner_pid) ||
	    nla_put_u32(skb, GODWIT_A_CHANGES, s->changes)) {
		nlmsg_free(skb);
		return;
	}
	genlmsg_end(skb, head);
	multicast(skb);
}

int godwit_netlink_init(void)
{
	return genl_register_family(&family);
}

void godwit_netlink_exit(void)
{
	genl_unregister_family(&family);
}
