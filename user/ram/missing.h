/* SPDX-License-Identifier: GPL-2.0-only */
/* Which huge pages a process has, where one look at its page map is not to be believed. */
#ifndef GODWIT_MISSING_H
#define GODWIT_MISSING_H

#include "ram/ram_block.h"

/**
 * missing_next() - pagemap_next(), for a private block on hugetlbfs
 * While the kernel moves a huge page its entry reads as none, and to pagemap of kernels before 6.7
 * for as long as the copy takes. So nothing is believed to be missing that two looks, further apart
 * than a copy takes, have not both found missing.
 *
 * A first look goes far ahead and serves all calls of the thread for a second: a walk naps once in
 * that time, and not at each hole. It is void once this process has written to private RAM. What
 * the guest or QEMU write in that second is not seen where the kernel moves it just then: callers
 * look at RAM at rest, or need no more than a number.
 */
int missing_next(const struct ram_block *b, uint64_t from, uint64_t end, uint64_t *at,
		 uint64_t *len);

/* Something has been written to private RAM: what was looked at before is void. */
void missing_void(void);

#endif
