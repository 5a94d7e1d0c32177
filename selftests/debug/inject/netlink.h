/* SPDX-License-Identifier: GPL-2.0-only */
/* The module's netlink requests. 0 or -errno; an answer that does not come is an error too. */
#ifndef INJECT_NETLINK_H
#define INJECT_NETLINK_H

#include <stdint.h>

/* Finds the family, so that the calls allocate for nothing else. */
void netlink_setup(void);
int netlink_get(uint32_t id);
int netlink_dump(void);

#endif /* INJECT_NETLINK_H */
