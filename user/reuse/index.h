/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a receiver has in a file: old RAM, indexed by content. A thread of its own reads the file,
 * from before a sender comes; what it has found by then is known at once.
 *
 * The file is not trusted: others may write it, cut it off or replace it at any time, and what the
 * index says is what was. A page is only given out if it has the entry's hash now. The file is only
 * ever read by pread(): where it ends meanwhile that is a short read, and no SIGBUS. It may be on
 * any file system, tmpfs and hugetlbfs as well.
 */
#ifndef GODWIT_REUSE_INDEX_H
#define GODWIT_REUSE_INDEX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "reuse/reuse_hash.h"

#define REUSE_INDEX_ENTRY 20u	/* bytes of memory */
#define REUSE_READ_PAGES 64u	/* that are given out at once, at most */

struct reuse_index;

/**
 * struct reuse_index_state - at this moment
 * @entries: that may be said
 * @most: that there will be, at most
 * @left_out: pages that were not read, as the memory was used up
 * @ns: how long the thread has worked
 * @memory: bytes that the index takes
 * @done: it has ended; @error: an errno: the file could not be read further
 */
struct reuse_index_state {
	uint64_t entries, most, left_out, ns, memory;
	bool done;
	int error;
};

/**
 * reuse_index_open() - begins to read the file
 * @other: another guest may have written it
 * @memory: bytes for the index, at most
 * Errors: GW_USAGE: it is no file, empty, or cannot be read; GW_INTERNAL: no memory
 */
int reuse_index_open(const char *path, bool other, uint64_t memory, struct reuse_index **out,
		     struct err *e);
/* Nothing is referred to any more: its thread reads no further. NULL is fine. */
void reuse_index_rest(struct reuse_index *ix);
void reuse_index_close(struct reuse_index *ix);	/* NULL is fine; ends the thread */
const char *reuse_index_path(const struct reuse_index *ix);
void reuse_index_file(const struct reuse_index *ix, dev_t *dev, ino_t *ino, int *fd);
const struct reuse_key *reuse_index_key(const struct reuse_index *ix);
void reuse_index_state(const struct reuse_index *ix, struct reuse_index_state *out);
/* The hashes of up to @n entries from @first on, as HASHES has them. Return: how many there are. */
uint32_t reuse_index_say(struct reuse_index *ix, uint64_t first, uint32_t n, uint8_t *out);
/* How many of them have been said. Any thread. */
uint64_t reuse_index_said(const struct reuse_index *ix);
/*
 * Reads the pages of entries [entry, entry + n), which have been said, into @buf. n: up to
 * REUSE_READ_PAGES. Return: a bit for each that has the entry's hash, the first in bit 0. Any
 * thread.
 */
uint64_t reuse_index_read(const struct reuse_index *ix, const struct reuse_hasher *h,
			  uint64_t entry, unsigned int n, uint8_t *buf);

#endif
