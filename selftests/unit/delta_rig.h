/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * RAM that changes as guests change it, and streams with hashes of what was sent. Include after cmocka.h; defines thp_map().
 */
#ifndef GODWIT_DELTA_RIG_H
#define GODWIT_DELTA_RIG_H

#include "each_engine.h"
#include "peer/hello.h"
#include "ram_rig.h"
#include "ram/thp.h"

#define ROOM	(64u << 20)

/*
 * Which ends map their RAM. TSan sees that two threads of the receiver write a page, in rounds of which the second came after
 * the ACK of the first, and not that a socket has put them in order: it gets no mapping there.
 */
static bool map_here, map_there;

#ifdef __SANITIZE_THREAD__
#define MAPS_THERE	1u
#else
#define MAPS_THERE	2u
#endif

void *thp_map(const struct ram_block *b, int prot)
{
	bool map = prot & PROT_WRITE ? map_there : map_here;
	void *base = map ? mmap(NULL, b->pages * PAGE_BYTES, prot, MAP_SHARED, b->fd, 0) : NULL;

	assert_ptr_not_equal(base, MAP_FAILED);
	return base;
}

static inline void choose(struct rig *rig, const char *compress)
{
	struct codec_wish wish;
	struct err e = { 0 };

	assert_int_equal(codec_parse(compress, &wish, &e), 0);
	atomic_store(&rig->compress, codec_wish_word(&wish));
}

static inline struct rig *delta_rig(const char *compress, uint64_t memory)
{
	static const uint64_t pages = PAGES;
	struct rig *rig = rig_new();

	rig->features = HELLO_FEATURES;
	choose(rig, compress);
	rig->delta = delta_new(&pages, 1, memory);
	assert_non_null(rig->delta);
	return rig;
}

static inline void wrote(struct rig *rig, uint64_t page)
{
	rig->log[page] = true;
	bitmap_set(rig->source.map[0], page, 1);
}

static inline void fill(struct rig *rig, uint64_t page, uint32_t *seed, bool random)
{
	uint32_t *p = (uint32_t *)(rig->ram + page * PAGE_BYTES);

	for (unsigned int i = 0; i < PAGE_BYTES / 4; i++)
		p[i] = random ? next_random(seed) : (uint32_t)(page * 977 + i * i);
	wrote(rig, page);
}

/* What guests do to a page: some bytes, all of it, nothing, zeros, one byte. */
static inline void change(struct rig *rig, uint64_t page, uint32_t *seed)
{
	uint8_t *p = rig->ram + page * PAGE_BYTES;
	uint32_t what = next_random(seed) % 16;

	if (what < 9)
		for (uint32_t n = next_random(seed) % 4 + 1; n; n--)
			p[next_random(seed) % PAGE_BYTES] ^= (uint8_t)(1 + next_random(seed) % 255);
	else if (what < 11)
		fill(rig, page, seed, what == 9);
	else if (what == 11)
		memset(p, 0, PAGE_BYTES);
	else if (what == 12)
		memset(p, 0xcc, PAGE_BYTES);
	else if (what == 13)
		memset(p + 1000, 0, 2000);
	wrote(rig, page);
}

static inline void change_some(struct rig *rig, unsigned int n, uint32_t *seed)
{
	uint64_t base = next_random(seed) % (PAGES - 1024);

	for (unsigned int i = 0; i < n; i++)
		change(rig, base + next_random(seed) % 1024, seed);
}

static inline void begin(struct rig *rig, unsigned int streams, uint32_t *seed)
{
	rig_connect(rig, engine, engine, streams, 4096);
	for (uint64_t page = 0; page < PAGES; page++)
		fill(rig, page, seed, page % 3);
	rig_round(rig, ROUND_PRECOPY);
	assert_int_equal(rig->count.delta_pages, 0);
}

static inline void the_rest(struct rig *rig)
{
	rig_round(rig, ROUND_LAST);
	rig_assert_equal(rig);
	receive_streams_stop(rig->receiving);
	assert_false(atomic_load(receive_streams_failed(rig->receiving)));
}

#endif
