/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A sample of a guest's pages, which shows how the guest writes without a migration.
 *
 * Arming write-protects only the sample's pages, so the guest pays for few of its writes: one fault
 * for each page of the sample that it writes, each time the sample is armed. All other pages stay
 * as they are.
 *
 * The sample is made of chunks of 64 pages, a word of the bitmap each, since the module arms a
 * chunk as fast as a page. The address space is cut into as many strata as there are chunks, and
 * each stratum has one chunk, chosen at random: the chunks are spread evenly, and no two are the
 * same.
 */
#ifndef GODWIT_SAMPLE_H
#define GODWIT_SAMPLE_H

#include <stdint.h>

#include "base/err.h"
#include "dirty/source.h"

#define SAMPLE_CHUNK	64u	/* pages */

/**
 * struct chunk - a word of the sample
 * @word: index in the block's bitmap
 * @written: a bit a page: written since the chunk was armed, as of the last harvest
 * @ever: a bit a page: written at any time
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
 * @harvest_ns: when the last harvest ended, CLOCK_MONOTONIC
 */
struct sample {
	struct chunk *chunks;
	uint64_t n;
	uint64_t total_pages;
	uint64_t harvest_ns;
};

/* Chooses at most @pages pages; sample_free() also after an error. */
int sample_choose(const struct vm *vm, uint64_t pages, uint64_t seed, struct sample *s,
		  struct err *e);
void sample_free(struct sample *s);
/* How many pages of the guest one page of the sample stands for, at least 1. */
double sample_scale(const struct sample *s);
/*
 * Starts the source, arms all of the sample, and harvests once: later harvests see all later
 * writes.
 */
int sample_begin(struct sample *s, struct dirty_source *src, struct err *e);
/**
 * sample_arm() - arm the pages of the sample that the last harvest has found written
 * @since_ns: out: the time of that harvest, as no write is lost between it and now
 */
int sample_arm(struct sample *s, struct dirty_source *src, uint64_t *since_ns, struct err *e);
/* Harvests, and fills in the chunks. *pages: written since the sample was armed, not scaled up. */
int sample_collect(struct sample *s, struct dirty_source *src, uint64_t *pages, struct err *e);
/* Sleeps until then, CLOCK_MONOTONIC; GW_CANCELLED: a signal. */
int sample_rest(uint64_t until_ns, struct err *e);

#endif
