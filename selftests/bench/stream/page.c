// SPDX-License-Identifier: GPL-2.0-only
/*
 * page: what the zero filters and the bitmap scan reach on this CPU, as lines "group/name unit value". Within a group the
 * contestants take turns, and each line is the best of ROUNDS turns: other load here can only make one slower.
 *
 *	zero-cached	pages of zeros that stay in the first level cache, each filter; "godwit" is the one it chooses
 *	zero-memory	pages of zeros from memory, the same; "read" adds the words up
 *	bitmap-empty	384 MiB without a bit, godwit's scan; "read" adds the words up
 *	bitmap-random	1 % of its bits set, all over; godwit's runs, and bit by bit
 *	bitmap-words	1 % of its words set
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "page/page.h"

#define ROUNDS		5
#define CACHED_BYTES	(16ul << 10)
#define MAP_BYTES	(384ul << 20)
#define MAP_BITS	(MAP_BYTES * 8)

static uint8_t *memory;

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void say(const char *group, const char *name, const char *unit, double value)
{
	printf("%s/%s %s %.3f\n", group, name, unit, value);
}

/* GiB/s of a filter that goes over so many bytes, as often as makes MAP_BYTES. */
static double filter(const struct zero_filter *f, size_t bytes)
{
	double t = seconds();

	for (size_t done = 0; done < MAP_BYTES; done += bytes)
		for (size_t at = 0; at < bytes; at += PAGE_BYTES)
			if (!f->is_zero(memory + at))
				abort();
	return MAP_BYTES / (seconds() - t) / (1 << 30);
}

/* The plainest way to have read all of it; gcc makes it as wide as the CPU allows. */
__attribute__((target("avx2"), optimize("O3"))) static double read_all(void)
{
	const uint64_t *w = (const uint64_t *)memory;
	double t = seconds();
	uint64_t sum = 0;

	for (size_t i = 0; i < MAP_BYTES / sizeof(*w); i++)
		sum += w[i];
	__asm__ volatile("" : : "r"(sum));
	return MAP_BYTES / (seconds() - t) / (1 << 30);
}

static void bench_filters(const char *group, size_t bytes)
{
	double best[16] = { 0 }, read = 0, speed;

	for (unsigned int round = 0; round < ROUNDS; round++) {
		for (unsigned int i = 0; i < zero_filters_count; i++) {
			if (!zero_filters[i].supported())
				continue;
			speed = filter(&zero_filters[i], bytes);
			best[i] = speed > best[i] ? speed : best[i];
		}
		speed = read_all();
		read = speed > read ? speed : read;
	}
	for (unsigned int i = 0; i < zero_filters_count; i++)
		if (zero_filters[i].supported())
			say(group, &zero_filters[i] == zero_filter_best() ? "godwit" : zero_filters[i].name, "GiB/s", best[i]);
	if (bytes == MAP_BYTES)
		say(group, "read", "GiB/s", read);
}

/* Both add the runs up, so that they can be compared and neither is left out by the compiler. */
static uint64_t by_runs(const uint64_t *map)
{
	struct bitmap_runs it = { .map = map, .nbits = MAP_BITS };
	uint64_t sum = 0, from = 0;
	struct run run;

	while (bitmap_runs_next(&it, from, &run)) {
		sum += run.first ^ run.count;
		from = run.first + run.count;
	}
	return sum;
}

static uint64_t by_bits(const uint64_t *map)
{
	uint64_t sum = 0, first = 0;
	bool in_run = false;

	for (uint64_t n = 0; n < MAP_BITS; n++) {
		bool set = map[n / 64] >> (n % 64) & 1;

		if (set && !in_run)
			first = n;
		else if (!set && in_run)
			sum += first ^ (n - first);
		in_run = set;
	}
	return in_run ? sum + (first ^ (MAP_BITS - first)) : sum;
}

static double timed(uint64_t (*scan)(const uint64_t *map), uint64_t *sum)
{
	double t = seconds();

	*sum = scan((const uint64_t *)memory);
	return (seconds() - t) * 1000;
}

static void bench_scan(const char *group)
{
	double runs = 1e9, bits = 1e9, ms;
	uint64_t sum, model;

	for (unsigned int round = 0; round < ROUNDS; round++) {
		ms = timed(by_runs, &sum);
		runs = ms < runs ? ms : runs;
		ms = timed(by_bits, &model);
		bits = ms < bits ? ms : bits;
		if (sum != model) {
			fprintf(stderr, "%s: the scan found other runs than bit by bit\n", group);
			exit(1);
		}
	}
	say(group, "godwit", "ms", runs);
	say(group, "bit by bit", "ms", bits);
}

static void bench_empty(void)
{
	double scan = 0, read = 0, speed, ms;
	uint64_t sum;

	for (unsigned int round = 0; round < ROUNDS; round++) {
		ms = timed(by_runs, &sum);
		speed = MAP_BYTES / (ms / 1000) / (1 << 30);
		scan = speed > scan ? speed : scan;
		speed = read_all();
		read = speed > read ? speed : read;
	}
	say("bitmap-empty", "godwit", "GiB/s", scan);
	say("bitmap-empty", "read", "GiB/s", read);
}

int main(void)
{
	uint64_t *map;

	memory = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED) {
		perror("page: 384 MiB");
		return 1;
	}
	map = (uint64_t *)memory;
	bench_filters("zero-cached", CACHED_BYTES);
	bench_filters("zero-memory", MAP_BYTES);
	bench_empty();
	srandom(1);
	for (uint64_t n = 0; n < MAP_BITS / 100; n++) {
		uint64_t at = ((uint64_t)random() << 31 | (uint64_t)random()) % MAP_BITS;

		map[at / 64] |= UINT64_C(1) << (at % 64);
	}
	bench_scan("bitmap-random");
	memset(memory, 0, MAP_BYTES);
	for (uint64_t n = 0; n < MAP_BITS / 64 / 100; n++)
		map[(((uint64_t)random() << 31) | (uint64_t)random()) % (MAP_BITS / 64)] = UINT64_MAX;
	bench_scan("bitmap-words");
	return 0;
}
