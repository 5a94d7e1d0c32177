// SPDX-License-Identifier: GPL-2.0-only
/*
 * The vCPU row to the page: what is reported after vCPUs have written the round's number into pages picked at random,
 * against a model of the contract. Harvests, CLEAR of random ranges, and a helper that takes only some of its bits,
 * cleared or not, follow one another at random. The rest of the ledger is off: reclaim or page migration of this host
 * may count pages that were not written.
 */
#include "kst.h"
#include "layout.h"
#include "model.h"

#define ROUNDS	24

FIXTURE(exact) {
	struct stage stage;
	struct model model;
};

FIXTURE_VARIANT(exact) {
	unsigned int layout;	/* LAYOUTS: random */
	unsigned int manual;	/* KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2 */
	unsigned int vcpus;
};

FIXTURE_VARIANT_ADD(exact, one_manual3_vcpus1) { .layout = LAYOUT_ONE, .manual = 3, .vcpus = 1 };
FIXTURE_VARIANT_ADD(exact, one_manual1_vcpus2) { .layout = LAYOUT_ONE, .manual = 1, .vcpus = 2 };
FIXTURE_VARIANT_ADD(exact, one_manual0_vcpus3) { .layout = LAYOUT_ONE, .manual = 0, .vcpus = 3 };
FIXTURE_VARIANT_ADD(exact, unaligned_manual3_vcpus4) { .layout = LAYOUT_UNALIGNED, .manual = 3, .vcpus = 4 };
FIXTURE_VARIANT_ADD(exact, unaligned_manual1_vcpus1) { .layout = LAYOUT_UNALIGNED, .manual = 1, .vcpus = 1 };
FIXTURE_VARIANT_ADD(exact, unaligned_manual0_vcpus2) { .layout = LAYOUT_UNALIGNED, .manual = 0, .vcpus = 2 };
FIXTURE_VARIANT_ADD(exact, shuffled_manual3_vcpus3) { .layout = LAYOUT_SHUFFLED, .manual = 3, .vcpus = 3 };
FIXTURE_VARIANT_ADD(exact, shuffled_manual0_vcpus4) { .layout = LAYOUT_SHUFFLED, .manual = 0, .vcpus = 4 };
FIXTURE_VARIANT_ADD(exact, two_rams_manual3_vcpus2) { .layout = LAYOUT_TWO_RAMS, .manual = 3, .vcpus = 2 };
FIXTURE_VARIANT_ADD(exact, two_rams_manual1_vcpus3) { .layout = LAYOUT_TWO_RAMS, .manual = 1, .vcpus = 3 };
FIXTURE_VARIANT_ADD(exact, alias_manual3_vcpus4) { .layout = LAYOUT_ALIAS, .manual = 3, .vcpus = 4 };
FIXTURE_VARIANT_ADD(exact, alias_manual1_vcpus1) { .layout = LAYOUT_ALIAS, .manual = 1, .vcpus = 1 };
FIXTURE_VARIANT_ADD(exact, alias_manual0_vcpus2) { .layout = LAYOUT_ALIAS, .manual = 0, .vcpus = 2 };
FIXTURE_VARIANT_ADD(exact, random_manual3_vcpus3) { .layout = LAYOUTS, .manual = 3, .vcpus = 3 };
FIXTURE_VARIANT_ADD(exact, random_manual1_vcpus4) { .layout = LAYOUTS, .manual = 1, .vcpus = 4 };
FIXTURE_VARIANT_ADD(exact, random_manual0_vcpus1) { .layout = LAYOUTS, .manual = 0, .vcpus = 1 };

FIXTURE_SETUP(exact)
{
	struct stage *st = &self->stage;

	stage_open(st, variant->layout, variant->manual, variant->vcpus);
	model_init(&self->model, st->entries, layout_entries(&st->layout));
	rows_on(1 << GODWIT_ROW_VCPU);
	stage_begin(st);
}

FIXTURE_TEARDOWN(exact)
{
	stage_close(&self->stage);
	model_free(&self->model);
}

static uint32_t pick(struct _test_data_exact *self, uint32_t below)
{
	return guest_pick(&self->stage.seed, below);
}

static void write_round(struct _test_data_exact *self, uint32_t round)
{
	unsigned int n;

	for (n = 0; n < self->stage.vm.nr_vcpus; n++) {
		uint32_t seed = pick(self, UINT32_MAX), count = 1 + pick(self, 100);

		vcpu_batch(&self->stage.vm, n, seed, round, count);
		model_batch(&self->model, n, seed, round, count);
	}
}

static void clear_some(struct _test_data_exact *self)
{
	unsigned int ram = pick(self, self->stage.layout.nr_rams);
	uint64_t first = pick(self, self->stage.layout.ram_pages);
	uint64_t npages = pick(self, self->stage.layout.ram_pages - first + 1);

	require(!session_clear(&self->stage.s, ram, first, npages), "GODWIT_CLEAR");
	model_clear(&self->model, ram, first, npages);
}

/* One in how_many of the bits stays. */
static void take(struct _test_data_exact *self, uint32_t how_many)
{
	unsigned int ram;
	uint64_t page;

	for (ram = 0; ram < self->stage.layout.nr_rams; ram++) {
		for (page = 0; page < self->stage.layout.ram_pages; page++) {
			if (!bit_set(&self->stage.s.ram[ram], page) || (how_many && !pick(self, how_many)))
				continue;
			bit_take(&self->stage.s.ram[ram], page);
			model_take(&self->model, ram, page);
		}
	}
}

TEST_F(exact, none_missed_none_invented)
{
	uint64_t missed, invented, found;
	struct godwit_harvest h;
	uint32_t round, n;

	session_settle(&self->stage.s);
	for (round = 1; round <= ROUNDS; round++) {
		write_round(self, round);
		for (n = pick(self, 3); n; n--)
			clear_some(self);
		found = model_harvest(&self->model);
		ASSERT_EQ(0, session_harvest(&self->stage.s, &h));
		model_check_guest(&self->model, &self->stage);
		model_compare(&self->model, &self->stage, &missed, &invented);
		PROOF(ASSERT_EQ(0, missed));
		PROOF(ASSERT_EQ(0, invented));
		PROOF(EXPECT_EQ(found, h.pages[GODWIT_ROW_VCPU]));
		PROOF(EXPECT_EQ(0, h.pages[GODWIT_ROW_CHANGE]));
		EXPECT_EQ(round + 1, h.generation);
		for (n = pick(self, 4); n; n--)
			clear_some(self);
		take(self, pick(self, 2) ? 4 : 0);
	}
}

/* START: every page counts as written, whatever was written before. */
TEST_F(exact, all_at_start)
{
	unsigned int ram;

	for (ram = 0; ram < self->stage.layout.nr_rams; ram++)
		PROOF(EXPECT_EQ(self->stage.layout.ram_pages, bits_count(&self->stage.s.ram[ram])));
}

KST_MAIN
