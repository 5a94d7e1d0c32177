// SPDX-License-Identifier: GPL-2.0-only

#include "estimate/content.h"
#include "estimate/content_walk.h"
#include "page/page.h"

struct content_count {
	const struct reusable *reuse;
	uint64_t seen, zero, same, reused;
};

static int content_look(const struct ram_block *b, uint64_t page, uint64_t rest, void *arg,
			struct err *e)
{
	static uint8_t bytes[PAGE_BYTES] __attribute__((aligned(64)));
	struct content_count *count = arg;
	uint64_t entry;
	int r = ram_ops(b)->read(b, page, 1, bytes, e);

	(void)rest;
	if (r)
		return r;
	count->seen++;
	if (zero_filter_best()->is_zero(bytes))
		count->zero++;
	else if (page_is_one_byte(bytes))
		count->same++;
	else if (count->reuse && reusable_find(count->reuse, bytes, &entry))
		count->reused++;
	return 0;
}

static int content_walk_block(const struct ram_block *b, unsigned int block,
			      struct dirty_source *s, uint64_t stride, uint64_t *skip,
			      content_walk_fn *look, void *arg, struct err *e)
{
	uint64_t from = 0, first, count;
	int r;

	while ((r = s->ops->next_data(s, block, from, b->pages, false, &first, &count, e)) > 0) {
		uint64_t at = *skip;

		for (; at < count; at += stride) {
			r = look(b, first + at, count - at, arg, e);
			if (r)
				return r;
		}
		*skip = at - count;
		from = first + count;
	}
	return r;
}

int content_walk(const struct vm *vm, struct dirty_source *s, uint64_t stride,
		 content_walk_fn *look, void *arg, struct err *e)
{
	uint64_t skip = stride / 2;
	int r = 0;

	for (unsigned int b = 0; b < vm->nblocks && r >= 0; b++)
		r = content_walk_block(&vm->blocks[b], b, s, stride, &skip, look, arg, e);
	return r < 0 ? r : 0;
}

static uint64_t content_scale(const struct content *c, uint64_t part, uint64_t seen)
{
	return (uint64_t)((double)c->allocated_pages * (double)part / (double)seen);
}

int content_measure(const struct vm *vm, struct dirty_source *s, uint64_t sample_pages,
		    const struct reusable *reuse, struct content *out, struct err *e)
{
	struct content_count count = { .reuse = reuse };
	int r;

	*out = (struct content) { .n = 0 };
	r = source_allocated(vm, s, &out->allocated_pages, e);
	if (!r)
		r = content_walk(vm, s, out->allocated_pages / sample_pages + 1, content_look,
				 &count, e);
	if (r || !count.seen)
		return r;
	out->zero_pages = content_scale(out, count.zero, count.seen);
	out->same_pages = content_scale(out, count.same, count.seen);
	out->reused_pages = content_scale(out, count.reused, count.seen);
	return 0;
}
