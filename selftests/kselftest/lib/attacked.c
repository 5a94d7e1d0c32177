// SPDX-License-Identifier: GPL-2.0-only
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "attacked.h"
#include "host.h"

#define WRITERS		2
#define STOPS		2
#define HARVESTS	4

volatile uint64_t *attacked_word(const struct attacked *a, uint64_t page)
{
	return (volatile uint64_t *)(a->ram->map + page * PAGE);
}

uint64_t draw(uint64_t *seed)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed;
}

static void park(struct attacked *a)
{
	if (!a->hold)
		return;
	a->parked++;
	while (a->hold)
		usleep(200);
	a->parked--;
}

/* mprotect, or a page on its way: again. */
static void on_fault(int sig)
{
	(void)sig;
	sched_yield();
}

static void check(struct attacked *a, uint64_t page, uint64_t is)
{
	if (a->stored[page] == UNKNOWN || is == a->stored[page])
		return;
	if (a->lost++ < 3)
		fprintf(stderr, "# page %lu: %lu is there, %lu was stored\n", page, is,
			a->stored[page]);
}

struct writer {
	struct attacked *a;
	uint64_t id;
	pthread_t thread;
};

/* Mostly in few pages, whose translations are hot. */
static void *write_thread(void *arg)
{
	const struct writer *w = arg;
	struct attacked *a = w->a;
	uint64_t seed = 88172645463325252ULL + w->id * 7919, own = a->zone / WRITERS, i, page;
	volatile uint64_t *word;

	while (!a->stop) {
		i = draw(&seed) % 8 ? draw(&seed) % 48 * 7 : draw(&seed);
		page = i % own * WRITERS + w->id;
		word = attacked_word(a, page);
		park(a);
		check(a, page, *word);
		a->stored[page] = a->values ? (*word + 1) % a->values : *word + 1;
		*word = a->stored[page];
		if (a->values)
			usleep(200);
	}
	return NULL;
}

static void *attack_thread(void *arg)
{
	uint64_t seed = 0x9e3779b97f4a7c15ULL;
	struct attacked *a = arg;

	while (!a->stop) {
		park(a);
		a->attack(a, &seed);
		a->attacks++;
	}
	return NULL;
}

/* All threads are parked. */
static void stand_still(struct attacked *a)
{
	uint64_t end = now_ms() + 60000;

	a->hold = 1;
	while (a->parked < WRITERS + 1) {
		require(now_ms() < end, "threads that stand still");
		usleep(200);
	}
}

static void check_all(struct attacked *a)
{
	uint64_t page;

	for (page = 0; page < a->pages; page++)
		check(a, page, *attacked_word(a, page));
}

static bool goes_on(const struct attacked *a, unsigned int stops, uint64_t end)
{
	return stops < STOPS || (a->met && !a->met(a) && now_ms() < end);
}

/* Returns how many pages were missed. */
static uint64_t migrate(struct attacked *a)
{
	uint64_t missed = 0, end = now_ms() + 60000;
	unsigned int i, n;

	for (n = 0; goes_on(a, n, end); n++) {
		for (i = 0; i < HARVESTS; i++) {
			priv_round(a->ram, true);
			sleep_ms(3);
		}
		stand_still(a);
		priv_round(a->ram, true);
		missed += priv_differs(a->ram);
		check_all(a);
		a->hold = 0;
		while (a->parked)
			usleep(100);
	}
	return missed;
}

uint64_t attacked_migrate(struct attacked *a)
{
	struct writer writers[WRITERS];
	pthread_t attacker;
	uint64_t missed, i;

	for (i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){ .a = a, .id = i };
		require(!pthread_create(&writers[i].thread, NULL, write_thread, &writers[i]),
			"pthread_create");
	}
	require(!pthread_create(&attacker, NULL, attack_thread, a), "pthread_create");
	missed = migrate(a);
	a->stop = 1;
	for (i = 0; i < WRITERS; i++)
		pthread_join(writers[i].thread, NULL);
	pthread_join(attacker, NULL);
	fprintf(stderr, "# %lu attacks, %lu pages missed, %lu stores lost\n", a->attacks, missed,
		a->lost);
	return missed + a->lost;
}

static void first_stores(struct attacked *a)
{
	uint64_t i;

	for (i = 0; i < a->pages; i++) {
		if (a->ram->kind == PRIV_FILE && i % 2 == 0)
			a->stored[i] = i * PAGE;
		if (i < a->pages / 10 || i % 3 == 0)
			a->stored[i] = *attacked_word(a, i) = a->values ? 1 : i + 1;
	}
}

void attacked_init(struct attacked *a, struct priv *ram, uint64_t values)
{
	signal(SIGSEGV, on_fault);
	a->ram = ram;
	a->pages = ram->bytes / PAGE;
	a->unit = ram->kind == PRIV_2M ? 512 : 1;
	a->zone = a->pages / 4 * 3;
	a->values = values;
	a->stored = calloc(a->pages, sizeof(*a->stored));
	require(a->stored, "calloc");
	first_stores(a);
}

void attacked_free(struct attacked *a)
{
	free(a->stored);
}
