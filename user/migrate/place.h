/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Destination RAM: emptied first, then filled by several threads, which never have the same page at the same time.
 *
 * Into tmpfs from a small buffer: new pages by UFFDIO_COPY (fresh.h), those that are there, or all where there is no
 * userfaultfd, by pwrite(). Neither faults them in or zeroes them first: a bare copy over loopback took the receiver 0.68
 * s/GiB of CPU time by pwrite() and 1.01 into a mapping (medians of 11). Where the kernel gives huge pages (hugetlbfs; a
 * tmpfs mounted for them), or where all pages are there already, the socket's bytes go straight into a mapping: half of the
 * receiver's CPU time, and the guest has huge pages here too.
 *
 * A page for which there is no room must be an error, never SIGBUS: so only the kernel writes into a mapping (recv(),
 * read()), and answers EFAULT. Nobody asks for room before: to do that by fallocate() took 7 ms of CPU time for each GiB
 * and by MADV_POPULATE_WRITE 45 to 660, of some 210.
 */
#ifndef GODWIT_PLACE_H
#define GODWIT_PLACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "io/channel.h"
#include "migrate/fresh.h"
#include "vmm/vm.h"

#define PLACE_BUFFER	(256u << 10)	/* bytes; small enough to stay in the CPU's cache between the two copies */

/**
 * struct placement - what all threads share; but for @placed and @writing nothing of it changes while they work
 * @base: of blocks with huge pages, and of @whole ones; else NULL
 * @whole: preallocated: no hole is made
 * @placed: a bit a page: data has been put there; where it is mapped, no zeros since. All RAM was emptied before, so the
 *	others are zero. A page may change its thread from one round to the next: the sender begins no round before the last
 *	one is acknowledged.
 * @fresh: makes pages of the other blocks that were not there
 * @writing: whoever writes to the file
 * @zeros: /dev/zero
 */
struct placement {
	const struct vm *vm;
	uint8_t *base[WIRE_BLOCKS_MAX];
	bool whole[WIRE_BLOCKS_MAX];
	struct fresh fresh[WIRE_BLOCKS_MAX];
	uint64_t *placed[WIRE_BLOCKS_MAX];
	uint64_t pages[WIRE_BLOCKS_MAX];
	pthread_mutex_t writing[WIRE_BLOCKS_MAX];
	int zeros;
};

struct place_count {
	uint64_t data_pages;
	uint64_t zero_pages;
};

/* Empties all RAM: what the source never touched is a hole here too, or zeros where the operator wants no holes. */
int place_open(struct placement *p, const struct vm *vm, struct err *e);
void place_close(struct placement *p);
/* One RAM frame, its header read already. buf: PLACE_BUFFER bytes of the calling thread. */
int place_frame(struct placement *p, struct channel *ch, const struct wire_header *h, uint8_t *buf,
		struct place_count *count, struct err *e);

#endif
