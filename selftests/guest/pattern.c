// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes pages and checks them, for ever. Each vCPU has a stretch of the region
 * to itself, and no other vCPU looks at it.
 *
 * Every write has a number. table[page] says which write the page must hold;
 * 0 means never written, and such a page is not even read, so that it stays a
 * hole. A lost page differs from its entry. A lost page of the table, or RAM
 * that is older than the vCPU as a whole, differs from what a CPU register
 * remembers: XMM0, which travels with the device state, holds the last write's
 * number and the sum of the table. Nothing else here uses SSE.
 */
#include "guest.h"

#define ZERO_FLAG	0x80000000u	/* the write cleared the page */
enum { BATCH = 64 };

static struct writer {
	uint32_t seq;			/* in front: bench/migrate/slowdown.py reads it in RAM */
	uint32_t first, pages;		/* its stretch of the region */
	uint32_t *table;
	uint32_t working, cursor, verify_cursor, rnd;
	uint32_t sum, held, verified, sweeps;
	struct pace pace;
} writers[CPUS_MAX];
static uint8_t *base, *window;
static uint32_t low_pages, words;	/* of the region: what lies below 4 GiB */

static inline void mirror_set(uint32_t s, uint32_t t)
{
	uint64_t v = (uint64_t)t << 32 | s;

	__asm__ volatile("movq %0, %%xmm0" :: "m"(v));
}

static inline uint64_t mirror_get(void)
{
	uint64_t v;

	__asm__ volatile("movq %%xmm0, %0" : "=m"(v));
	return v;
}

static void check_mirror(struct writer *w)
{
	uint64_t m = mirror_get();

	if (m == ((uint64_t)w->sum << 32 | w->seq))
		return;
	report("RAM and vCPU %u differ: write %u sum %x in RAM, write %u sum %x in XMM0",
	       (uint32_t)(w - writers), w->seq, w->sum, (uint32_t)m, (uint32_t)(m >> 32));
	mirror_set(w->seq, w->sum);
}

static void *page_at(uint32_t page)
{
	if (page < low_pages)
		return base + (size_t)page * PAGE_SIZE;
	return window + (size_t)(page - low_pages) * PAGE_SIZE;
}

static void write_page(struct writer *w, uint32_t page)
{
	uint32_t n = (w->seq + 1) & ~ZERO_FLAG;
	uint32_t entry = n;

	if (opt.zeros && n % opt.zeros == 0) {
		entry |= ZERO_FLAG;
		memset(page_at(w->first + page), 0, PAGE_SIZE);
	} else {
		content_fill(page_at(w->first + page), words, CONTENT_PAGE, w->first + page, n);
	}
	w->held += !w->table[page];
	check_mirror(w);
	w->sum += entry - w->table[page];
	w->table[page] = entry;
	w->seq = n;
	mirror_set(w->seq, w->sum);
}

static uint32_t next_page(struct writer *w)
{
	if (opt.random) {
		w->rnd = content_step(w->rnd);
		return w->rnd % w->working;
	}
	if (w->cursor >= w->working)
		w->cursor = 0;
	return w->cursor++;
}

static void verify_page(struct writer *w, uint32_t in_stretch)
{
	uint32_t entry = w->table[in_stretch], n = entry & ~ZERO_FLAG;
	uint32_t page = w->first + in_stretch, *at = page_at(page), i;
	int bad;

	if (!entry)
		return;
	w->verified++;
	if (entry & ZERO_FLAG) {
		for (i = 0; i < PAGE_SIZE / sizeof(*at); i++) {
			if (!at[i])
				continue;
			report("page %u at %x: word %u is %x, write %u cleared it",
			       page, (uintptr_t)at, i, at[i], n);
			return;
		}
		return;
	}
	bad = content_check(at, words, CONTENT_PAGE, page, n);
	if (bad >= 0)
		report("page %u at %x: word %u is %x, not of write %u (header says %u of page %u), %u words are wrong",
		       page, (uintptr_t)at, (uint32_t)bad, at[bad], n, at[2], at[1],
		       content_wrong(at, words, CONTENT_PAGE, page, n));
}

