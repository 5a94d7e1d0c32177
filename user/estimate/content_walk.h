/* SPDX-License-Identifier: GPL-2.0-only */
/* Evenly over the allocated pages of a guest. */
#ifndef GODWIT_CONTENT_WALK_H
#define GODWIT_CONTENT_WALK_H

#include <stdint.h>

#include "base/err.h"
#include "dirty/source.h"

/* Of a page that is allocated, as are @rest pages from it on. An error ends the walk. */
typedef int content_walk_fn(const struct ram_block *b, uint64_t page, uint64_t rest, void *arg,
			    struct err *e);

/* Calls look() for each stride-th of the allocated pages, across runs and blocks. */
int content_walk(const struct vm *vm, struct dirty_source *s, uint64_t stride,
		 content_walk_fn *look, void *arg, struct err *e);

#endif
