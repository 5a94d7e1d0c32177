/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Generic netlink by hand: what a library would not let us send. One request at a time, on a socket of its own.
 */
#ifndef KST_GENL_H
#define KST_GENL_H

#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <stdbool.h>
#include <stdint.h>

/* A message under construction, or one that came. */
struct genl_msg {
	union {
		struct nlmsghdr head;
		uint8_t bytes[16384];
	};
};

int genl_socket(void);
/* GODWIT_GENL_NAME's number and that of its group, or -errno. */
int genl_family(uint32_t *group);
void genl_begin(struct genl_msg *m, int family, uint8_t cmd, uint16_t flags);
void genl_add(struct genl_msg *m, uint16_t type, const void *data, uint16_t len);
void genl_add_u32(struct genl_msg *m, uint16_t type, uint32_t value);

/*
 * Sends m and hears the answers: calls each() for every message that is no acknowledgment. Returns the kernel's word: 0 or
 * -errno.
 */
int genl_call(const struct genl_msg *m, void (*each)(const struct nlmsghdr *h, void *arg), void *arg);

/* An attribute of an answer, or NULL. */
const struct nlattr *genl_find(const struct nlmsghdr *h, uint16_t type);
/* One within a nest. */
const struct nlattr *genl_find_in(const struct nlattr *nest, uint16_t type);
uint32_t genl_u32(const struct nlmsghdr *h, uint16_t type);
uint64_t genl_u64(const struct nlattr *a);

/* A socket that hears the group; -errno. */
int genl_listen(void);
/* The command of the next event of this session, 0 after ms without one. */
int genl_event(int fd, uint32_t id, unsigned int ms);

#endif /* KST_GENL_H */
