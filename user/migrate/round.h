/* SPDX-License-Identifier: GPL-2.0-only */
/* One round: every page that counts as written and is allocated, shared out in pieces to whoever asks. */
#ifndef GODWIT_ROUND_H
#define GODWIT_ROUND_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "migrate/hot.h"
#include "page/page.h"
#include "source/source.h"

#define PIECE_RUNS	64u
#define CLEAR_PAGES	16384u	/* 64 MiB: cleared, then read; of more, some would be dirty again before it is read */

/**
 * struct piece - pages of one block that are the taker's to send
 * @hole: they are not allocated: zeros, and not to be read
 */
struct piece {
	unsigned int block;
	bool hole;
	unsigned int nr;
	struct run runs[PIECE_RUNS];
};

/**
 * enum round_kind - what kind of round
 * ROUND_PRECOPY: the guest runs: the source is told of pages just before they are read; hot ones come last
 * ROUND_LAST: it is stopped: in small pieces, so that no stream idles while another one is busy; then the holes. A hole that
 * is punched (a balloon) shows in the ledger when its pages are unmapped, which is before they read as zeros: what a
 * round has read in between would stay there. So where any were unmapped it is all holes, and the file is walked for
 * them (10 ms/GiB); else those that count as written.
 */
enum round_kind { ROUND_PRECOPY, ROUND_LAST };

/**
 * struct round - opaque to all but round.c
 * @lock: protects all that follows, the source's maps and its calls
 * @cut: nothing more is taken; not under the lock
 * @hot: holds pages back, NULL when it has given them up
 * @holes: the written pages are all taken
 * @at: in @block, nothing below is left
 * @written: the walk over its map. Nobody but the taker clears bits there; those that come late are the next round's,
 *           and in the last round none come
 * @data: the last run of allocated pages that was found
 * @cleared_end: in @block, the source has been told of what lies below
 * @taken: written pages that somebody has
 */
struct round {
	const struct vm *vm;
	struct dirty_source *source;
	enum round_kind kind;
	atomic_bool cut;
	pthread_mutex_t lock;
	struct hot *hot;
	bool holes;
	unsigned int block;
	uint64_t at;
	struct bitmap_runs written;
	struct run data;
	uint64_t cleared_end;
	uint64_t taken;
};

void round_begin(struct round *rd, const struct vm *vm, struct dirty_source *s, enum round_kind kind, struct hot *hot);
void round_end(struct round *rd);
/* How many written pages have been taken so far. */
uint64_t round_taken(struct round *rd);
/* Of a round of pre-copy: what nobody has taken yet stays written, for a later round. Any thread, at any time. */
void round_cut(struct round *rd);
/**
 * round_take() - the next piece, for any thread. No page is in two of them.
 * Return: 1, 0 when nothing is left, or -errno. The source has forgotten the pages and their bits are gone: they may be
 * read from now on, not before.
 */
int round_take(struct round *rd, struct piece *p, struct err *e);

/* How many pages count as written and are allocated. As next_data not exactly: holes between such pages may be among them. */
int round_pending(const struct vm *vm, struct dirty_source *s, uint64_t *pages, struct err *e);
/* How many pages are allocated. */
int round_allocated(const struct vm *vm, struct dirty_source *s, uint64_t *pages, struct err *e);

#endif
