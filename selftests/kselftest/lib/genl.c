// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <linux/godwit.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "genl.h"
#include "host.h"

#define HEAD	(NLMSG_HDRLEN + GENL_HDRLEN)

int genl_socket(void)
{
	struct sockaddr_nl self = { .nl_family = AF_NETLINK };
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC);

	require(fd >= 0 && !bind(fd, (struct sockaddr *)&self, sizeof(self)), "netlink socket");
	return fd;
}

void genl_begin(struct genl_msg *m, int family, uint8_t cmd, uint16_t flags)
{
	struct genlmsghdr *g = NLMSG_DATA(&m->head);

	memset(m, 0, sizeof(*m));
	m->head.nlmsg_len = HEAD;
	m->head.nlmsg_type = family;
	m->head.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | flags;
	g->cmd = cmd;
	g->version = GODWIT_GENL_VERSION;
}

void genl_add(struct genl_msg *m, uint16_t type, const void *data, uint16_t len)
{
	struct nlattr *a = (struct nlattr *)(m->bytes + NLMSG_ALIGN(m->head.nlmsg_len));

	a->nla_type = type;
	a->nla_len = NLA_HDRLEN + len;
	memcpy(a + 1, data, len);
	m->head.nlmsg_len = NLMSG_ALIGN(m->head.nlmsg_len) + NLA_ALIGN(a->nla_len);
}

void genl_add_u32(struct genl_msg *m, uint16_t type, uint32_t value)
{
	genl_add(m, type, &value, sizeof(value));
}

/* The next attribute of size bytes at a, NULL at the end. */
static const struct nlattr *attr_at(const void *a, size_t size)
{
	const struct nlattr *attr = a;

	return size >= NLA_HDRLEN && attr->nla_len >= NLA_HDRLEN && attr->nla_len <= size ? attr : NULL;
}

static const struct nlattr *find(const void *at, size_t size, uint16_t type)
{
	const struct nlattr *a;

	while ((a = attr_at(at, size))) {
		size_t aligned = NLA_ALIGN(a->nla_len), step = aligned < size ? aligned : size;

		if ((a->nla_type & NLA_TYPE_MASK) == type)
			return a;
		at = (const uint8_t *)at + step;
		size -= step;
	}
	return NULL;
}

const struct nlattr *genl_find(const struct nlmsghdr *h, uint16_t type)
{
	return h->nlmsg_len < HEAD ? NULL : find((const uint8_t *)h + HEAD, h->nlmsg_len - HEAD, type);
}

const struct nlattr *genl_find_in(const struct nlattr *nest, uint16_t type)
{
	return nest ? find(nest + 1, nest->nla_len - NLA_HDRLEN, type) : NULL;
}

uint32_t genl_u32(const struct nlmsghdr *h, uint16_t type)
{
	const struct nlattr *a = genl_find(h, type);
	uint32_t value = 0;

	if (a)
		memcpy(&value, a + 1, sizeof(value));
	return value;
}

uint64_t genl_u64(const struct nlattr *a)
{
	uint64_t value = 0;

	if (a)
		memcpy(&value, a + 1, sizeof(value));
	return value;
}

/* 1: more to come. */
static int hear(int fd, void (*each)(const struct nlmsghdr *h, void *arg), void *arg)
{
	struct genl_msg m;
	ssize_t n = recv(fd, m.bytes, sizeof(m.bytes), 0);
	const struct nlmsghdr *h;
	unsigned int left = n;

	if (n < 0)
		return -errno;
	for (h = &m.head; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
		if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR)
			return *(const int *)NLMSG_DATA(h);
		each(h, arg);
	}
	return 1;
}

int genl_call(const struct genl_msg *m, void (*each)(const struct nlmsghdr *h, void *arg), void *arg)
{
	struct timeval patience = { .tv_sec = 20 };
	int fd = genl_socket(), r;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	require(send(fd, m->bytes, m->head.nlmsg_len, 0) > 0, "send");
	while ((r = hear(fd, each, arg)) == 1)
		;
	close(fd);
	return r;
}

struct family {
	int id;
	uint32_t group;
};

static void on_family(const struct nlmsghdr *h, void *arg)
{
	const struct nlattr *groups = genl_find(h, CTRL_ATTR_MCAST_GROUPS), *id;
	struct family *f = arg;
	uint16_t number = 0;

	memcpy(&number, genl_find(h, CTRL_ATTR_FAMILY_ID) + 1, sizeof(number));
	f->id = number;
	id = genl_find_in(genl_find_in(groups, 1), CTRL_ATTR_MCAST_GRP_ID);
	if (id)
		memcpy(&f->group, id + 1, sizeof(f->group));
}

int genl_family(uint32_t *group)
{
	struct family f = { 0 };
	struct genl_msg m;
	int r;

	genl_begin(&m, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 0);
	genl_add(&m, CTRL_ATTR_FAMILY_NAME, GODWIT_GENL_NAME, sizeof(GODWIT_GENL_NAME));
	r = genl_call(&m, on_family, &f);
	if (group)
		*group = f.group;
	return r ? r : f.id;
}

int genl_listen(void)
{
	uint32_t group = 0;
	int r = genl_family(&group), fd;

	if (r < 0)
		return r;
	fd = genl_socket();
	if (!setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof(group)))
		return fd;
	r = -errno;
	close(fd);
	return r;
}

int genl_event(int fd, uint32_t id, unsigned int ms)
{
	uint64_t end = now_ms() + ms;

	for (;;) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		uint64_t now = now_ms();
		struct genl_msg m;

		if (now >= end || poll(&p, 1, end - now) <= 0)
			return 0;
		if (recv(fd, m.bytes, sizeof(m.bytes), 0) > (ssize_t)HEAD && genl_u32(&m.head, GODWIT_A_ID) == id)
			return ((const struct genlmsghdr *)NLMSG_DATA(&m.head))->cmd;
	}
}
