// SPDX-License-Identifier: GPL-2.0-only
/*
 * Writes pages and checks them, for ever.
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

static uint8_t *base;
static uint32_t *table;
static uint32_t pages, working, words;
static uint32_t cursor, verify_cursor, rnd = 1;
static uint32_t seq, sum, held, verified, sweeps;

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

static void check_mirror(void)
{
	uint64_t m = mirror_get();

	if (m == ((uint64_t)sum << 32 | seq))
		return;
	report("RAM and vCPU differ: write %u sum %x in RAM, write %u sum %x in XMM0",
	       seq, sum, (uint32_t)m, (uint32_t)(m >> 32));
	mirror_set(seq, sum);
}

static void *page_at(uint32_t page)
{
	return base + (size_t)page * PAGE_SIZE;
}

static void write_page(uint32_t page)
{
	uint32_t n = (seq + 1) & ~ZERO_FLAG;
	uint32_t entry = n;

	if (opt.zeros && n % opt.zeros == 0) {
		entry |= ZERO_FLAG;
		memset(page_at(page), 0, PAGE_SIZE);
	} else {
		content_fill(page_at(page), words, CONTENT_PAGE, page, n);
	}
	held += !table[page];
	check_mirror();
	sum += entry - table[page];
	table[page] = entry;
	seq = n;
	mirror_set(seq, sum);
}

static uint32_t next_page(void)
{
	if (opt.random) {
		rnd = content_step(rnd);
		return rnd % working;
	}
	if (cursor >= working)
		cursor = 0;
	return cursor++;
}

static void verify_page(uint32_t page)
{
	uint32_t entry = table[page], n = entry & ~ZERO_FLAG, *w = page_at(page), i;
	int bad;

	if (!entry)
		return;
	verified++;
	if (entry & ZERO_FLAG) {
		for (i = 0; i < PAGE_SIZE / sizeof(*w); i++) {
			if (!w[i])
				continue;
			report("page %u at %x: word %u is %x, write %u cleared it",
			       page, (uintptr_t)w, i, w[i], n);
			return;
		}
		return;
	}
	bad = content_check(w, words, CONTENT_PAGE, page, n);
	if (bad >= 0)
		report("page %u at %x: word %u is %x, not of write %u (header says %u of page %u), %u words are wrong",
		       page, (uintptr_t)w, (uint32_t)bad, w[bad], n, w[2], w[1],
		       content_wrong(w, words, CONTENT_PAGE, page, n));
}

void pattern_verify(uint32_t n)
{
	uint32_t skip = BATCH;

	while (n && skip) {
		if (!table[verify_cursor])
			skip--;
		else
			n--;
		verify_page(verify_cursor);
		if (++verify_cursor == pages) {
			verify_cursor = 0;
			sweeps++;
		}
	}
}

void pattern_check_sum(void)
{
	uint32_t i, s;

	check_mirror();
	for (i = 0, s = 0; i < pages; i++)
		s += table[i];
	if (s != sum)
		report("the table of expected writes sums up to %x, not %x", s, sum);
}

/* Reads the holes, which fills them: for the end of a test. */
void pattern_check_unwritten(void)
{
	uint32_t page, i, *w;

	for (page = 0; page < pages; page++) {
		if (table[page])
			continue;
		w = page_at(page);
		for (i = 0; i < PAGE_SIZE / sizeof(*w) && !w[i]; i++)
			;
		if (i < PAGE_SIZE / sizeof(*w))
			report("page %u at %x: word %u is %x, nobody wrote it",
			       page, (uintptr_t)w, i, w[i]);
	}
}

bool pattern_poll(void)
{
	uint32_t n = pace_due(&opt.write, BATCH), i;

	working = opt.ws && opt.ws * (MIB / PAGE_SIZE) < pages ?
		  opt.ws * (MIB / PAGE_SIZE) : pages;
	for (i = 0; i < n; i++)
		write_page(next_page());
	return n;
}

void pattern_init(void)
{
	uint32_t room, i, fill;

	if (opt.start * MIB >= mem_end())
		die("start= is beyond the RAM");
	room = (mem_end() - opt.start * MIB) / PAGE_SIZE;
	pages = opt.size * (MIB / PAGE_SIZE);
	if (!pages || pages > room)
		pages = room;
	base = (uint8_t *)(uintptr_t)(opt.start * MIB);
	words = opt.fill_bytes / sizeof(uint32_t);
	table = mem_alloc(pages * sizeof(*table));
	memset(table, 0, pages * sizeof(*table));
	mirror_set(0, 0);

	print("pattern start=%u size=%u MiB of %u, tables from %x", opt.start,
	      pages / (MIB / PAGE_SIZE), mem_end() / MIB, (uintptr_t)table);
	fill = opt.touch * (MIB / PAGE_SIZE);
	for (i = 0; i < fill && i < pages; i++)
		write_page(i);
}

uint32_t pattern_writes(void)
{
	return seq;
}

uint32_t pattern_held(void)
{
	return held;
}

uint32_t pattern_verified(void)
{
	return verified;
}

uint32_t pattern_sweeps(void)
{
	return sweeps;
}
