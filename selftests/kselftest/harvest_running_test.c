// SPDX-License-Identifier: GPL-2.0-only
/*
 * Harvests while vCPUs write: after the last one, with the vCPUs stopped, a copy that took only what was reported must
 * be equal to the RAM file. Each is taken as `godwit send` does: chunk by chunk, CLEAR and then read, some of them later.
 */
#include "kst.h"
#include "layout.h"

#define HARVESTS	6
#define STOPS		2

FIXTURE(running) {
	struct stage stage;
	struct shadow shadow[LAYOUT_RAMS_MAX];
};

FIXTURE_VARIANT(running) {
	unsigned int layout;	/* LAYOUTS: random */
	unsigned int manual;
	unsigned int vcpus;
};

FIXTURE_VARIANT_ADD(running, one_manual3_vcpus1) { .layout = LAYOUT_ONE, .manual = 3, .vcpus = 1 };
FIXTURE_VARIANT_ADD(running, unaligned_manual3_vcpus2) { .layout = LAYOUT_UNALIGNED, .manual = 3, .vcpus = 2 };
FIXTURE_VARIANT_ADD(running, shuffled_manual1_vcpus3) { .layout = LAYOUT_SHUFFLED, .manual = 1, .vcpus = 3 };
FIXTURE_VARIANT_ADD(running, two_rams_manual0_vcpus4) { .layout = LAYOUT_TWO_RAMS, .manual = 0, .vcpus = 4 };
FIXTURE_VARIANT_ADD(running, alias_manual3_vcpus2) { .layout = LAYOUT_ALIAS, .manual = 3, .vcpus = 2 };
FIXTURE_VARIANT_ADD(running, random_manual3_vcpus4) { .layout = LAYOUTS, .manual = 3, .vcpus = 4 };

FIXTURE_SETUP(running)
{
	struct stage *st = &self->stage;
	unsigned int i;

	stage_open(st, variant->layout, variant->manual, variant->vcpus);
	for (i = 0; i < st->layout.nr_rams; i++)
		shadow_init(&self->shadow[i], &st->ram[i], st->ram[i].bytes);
	stage_begin(st);
}

FIXTURE_TEARDOWN(running)
{
	unsigned int i;

	for (i = 0; i < self->stage.layout.nr_rams; i++)
		shadow_free(&self->shadow[i]);
	stage_close(&self->stage);
}

static void start_vcpus(struct _test_data_running *self)
{
	unsigned int n;

	for (n = 0; n < self->stage.vm.nr_vcpus; n++)
		vcpu_start(&self->stage.vm, n, guest_pick(&self->stage.seed, UINT32_MAX));
}

static void stop_vcpus(struct _test_data_running *self)
{
	unsigned int n;

	for (n = 0; n < self->stage.vm.nr_vcpus; n++)
		vcpu_stop(&self->stage.vm, n);
}

/* One in skip chunks is left as it is; 0: none is. */
static void take_chunks(struct _test_data_running *self, unsigned int ram, uint32_t skip)
{
	uint64_t at, npages;

	for (at = 0; at < self->stage.layout.ram_pages; at += npages) {
		npages = 1 + guest_pick(&self->stage.seed, 500);
		if (npages > self->stage.layout.ram_pages - at)
			npages = self->stage.layout.ram_pages - at;
		if (skip && !guest_pick(&self->stage.seed, skip))
			continue;
		require(!session_clear(&self->stage.s, ram, at, npages), "GODWIT_CLEAR");
		shadow_take_range(&self->shadow[ram], &self->stage.s.ram[ram], at, npages);
	}
}

/* The chunks of the second time are others: words that were cleared in part are cleared again. */
static void take_all(struct _test_data_running *self)
{
	unsigned int i;

	for (i = 0; i < self->stage.layout.nr_rams; i++) {
		take_chunks(self, i, 3);
		take_chunks(self, i, 0);
	}
}

static void last_harvest(struct _test_data_running *self)
{
	unsigned int i;

	require(!session_harvest(&self->stage.s, NULL), "GODWIT_HARVEST");
	for (i = 0; i < self->stage.layout.nr_rams; i++)
		shadow_take(&self->shadow[i], &self->stage.s.ram[i]);
}

static uint64_t differs(struct _test_data_running *self)
{
	uint64_t n = 0;
	unsigned int i;

	for (i = 0; i < self->stage.layout.nr_rams; i++)
		n += shadow_differs(&self->shadow[i]);
	return n;
}

/* Enough for pages that are written twice, the second time without a fault, before and behind a harvest. */
static void wait_for_writes(struct _test_data_running *self)
{
	unsigned int n;

	for (n = 0; n < self->stage.vm.nr_vcpus; n++)
		vcpu_wait(&self->stage.vm, n, self->stage.layout.ram_pages / 4);
}

static void rounds(struct _test_data_running *self)
{
	unsigned int i;

	for (i = 0; i < HARVESTS; i++) {
		wait_for_writes(self);
		require(!session_harvest(&self->stage.s, NULL), "GODWIT_HARVEST");
		take_all(self);
	}
	wait_for_writes(self);
	stop_vcpus(self);
	last_harvest(self);
}

TEST_F(running, equal_at_every_stop)
{
	unsigned int stop;

	start_vcpus(self);
	take_all(self);
	for (stop = 0; stop < STOPS; stop++) {
		rounds(self);
		PROOF(ASSERT_EQ(0, differs(self)));
		start_vcpus(self);
	}
	stop_vcpus(self);
}

/* The proof must notice that the vCPU row is off. */
TEST_F(running, row_off_is_noticed)
{
	rows_on(ALL_ROWS & ~(1 << GODWIT_ROW_VCPU));
	start_vcpus(self);
	take_all(self);
	rounds(self);
	EXPECT_NE(0, differs(self));
}

KST_MAIN
