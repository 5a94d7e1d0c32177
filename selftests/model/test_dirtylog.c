// SPDX-License-Identifier: GPL-2.0-only
/*
 * kmod/ledger/dirtylog.c itself, over a KVM whose bits come late (kvm_sim.h): whatever the seed, a copy that takes
 * what harvests report, each page after CLEAR, is equal to memory when the vCPUs have stopped and a last
 * harvest has been taken. If KVM or the helper does not keep its part of the argument in kmod/harvest.c, it
 * is not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "kvm_sim.h"

#define SEEDS		2500
#define LARGE_SEEDS	3
#define ROUNDS		5

static const char * const names[SIM_VARIANTS] = {
	[SIM_NO_FLUSH] = "CLEAR does not flush TLBs",
	[SIM_NO_REARM] = "CLEAR does not arm again what it takes",
	[SIM_BUFFER_LOST] = "a full buffer is lost",
	[SIM_HARVEST_EARLY] = "the last harvest is taken before buffers are empty",
	[SIM_READ_EARLY] = "pages are read before CLEAR",
};

struct helper {
	struct sim sim;
	u32 *copy;
};

/* Takes the marked pages of a range. */
static void read_pages(struct helper *h, u64 first, u64 end)
{
	unsigned long *marked = h->sim.ram.dirty;
	u64 i;

	for (i = first; i < end; i++) {
		unsigned long bit = 1UL << i % BITS_PER_LONG;

		if (!(marked[i / BITS_PER_LONG] & bit))
			continue;
		marked[i / BITS_PER_LONG] &= ~bit;
		sim_step();
		h->copy[i] = h->sim.memory[i];
	}
}

/* Reads, and leaves the marks to a CLEAR that comes too late. */
static void read_early(struct helper *h, u64 first, u64 end)
{
	u64 i;

	for (i = first; i < end; i++)
		if (h->sim.ram.dirty[i / BITS_PER_LONG] >> i % BITS_PER_LONG & 1)
			h->copy[i] = h->sim.memory[i];
	sim_step();
}

static void clear(struct helper *h, u64 first, u64 npages)
{
	const struct godwit_range a = { .first_page = first, .npages = npages };
	struct godwit_scratch sc = {};

	assert_int_equal(0, godwit_dirtylog_clear(&h->sim.session, &sc, &a));
}

static void forget(struct helper *h, u64 first, u64 end)
{
	for (; first < end; first++)
		h->sim.ram.dirty[first / BITS_PER_LONG] &= ~(1UL << first % BITS_PER_LONG);
}

/* Chunk by chunk, as `godwit send`: CLEAR, then read. One in skip chunks stays for later. */
static void take_round(struct helper *h, u64 chunk, u64 skip)
{
	u64 at, npages;

	for (at = 0; at < h->sim.ram_pages; at += npages) {
		npages = min(1 + sim_pick(&h->sim, chunk), h->sim.ram_pages - at);
		if (skip && !sim_pick(&h->sim, skip))
			continue;
		if (h->sim.variant == SIM_READ_EARLY) {
			read_early(h, at, at + npages);
			clear(h, at, npages);
			forget(h, at, at + npages);
		} else {
			clear(h, at, npages);
			sim_step();
			read_pages(h, at, at + npages);
		}
	}
}

static void harvest(struct helper *h)
{
	u64 pages = 0;

	assert_int_equal(0, godwit_dirtylog_harvest(&h->sim.session, &pages));
	assert_in_range(pages, 0, 2 * h->sim.ram_pages);
}

static u64 differs(const struct helper *h)
{
	u64 i, n = 0;

	for (i = 0; i < h->sim.ram_pages; i++)
		n += h->copy[i] != h->sim.memory[i];
	return n;
}

/* Pages that differ at the end. */
static u64 migrate(u64 seed, enum sim_variant variant, bool large)
{
	struct helper h;
	unsigned int i;
	u64 lost, chunk;

	sim_begin(&h.sim, seed, variant, large);
	h.copy = calloc(h.sim.ram_pages, sizeof(*h.copy));
	assert_non_null(h.copy);
	chunk = large ? h.sim.ram_pages : 1 + sim_pick(&h.sim, 400);
	take_round(&h, chunk, large ? 0 : 3);
	for (i = 0; i < ROUNDS; i++) {
		harvest(&h);
		take_round(&h, chunk, i % 2 ? 0 : 3);
	}
	sim_stop(&h.sim);
	harvest(&h);
	sim_drain(&h.sim);
	read_pages(&h, 0, h.sim.ram_pages);
	lost = differs(&h);
	free(h.copy);
	sim_end(&h.sim);
	return lost;
}

static void nothing_is_lost(enum sim_variant variant)
{
	u64 seed, lost;

	for (seed = 1; seed <= SEEDS; seed++) {
		lost = migrate(seed, variant, false);
		if (lost)
			fail_msg("seed %lu: %lu pages differ", (long)seed, (long)lost);
	}
}

static void a_log_that_comes_late(void **state)
{
	(void)state;
	nothing_is_lost(SIM_RIGHT);
}

/* A page that stays in a buffer is reported later: an exit before the last harvest is all that it needs. */
static void clear_need_not_empty_buffers(void **state)
{
	(void)state;
	nothing_is_lost(SIM_NO_KICK);
}

/* Clearings are cut as dirtylog.c says, and harvests let others run in between. */
static void a_guest_of_18_gib(void **state)
{
	u64 seed;

	(void)state;
	for (seed = 1; seed <= LARGE_SEEDS; seed++)
		assert_int_equal(0, migrate(seed, SIM_RIGHT, true));
}

/* The test must notice each of them, and not only by luck. */
static void what_is_broken_is_noticed(void **state)
{
	enum sim_variant variant;

	(void)state;
	for (variant = SIM_NO_FLUSH; variant < SIM_VARIANTS; variant++) {
		unsigned int seed, noticed = 0;

		for (seed = 1; seed <= SEEDS / 5; seed++)
			noticed += !!migrate(seed, variant, false);
		print_message("%s: noticed with %u of %u seeds\n", names[variant], noticed,
			      SEEDS / 5);
		assert_in_range(noticed, 10, SEEDS / 5);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_log_that_comes_late),
		cmocka_unit_test(clear_need_not_empty_buffers),
		cmocka_unit_test(a_guest_of_18_gib),
		cmocka_unit_test(what_is_broken_is_noticed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
