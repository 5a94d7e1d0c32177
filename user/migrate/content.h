/* SPDX-License-Identifier: GPL-2.0-only */
/* What a first round would find in guest RAM: how much of it is allocated, and how much of that is zeros. */
#ifndef GODWIT_CONTENT_H
#define GODWIT_CONTENT_H

#include <stdint.h>

#include "err.h"
#include "source/source.h"

/**
 * struct content
 * @allocated_pages: counted
 * @zero_pages: of them, all zeros: scaled up from a sample that was read
 */
struct content {
	uint64_t allocated_pages;
	uint64_t zero_pages;
};

/* Reads at most about @sample_pages, of allocated pages only; none is allocated by it. */
int content_measure(const struct vm *vm, struct dirty_source *s, uint64_t sample_pages, struct content *out, struct err *e);

#endif
