// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <linux/genetlink.h>
#include <linux/godwit.h>
#include <netlink/genl/ctrl.h>
#include <netlink/genl/genl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "host.h"
#include "netlink.h"

static int family;

struct request {
	struct nlmsghdr head;
	struct genlmsghdr command;
	struct nlattr attr;
	uint32_t id;
};

void netlink_setup(void)
{
	struct nl_sock *socket = nl_socket_alloc();

	require(socket && !genl_connect(socket), "generic netlink");
	family = genl_ctrl_resolve(socket, GODWIT_GENL_NAME);
	require(family > 0, "the family " GODWIT_GENL_NAME);
	nl_socket_free(socket);
}

/* 0 when the session came, or -errno. Errors and the end of a dump look alike. */
static int answer_of(const struct nlmsghdr *head, ssize_t bytes)
{
	for (; NLMSG_OK(head, bytes); head = NLMSG_NEXT(head, bytes)) {
		if (head->nlmsg_type == family)
			return 0;
		if (head->nlmsg_type == NLMSG_ERROR || head->nlmsg_type == NLMSG_DONE)
			return *(const int *)NLMSG_DATA(head) ?: -ENODATA;
	}
	return -EBADMSG;
}

static int ask(struct request *request)
{
	struct timeval patience = { .tv_sec = 5 };
	struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
	_Alignas(struct nlmsghdr) char answer[8192];
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC), r = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ||
	    sendto(fd, request, request->head.nlmsg_len, 0, (struct sockaddr *)&kernel,
		   sizeof(kernel)) < 0)
		r = -errno;
	if (!r) {
		n = recv(fd, answer, sizeof(answer), 0);
		r = n < 0 ? -errno : answer_of((struct nlmsghdr *)answer, n);
	}
	close(fd);
	return r;
}

int netlink_get(uint32_t id)
{
	struct request request = {
		.head = { .nlmsg_len = sizeof(request), .nlmsg_type = family,
			  .nlmsg_flags = NLM_F_REQUEST },
		.command = { .cmd = GODWIT_CMD_GET_SESSION, .version = GODWIT_GENL_VERSION },
		.attr = { .nla_len = NLA_HDRLEN + sizeof(id), .nla_type = GODWIT_A_ID },
		.id = id,
	};

	return ask(&request);
}

int netlink_dump(void)
{
	struct request request = {
		.head = { .nlmsg_len = NLMSG_LENGTH(GENL_HDRLEN), .nlmsg_type = family,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.command = { .cmd = GODWIT_CMD_GET_SESSION, .version = GODWIT_GENL_VERSION },
	};

	return ask(&request);
}
