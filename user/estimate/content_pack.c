// SPDX-License-Identifier: GPL-2.0-only
/*
 * How well guest RAM packs. A stream packs frames of up to 64 pages, so frames are what is tried
 * here: pages that are not next to each other have less in common. The sample is small, and costs
 * the guest nothing but the reading.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "estimate/content.h"
#include "estimate/content_walk.h"
#include "net/channel.h"
#include "page/page.h"

#define FRAMES		64u
#define BUDGET_NS	400000000ull	/* for one step: zstd:19 takes its time */

/**
 * struct content_packing
 * @pages: of a frame, those that would be sent with their bytes; @packed: their block
 */
struct content_packing {
	const struct codec_choice *steps;
	unsigned int n;
	struct codec_states states;
	uint8_t *pages, *packed;
	struct {
		uint64_t pages, bytes, ns;
	} sum[CHOOSE_STEPS];
};

/* Of this thread: other programs that run here meanwhile make no codec slower. */
static uint64_t content_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void content_pack_frame(struct content_packing *p, size_t len)
{
	for (unsigned int i = 0; i < p->n; i++) {
		uint64_t begin = content_cpu_ns();
		size_t n;

		if (p->sum[i].ns > BUDGET_NS)
			continue;
		n = codec_pack(&p->states, &p->steps[i], p->pages, len, p->packed,
			       codec_worth(len));
		p->sum[i].ns += content_cpu_ns() - begin;
		p->sum[i].bytes += n ? n : len;
		p->sum[i].pages += len / PAGE_BYTES;
	}
}

static int content_take_frame(const struct ram_block *b, uint64_t page, uint64_t rest, void *arg,
			      struct err *e)
{
	uint64_t n = rest < FRAME_PAGES ? rest : FRAME_PAGES;
	struct content_packing *p = arg;
	size_t len = 0;

	for (uint64_t i = 0; i < n; i++) {
		uint8_t *to = p->pages + len;
		int r = ram_ops(b)->read(b, page + i, 1, to, e);

		if (r)
			return r;
		/* Zeros are of one byte as well. */
		if (!page_is_one_byte(to))
			len += PAGE_BYTES;
	}
	if (len)
		content_pack_frame(p, len);
	return 0;
}

int content_pack(const struct vm *vm, struct dirty_source *s, const struct codec_choice *steps,
		 unsigned int n, struct content *out, struct err *e)
{
	struct content_packing p = { .steps = steps, .n = n };
	uint64_t stride = out->allocated_pages / FRAMES;
	int r;

	p.pages = malloc(2 * FRAME_BYTES);
	if (!p.pages)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	p.packed = p.pages + FRAME_BYTES;
	r = content_walk(vm, s, stride < FRAME_PAGES ? FRAME_PAGES : stride, content_take_frame,
			 &p, e);
	out->n = 0;
	for (unsigned int i = 0; i < n && !r && p.sum[i].pages; i++)
		out->packed[out->n++] = (struct content_packed) {
			.choice = steps[i],
			.page_bytes = (double)p.sum[i].bytes / (double)p.sum[i].pages,
			.page_ns = (double)p.sum[i].ns / (double)p.sum[i].pages,
		};
	codec_states_free(&p.states);
	free(p.pages);
	return r;
}
