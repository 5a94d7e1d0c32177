// SPDX-License-Identifier: GPL-2.0-only
/*
 * How well guest RAM packs. A stream packs frames of up to 64 pages, so frames are what is tried
 * here: pages that are not next to each other have less in common. The sample is small, and costs
 * the guest nothing but the reading.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "estimate/content.h"
#include "estimate/content_walk.h"
#include "net/channel.h"
#include "page/page.h"
#include "wire/reuse.h"

#define FRAMES		64u
#define BUDGET_NS	400000000ull	/* for one step: zstd:19 takes its time */

/**
 * struct content_packing
 * @read: pages as they lie in RAM
 * @pages: of a frame, @len bytes: those that would be sent with their bytes; @packed: their block
 * @looked_up: pages, in @ns; @found: of them, in @references
 */
struct content_packing {
	const struct codec_choice *steps;
	unsigned int n;
	const struct reusable *reuse;
	struct codec_states states;
	uint8_t *read, *pages, *packed;
	size_t len;
	struct {
		uint64_t pages, bytes, ns;
	} sum[CHOOSE_STEPS];
	struct {
		uint64_t looked_up, ns, found, references;
	} reused;
};

/* Of this thread: other programs that run here meanwhile make no codec slower. */
static uint64_t content_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static void content_pack_frame(struct content_packing *p)
{
	for (unsigned int i = 0; i < p->n && p->len; i++) {
		uint64_t begin = content_cpu_ns();
		size_t n;

		if (p->sum[i].ns > BUDGET_NS)
			continue;
		n = codec_pack(&p->states, &p->steps[i], p->pages, p->len, p->packed,
			       codec_worth(p->len));
		p->sum[i].ns += content_cpu_ns() - begin;
		p->sum[i].bytes += n ? n : p->len;
		p->sum[i].pages += p->len / PAGE_BYTES;
	}
	p->len = 0;
}

/*
 * Of @n pages that were read: the page of the file that each is, or UINT64_MAX. One reference is
 * for pages that follow each other, there and here (ram_reference.c).
 */
static void content_refer(struct content_packing *p, uint64_t n, uint64_t entry[FRAME_PAGES])
{
	uint64_t begin = content_cpu_ns();

	for (uint64_t i = 0; i < n; i++) {
		const uint8_t *page = p->read + i * PAGE_BYTES;

		entry[i] = UINT64_MAX;
		if (!p->reuse || page_is_one_byte(page))
			continue;
		p->reused.looked_up++;
		if (!reusable_find(p->reuse, page, &entry[i]))
			continue;
		p->reused.found++;
		p->reused.references += !i || entry[i - 1] == UINT64_MAX ||
					entry[i] != entry[i - 1] + 1;
	}
	p->reused.ns += content_cpu_ns() - begin;
}

static int content_take_frame(const struct ram_block *b, uint64_t page, uint64_t rest, void *arg,
			      struct err *e)
{
	uint64_t n = rest < FRAME_PAGES ? rest : FRAME_PAGES, entry[FRAME_PAGES];
	struct content_packing *p = arg;
	int r = ram_ops(b)->read(b, page, n, p->read, e);

	if (r)
		return r;
	content_refer(p, n, entry);
	for (uint64_t i = 0; i < n; i++) {
		const uint8_t *from = p->read + i * PAGE_BYTES;

		/* Zeros are of one byte as well. */
		if (page_is_one_byte(from) || entry[i] != UINT64_MAX)
			continue;
		memcpy(p->pages + p->len, from, PAGE_BYTES);
		p->len += PAGE_BYTES;
		if (p->len == FRAME_BYTES)
			content_pack_frame(p);
	}
	/* Where most pages are found those that are left fill a frame from further around. */
	if (!p->reuse)
		content_pack_frame(p);
	return 0;
}

int content_pack(const struct vm *vm, struct dirty_source *s, const struct codec_choice *steps,
		 unsigned int n, const struct reusable *reuse, struct content *out, struct err *e)
{
	struct content_packing p = { .steps = steps, .n = n, .reuse = reuse };
	uint64_t stride = out->allocated_pages / FRAMES;
	int r;

	p.read = malloc(3 * FRAME_BYTES);
	if (!p.read)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	p.pages = p.read + FRAME_BYTES;
	p.packed = p.pages + FRAME_BYTES;
	r = content_walk(vm, s, stride < FRAME_PAGES ? FRAME_PAGES : stride, content_take_frame,
			 &p, e);
	content_pack_frame(&p);
	out->n = 0;
	for (unsigned int i = 0; i < n && !r && p.sum[i].pages; i++)
		out->packed[out->n++] = (struct content_packed) {
			.choice = steps[i],
			.page_bytes = (double)p.sum[i].bytes / (double)p.sum[i].pages,
			.page_ns = (double)p.sum[i].ns / (double)p.sum[i].pages,
		};
	/* A sample that found none says nothing of how they lie. */
	out->reference_bytes = WIRE_REFERENCE;
	if (p.reused.found)
		out->reference_bytes *= (double)p.reused.references / (double)p.reused.found;
	if (p.reused.looked_up)
		out->hash_ns = (double)p.reused.ns / (double)p.reused.looked_up;
	codec_states_free(&p.states);
	free(p.read);
	return r;
}
