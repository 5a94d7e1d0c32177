/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a first round would find in guest RAM: how many pages are allocated, and how many of them
 * zero.
 */
#ifndef GODWIT_CONTENT_H
#define GODWIT_CONTENT_H

#include <stdint.h>

#include "base/err.h"
#include "dirty/source.h"

/**
 * struct content
 * @allocated_pages: a count
 * @zero_pages: of these, the pages of zeros: scaled up from a sample
 */
struct content {
	uint64_t allocated_pages;
	uint64_t zero_pages;
};

/* Reads about @sample_pages at most, only allocated pages, so that it allocates none. */
int content_measure(const struct vm *vm, struct dirty_source *s, uint64_t sample_pages,
		    struct content *out, struct err *e);

#endif
