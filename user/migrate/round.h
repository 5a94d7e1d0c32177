/* SPDX-License-Identifier: GPL-2.0-only */
/* One round: every page that counts as written and is allocated, through the zero filter, into RAM frames. */
#ifndef GODWIT_ROUND_H
#define GODWIT_ROUND_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "io/channel.h"
#include "source/source.h"

/**
 * struct ram_view - the source's RAM, mapped for reading
 * @base: per block; NULL: must be read with pread(), because the mapping of a hole would allocate it
 */
struct ram_view {
	const struct vm *vm;
	const uint8_t *base[WIRE_BLOCKS_MAX];
};

struct round_count {
	uint64_t data_pages;
	uint64_t zero_pages;
};

/* by_read: the source cannot tell holes on hugetlbfs. */
int ram_view_open(struct ram_view *v, const struct vm *vm, bool by_read, struct err *e);
void ram_view_close(struct ram_view *v);

/**
 * round_send() - send what is pending
 * @arm: call the source's clear() for each run first: its log does not know yet that we read (first round)
 * @idle: called every few MiB with its argument, to look for the peer's ABORT and to show progress; may be NULL
 * Context: frames may still be under way on return; the ROUND frame flushes them.
 */
int round_send(const struct ram_view *v, struct dirty_source *s, struct channel *ch, bool arm,
	       struct round_count *count, int (*idle)(void *arg, struct err *e), void *arg, struct err *e);

/*
 * Tells the receiver of every hole. A hole that is punched (a balloon) shows in the ledger when its pages are unmapped,
 * which is before they read as zeros: what a round has read in between would stay there. For the last round.
 */
int round_send_holes(const struct vm *vm, struct dirty_source *s, struct channel *ch, struct err *e);

/* How many pages count as written and are allocated. */
int round_pending(const struct vm *vm, struct dirty_source *s, uint64_t *pages, struct err *e);
/* How many pages are allocated. */
int round_allocated(const struct vm *vm, struct dirty_source *s, uint64_t *pages, struct err *e);

#endif
