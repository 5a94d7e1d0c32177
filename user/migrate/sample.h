/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A sample of a guest's pages, to see how it writes without a migration.
 *
 * Only the sample's pages are write-protected, so the guest pays for few of its writes: one fault for each page of the
 * sample that it writes, each time it is armed. All other pages are left as they are.
 *
 * The sample is made of chunks of 64 pages, a word of the bitmap each, since the module arms a chunk as fast as a page. The
 * address space is cut into as many strata as there are chunks, and each has one chunk, chosen at random: an even
 * spread, and no two alike.
 */
#ifndef GODWIT_SAMPLE_H
#define GODWIT_SAMPLE_H

#include <stdint.h>

#include "err.h"
#include "source/source.h"

#define SAMPLE_CHUNK	64u	/* pages */

/**
 * struct chunk - a word of the sample
 * @word: of the block's bitmap
 * @written: pages that the last harvest found: written since it was armed
 * @ever: pages that were written at any time
 */
struct chunk {
	unsigned int block;
	uint64_t word;
	uint64_t written;
	uint64_t ever;
};

/**
 * struct sample
 * @total_pages: of the guest's RAM
 * @harvest_ns: when the last harvest was over, CLOCK_MONOTONIC
 */
struct sample {
	struct chunk *chunks;
	uint64_t n;
	uint64_t total_pages;
	uint64_t harvest_ns;
};

/* At most so many pages; sample_free() also after an error. */
int sample_choose(const struct vm *vm, uint64_t pages, uint64_t seed, struct sample *s, struct err *e);
void sample_free(struct sample *s);
/* How many pages of the guest stand behind one of the sample, at least 1. */
double sample_scale(const struct sample *s);
/* Starts the source, arms all of the sample, and harvests once: what is written from then on is seen. */
int sample_begin(struct sample *s, struct dirty_source *src, struct err *e);
/**
 * sample_arm() - forget what the last harvest has found, in the sample
 * @since_ns: out: since when writes to it are seen: that harvest, as no write is lost between it and now
 */
int sample_arm(struct sample *s, struct dirty_source *src, uint64_t *since_ns, struct err *e);
/* Harvests: fills in the chunks. *pages: written since the sample was armed, not scaled. */
int sample_collect(struct sample *s, struct dirty_source *src, uint64_t *pages, struct err *e);
/* Until then, CLOCK_MONOTONIC; GW_CANCELLED: a signal. */
int sample_rest(uint64_t until_ns, struct err *e);

#endif
