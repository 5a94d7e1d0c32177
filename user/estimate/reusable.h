/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which pages of a guest a receiver would find in a file with old RAM: the file is read as a
 * receiver reads it, and looked up as a sender looks up what that has said, with as much memory as
 * either would take.
 */
#ifndef GODWIT_REUSABLE_H
#define GODWIT_REUSABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct reusable;

/**
 * struct reusable_state - of the file
 * @entries: pages that may be referred to; @left_out: those that had no room
 * @ns: how long it took to read and hash it; @memory: bytes that a receiver's index of it takes
 */
struct reusable_state {
	uint64_t entries, left_out, ns, memory;
};

/*
 * Begins to read the file at @path. @other, @memory: as reuse_index_open() has them. Errors: its
 * own.
 */
int reusable_open(const char *path, bool other, uint64_t memory, struct reusable **out,
		  struct err *e);
/* Waits until the file has been read. Errors: GW_CANCELLED (a signal), GW_USAGE, GW_INTERNAL. */
int reusable_wait(struct reusable *r, struct reusable_state *st, struct err *e);
/* As reuse_table_find(), by a page's content. Only after reusable_wait(). */
bool reusable_find(const struct reusable *r, const uint8_t *page, uint64_t *entry);
void reusable_close(struct reusable *r);	/* NULL is fine */

#endif
