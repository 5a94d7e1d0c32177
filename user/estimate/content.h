/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a first round would find in guest RAM: how many pages are allocated, how many of them zero
 * or of one byte, how many a receiver has in a file, and how well the others pack.
 */
#ifndef GODWIT_CONTENT_H
#define GODWIT_CONTENT_H

#include <stdint.h>

#include "base/err.h"
#include "codec/choose.h"
#include "dirty/source.h"
#include "estimate/reusable.h"

/**
 * struct content_packed - a way to send pages that are neither zero nor of one byte
 * @page_bytes: what one takes then, on average
 * @page_ns: how long one CPU packs it
 */
struct content_packed {
	struct codec_choice choice;
	double page_bytes;
	double page_ns;
};

/**
 * struct content
 * @allocated_pages: a count
 * @zero_pages: of these, the pages of zeros; @same_pages: of another byte; @reused_pages: of none,
 *	and in the file. Scaled up from a sample
 * @reference_bytes: what one of @reused_pages takes then, on average
 * @hash_ns: how long one CPU looks a page up in the file, found or not; 0: there is no file
 * @packed: @n ways for the pages that are left; none: they take as many bytes as they have
 */
struct content {
	uint64_t allocated_pages;
	uint64_t zero_pages;
	uint64_t same_pages;
	uint64_t reused_pages;
	double reference_bytes;
	double hash_ns;
	unsigned int n;
	struct content_packed packed[CHOOSE_STEPS];
};

/*
 * Reads about @sample_pages at most, only allocated pages, so that it allocates none. reuse: NULL:
 * there is no file.
 */
int content_measure(const struct vm *vm, struct dirty_source *s, uint64_t sample_pages,
		    const struct reusable *reuse, struct content *out, struct err *e);
/*
 * Fills in out->packed for @n @steps (codec_steps()), out->reference_bytes and out->hash_ns: packs
 * and looks up frames of pages that lie evenly in what is allocated, as a stream would, and never
 * for longer than a second or two.
 */
int content_pack(const struct vm *vm, struct dirty_source *s, const struct codec_choice *steps,
		 unsigned int n, const struct reusable *reuse, struct content *out, struct err *e);

#endif
