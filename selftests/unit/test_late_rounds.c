// SPDX-License-Identifier: GPL-2.0-only
/* Rounds between `migrate` and the guest's stop: when there are some, what of it they send, and that the rest is not lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <pthread.h>
#include <cmocka.h>

#include "late_scene.h"
#include "ram/thp.h"

/* In place of the library's own, which asks the kernel: is the RAM on a tmpfs with huge pages? */
static bool has_huge_pages;

void *thp_map(const struct ram_block *b, int prot)
{
	void *base = has_huge_pages ? mmap(NULL, b->pages * PAGE_BYTES, prot, MAP_SHARED, b->fd, 0) : NULL;

	assert_ptr_not_equal(base, MAP_FAILED);
	return base;
}

static int setup_with_huge_pages(void **state)
{
	int r;

	has_huge_pages = true;
	r = setup(state);
	has_huge_pages = false;
	return r;
}

/* The first one needs no harvest. Hot pages are for the last round. */
static void what_is_hot_waits_for_the_stop(void **state)
{
	(void)state;
	step();
	assert_ptr_equal(scene->s.round, &scene->s.the_round);
	assert_int_equal(scene->harvests, 0);
	assert_int_equal(scene->shown, 3);
	/* Not due while this is written, however long it takes. */
	scene->s.late_ns = UINT64_MAX;
	step_until(1);
	acknowledge();
	assert_int_equal(sent(2), COLD);
	/* One of them is written again: so it is hot. */
	rig_dirty(scene->rig, COLD_AT, 3, true);
	rig_dirty(scene->rig, COLD_AT + COLD, 3, true);
	scene->s.late_ns = 1;
	step_until(2);
	acknowledge();
	assert_true(scene->harvests >= 1);
	assert_int_equal(sent(3), 1);
	assert_true(scene->report.rows[2].late && scene->report.rows[3].late);
	assert_int_equal(scene->report.rows[2].pending_pages, HOT + 2);
	assert_int_equal(scene->report.rows[3].pending_pages, HOT + 1);
	stand_still();
	assert_true(scene->report.rows[4].blackout && !scene->report.rows[4].late);
	assert_int_equal(sent(4), HOT + 1);
}

static void goes_as_changes(void)
{
	static const uint64_t pages[] = { PAGES };

	scene->s.source->beside = true;
	scene->s.delta = delta_new(pages, 1, 1 << 20);
	assert_non_null(scene->s.delta);
	step_until(1);
	acknowledge();
	assert_int_equal(sent(2), HOT + COLD);
	stand_still();
	assert_int_equal(sent(3), 0);
	delta_free(scene->s.delta);
}

/* Huge pages that another process writes: a hot one has mostly what the receiver has already. */
static void what_goes_as_changes_does_not_wait(void **state)
{
	(void)state;
	scene->s.vm.blocks[0].page_size = 2 << 20;
	goes_as_changes();
}

static void nor_does_that_of_a_tmpfs(void **state)
{
	(void)state;
	goes_as_changes();
}

/* Where one would delay the stop, or the receiver would refuse it. */
static void there_are_none(void **state)
{
	struct sender *s = &scene->s;

	(void)state;
	for (unsigned int i = 0; i < 8; i++) {
		scene->options.pause = i == 0;
		s->owing.chosen = i == 1;
		s->spread = i == 2;
		s->hurries = i == 3;
		s->limits.bandwidth_mib = i == 4;
		s->stop_realtime_ns = i == 5;
		s->announced = i == 6 ? 3 : 0;	/* and no ACK */
		s->features = i == 7 ? 0 : WIRE_LATE;
		step();
		assert_null(s->round);
		assert_int_equal(scene->harvests, 0);
	}
	s->features = WIRE_LATE;
	step();
	assert_non_null(s->round);
	stand_still();
}

