/* SPDX-License-Identifier: GPL-2.0-only */
/* Memory that ends at pages which may not be touched, and what fills it at random. Include after cmocka.h. */
#ifndef GODWIT_PAGE_ARENA_H
#define GODWIT_PAGE_ARENA_H

#include <string.h>
#include <sys/mman.h>

#include "page/page.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define ARENA_PAGES	4

/* splitmix64: the same maps in every run. */
static uint64_t seed;

static uint64_t rnd(void)
{
	uint64_t z = seed += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

/* ARENA_PAGES pages between two that cannot be touched. */
static uint8_t *arena;

static int map_arena(void **state)
{
	const size_t len = ARENA_PAGES * PAGE_BYTES;
	uint8_t *p = mmap(NULL, len + 2 * PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	if (p == MAP_FAILED || mprotect(p + PAGE_BYTES, len, PROT_READ | PROT_WRITE))
		return -1;
	arena = p + PAGE_BYTES;
	return 0;
}

#endif
