// SPDX-License-Identifier: GPL-2.0-only

#include "estimate/content.h"
#include "page/page.h"
#include "send/round.h"

/* Reads each stride-th of the allocated pages. *skip: pages up to the next one, across blocks. */
static int content_read_block(const struct ram_block *b, unsigned int block, struct dirty_source *s,
			      uint64_t stride, uint64_t *seen, uint64_t *zero, uint64_t *skip,
			      struct err *e)
{
	static uint8_t page[PAGE_BYTES] __attribute__((aligned(64)));
	uint64_t from = 0, first, count;
	int r;

	while ((r = s->ops->next_data(s, block, from, b->pages, false, &first, &count, e)) > 0) {
		uint64_t at = *skip;

		for (; at < count; at += stride) {
			r = ram_ops(b)->read(b, first + at, 1, page, e);
			if (r)
				return r;
			(*seen)++;
			*zero += zero_filter_best()->is_zero(page);
		}
		*skip = at - count;
		from = first + count;
	}
	return r;
}

int content_measure(const struct vm *vm, struct dirty_source *s, uint64_t sample_pages,
		    struct content *out, struct err *e)
{
	uint64_t stride, skip, seen = 0, zero = 0;
	int r = source_allocated(vm, s, &out->allocated_pages, e);

	stride = out->allocated_pages / sample_pages + 1;
	skip = stride / 2;
	for (unsigned int b = 0; b < vm->nblocks && r >= 0; b++)
		r = content_read_block(&vm->blocks[b], b, s, stride, &seen, &zero, &skip, e);
	if (r < 0)
		return r;
	out->zero_pages = 0;
	if (seen)
		out->zero_pages = (uint64_t)((double)out->allocated_pages * (double)zero /
					     (double)seen);
	return 0;
}