/* A harvest that fails, or that the stop would have to wait for: there is no other, and nothing is lost. */
static void one_harvest_too_many(void **state)
{
	uint64_t end;

	for (unsigned int slow = 0; slow < 2; slow++) {
		step();
		/* Not due before the scene is set, however long that takes. */
		scene->s.late_ns = UINT64_MAX;
		step_until(1);
		acknowledge();
		rig_dirty(scene->rig, 2001, 4, true);
		scene->fails = !slow;
		scene->slow_ms = slow ? 30 : 0;
		scene->s.limits.downtime_limit_ms = slow ? 200 : 600000;
		scene->s.late_ns = 1;
		for (end = deadline_ms(20000); !scene->harvests; nap_ms(1)) {
			assert_true(now_ns() < end);
			step();
		}
		scene->slow_ms = 0;
		rig_dirty(scene->rig, 2002, 4, true);
		for (end = deadline_ms(300); now_ns() < end; nap_ms(1))
			step();
		assert_int_equal(scene->harvests, 1);
		/* What the slow one found goes still. */
		assert_int_equal(scene->announced, slow ? 2 : 1);
		assert_int_equal(scene->rig->e.exit, GW_OK);
		stand_still();
		assert_int_equal(sent(slow ? 4 : 3), HOT + 2 - slow);
		teardown(state);
		setup(state);
	}
}

/* A receiver that acknowledges nothing is not waited for. */
static void three_may_be_under_way(void **state)
{
	uint64_t end;

	(void)state;
	step_until(1);
	for (uint32_t round = 2; round <= 3; round++) {
		rig_dirty(scene->rig, 2000 + round, 4, true);
		step_until(round);
	}
	rig_dirty(scene->rig, 2001, 4, true);
	end = deadline_ms(300);
	while (now_ns() < end)
		step();
	assert_null(scene->s.round);
	assert_int_equal(scene->s.number, 3);
	acknowledge();
	step_until(4);
	stand_still();
}

/* Nothing was written but what waits for the stop: no round. */
static void an_empty_one_does_not_go(void **state)
{
	uint64_t end;

	(void)state;
	step_until(1);
	acknowledge();
	for (end = deadline_ms(20000); scene->harvests < 4; nap_ms(1)) {
		assert_true(now_ns() < end);
		step();
	}
	assert_int_equal(scene->s.number, 1);
	/* And it has lost nothing. */
	stand_still();
	assert_int_equal(sent(3), HOT);
}

static atomic_bool stops;

/* A word at a time, then the log: as a vCPU, whose write is logged when it is made. */
static void *guest_main(void *arg)
{
	struct rig *rig = arg;
	uint32_t seed = 7;

	while (!atomic_load(&stops)) {
		const uint64_t page = next_random(&seed) % 3 ? next_random(&seed) % 64 : next_random(&seed) % PAGES;
		_Atomic uint32_t *word = (void *)(rig->ram + page * PAGE_BYTES);

		atomic_store(&rig->log[page], true);
		atomic_fetch_add(word, 1);
		atomic_store(&rig->log[page], true);
	}
	return NULL;
}

/* It stops at some moment of a late round or between two, on each try another. */
static void the_guest_writes_until_it_stops(void **state)
{
	pthread_t guest;

	for (unsigned int i = 0; i < 12; i++) {
		uint64_t end;

		atomic_store(&stops, false);
		assert_int_equal(pthread_create(&guest, NULL, guest_main, scene->rig), 0);
		end = now_ns() + 5 * MS + i * 17 * MS;
		do {
			step();
			if (i % 2 && scene->s.announced > atomic_load(&scene->s.stripes.acked))
				acknowledge();
		} while (now_ns() < end);
		atomic_store(&stops, true);
		pthread_join(guest, NULL);
		stand_still();
		assert_true(scene->report.round > 2 + 1);
		teardown(state);
		setup(state);
	}
}

/* What was being sent when the lease ended stays dirty. */
static void a_step_renews_the_lease(void **state)
{
	uint64_t end = deadline_ms(20000);

	(void)state;
	assert_false(lease_begin(scene->s.lease));
	do {
		assert_true(now_ns() < end);
		step();
	} while (!lease_begin(scene->s.lease));
	lease_end(scene->s.lease);
	step_until(1);
	assert_true(scene->s.foreign.asked_ns > 0);
	stand_still();
	assert_int_equal(scene->s.foreign.asked_ns, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_SCENE(what_is_hot_waits_for_the_stop),
		IN_SCENE(what_goes_as_changes_does_not_wait),
		cmocka_unit_test_setup_teardown(nor_does_that_of_a_tmpfs, setup_with_huge_pages, teardown),
		IN_SCENE(there_are_none),
		IN_SCENE(three_may_be_under_way),
		IN_SCENE(one_harvest_too_many),
		IN_SCENE(an_empty_one_does_not_go),
		IN_SCENE(the_guest_writes_until_it_stops),
		IN_SCENE(a_step_renews_the_lease),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