void pattern_verify(uint32_t cpu, uint32_t n)
{
	struct writer *w = &writers[cpu];
	uint32_t skip = BATCH;

	while (n && skip) {
		if (!w->table[w->verify_cursor])
			skip--;
		else
			n--;
		verify_page(w, w->verify_cursor);
		if (++w->verify_cursor == w->pages) {
			w->verify_cursor = 0;
			w->sweeps++;
		}
	}
}

/* One whole pass at once, counted as a sweep would be. */
void pattern_verify_all(uint32_t cpu)
{
	struct writer *w = &writers[cpu];
	uint32_t begin = w->sweeps;

	pattern_check_sum(cpu);
	while (w->sweeps - begin < 2)
		pattern_verify(cpu, 1);
}

void pattern_check_sum(uint32_t cpu)
{
	struct writer *w = &writers[cpu];
	uint32_t i, s;

	check_mirror(w);
	for (i = 0, s = 0; i < w->pages; i++)
		s += w->table[i];
	if (s != w->sum)
		report("the table of expected writes sums up to %x, not %x", s, w->sum);
}

/* Reads the holes, which fills them: for the end of a test. */
void pattern_check_unwritten(uint32_t cpu)
{
	struct writer *w = &writers[cpu];
	uint32_t page, i, *at;

	for (page = 0; page < w->pages; page++) {
		if (w->table[page])
			continue;
		at = page_at(w->first + page);
		for (i = 0; i < PAGE_SIZE / sizeof(*at) && !at[i]; i++)
			;
		if (i < PAGE_SIZE / sizeof(*at))
			report("page %u at %x: word %u is %x, never written",
			       w->first + page, (uintptr_t)at, i, at[i]);
	}
}

bool pattern_poll(uint32_t cpu)
{
	struct writer *w = &writers[cpu];
	uint32_t n, i, ws = opt.ws * (MIB / PAGE_SIZE) / opt.smp;

	w->pace.rate = opt.rate;
	n = pace_due(&w->pace, BATCH);
	w->working = ws && ws < w->pages ? ws : w->pages;
	for (i = 0; i < n; i++)
		write_page(w, next_page(w));
	return n;
}

/* Shares the region out. */
void pattern_init(void)
{
	uint32_t room, pages, cpu;
	struct writer *w;

	if (opt.start * MIB >= mem_end())
		die("start= is beyond the RAM");
	room = (mem_end() - opt.start * MIB) / PAGE_SIZE;
	low_pages = opt.size * (MIB / PAGE_SIZE);
	if (!low_pages || low_pages > room)
		low_pages = room;
	base = (uint8_t *)(uintptr_t)(opt.start * MIB);
	window = high_window();
	pages = low_pages + opt.high * (MIB / PAGE_SIZE);
	words = opt.fill_bytes / sizeof(uint32_t);
	for (cpu = 0; cpu < opt.smp; cpu++) {
		w = &writers[cpu];
		w->first = pages * cpu / opt.smp;
		w->pages = pages * (cpu + 1) / opt.smp - w->first;
		w->table = mem_alloc(w->pages * sizeof(*w->table));
		memset(w->table, 0, w->pages * sizeof(*w->table));
		w->rnd = cpu + 1;
	}
	print("pattern start=%u size=%u MiB of %u, tables from %x", opt.start,
	      low_pages / (MIB / PAGE_SIZE), mem_end() / MIB, (uintptr_t)writers[0].table);
}

/* On the vCPU whose stretch it is: the register is its own. */
void pattern_start(uint32_t cpu)
{
	struct writer *w = &writers[cpu];
	uint32_t i, fill = opt.touch * (MIB / PAGE_SIZE) / opt.smp;

	mirror_set(0, 0);
	for (i = 0; i < fill && i < w->pages; i++)
		write_page(w, i);
}

void pattern_count(struct pattern_counts *c)
{
	uint32_t cpu;

	*c = (struct pattern_counts){ .least = UINT32_MAX, .sweeps = UINT32_MAX };
	for (cpu = 0; cpu < opt.smp; cpu++) {
		c->writes += writers[cpu].seq;
		c->held += writers[cpu].held;
		c->verified += writers[cpu].verified;
		if (writers[cpu].seq < c->least)
			c->least = writers[cpu].seq;
		if (writers[cpu].sweeps < c->sweeps)
			c->sweeps = writers[cpu].sweeps;
	}
}
