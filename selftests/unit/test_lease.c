// SPDX-License-Identifier: GPL-2.0-only
/* A lease to clear: over in time, ended for good, looked at by another process; and a round that has none waits. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <cmocka.h>

#define PAGES	40960u	/* three clears */

#include "base/clock.h"
#include "dirty/lease.h"
#include "net/engine.h"
#include "ram_rig.h"

static void it_is_over_in_time(void **state)
{
	struct lease *l = lease_new();

	(void)state;
	assert_non_null(l);
	assert_false(lease_begin(l));
	lease_renew(l);
	assert_true(lease_begin(l));
	lease_end(l);
	nap(LEASE_NS / MS + 1);
	assert_false(lease_begin(l));
	lease_free(l);
}

static void when_something_was_cleared(void **state)
{
	struct lease *l = lease_new();
	uint64_t begin = now_ns();

	(void)state;
	lease_renew(l);
	assert_int_equal(lease_cleared_ns(l), 0);
	assert_true(lease_begin(l));
	assert_true(lease_cleared_ns(l) >= begin);	/* it clears now */
	lease_end(l);
	assert_in_range(lease_cleared_ns(l), begin, now_ns());
	begin = now_ns();
	assert_true(lease_cleared_ns(l) <= begin);	/* and not later */
	lease_free(l);
}

/* In a clear. */
static void of_a_process_that_has_died(void **state)
{
	struct lease *l = lease_new();
	uint64_t begin;
	pid_t pid;

	(void)state;
	lease_renew(l);
	pid = fork();
	if (!pid)
		_exit(!lease_begin(l));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	begin = now_ns();
	assert_true(lease_cleared_ns(l) >= begin);
	lease_free(l);
}

static struct {
	struct lease *lease;
	atomic_bool over, quit;
	atomic_uint late, cleared;
} race;

static void *clears(void *arg)
{
	while (!atomic_load(&race.quit)) {
		if (!lease_begin(race.lease)) {
			sched_yield();
			continue;
		}
		/* Between the two, no caller may have been told that no clear is under way. */
		atomic_fetch_add(&race.late, atomic_load(&race.over));
		atomic_fetch_add(&race.cleared, 1);
		atomic_fetch_add(&race.late, atomic_load(&race.over));
		lease_end(race.lease);
	}
	return arg;
}

static void no_clear_after_its_end(void **state)
{
	pthread_t threads[3];

	(void)state;
	memset(&race, 0, sizeof(race));
	race.lease = lease_new();
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, clears, NULL), 0);
	for (unsigned int turn = 0; turn < 50; turn++) {
		unsigned int before = atomic_load(&race.cleared);

		atomic_store(&race.over, false);
		lease_renew(race.lease);
		while (atomic_load(&race.cleared) == before)
			lease_renew(race.lease);
		lease_revoke(race.lease);
		atomic_store(&race.over, true);
		sched_yield();
	}
	atomic_store(&race.quit, true);
	for (unsigned int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(race.late, 0);
	lease_free(race.lease);
}

/* The round is asked for pieces until it waits: what has come is what was cleared before the lease was over, and nothing is lost. */
static void a_round_waits_for_it(void **state)
{
	struct rig *rig = rig_new();
	struct lease *l = lease_new();
	uint64_t pages = 0;
	struct round_piece p;
	struct round rd;
	int r;

	(void)state;
	rig->source.lease = l;
	rig_write_run(rig, 0, PAGES, 1);
	round_begin(&rd, &rig->src, &rig->source, ROUND_PRECOPY, NULL, NULL);
	assert_int_equal(round_take(&rd, 0, UINT64_MAX, &p, &rig->e), ROUND_WAITS);
	assert_int_equal(rig->clears, 0);
	lease_renew(l);
	assert_int_equal(round_take(&rd, 0, UINT64_MAX, &p, &rig->e), 1);
	lease_revoke(l);
	do {
		for (unsigned int i = 0; i < p.nr; i++)
			pages += p.runs[i].count;
	} while ((r = round_take(&rd, 0, UINT64_MAX, &p, &rig->e)) == 1);
	assert_int_equal(r, ROUND_WAITS);
	assert_int_equal(rig->clears, 1);
	assert_int_equal(pages, CLEAR_PAGES);
	assert_int_equal(round_taken(&rd), CLEAR_PAGES);
	lease_renew(l);
	while ((r = round_take(&rd, 0, UINT64_MAX, &p, &rig->e)) == 1)
		for (unsigned int i = 0; i < p.nr; i++)
			pages += p.runs[i].count;
	assert_int_equal(r, 0);
	assert_int_equal(rig->clears, 3);
	assert_int_equal(pages, PAGES);
	round_end(&rd);
	rig->source.lease = NULL;
	lease_free(l);
	rig_free(rig);
}

/* For both streams; the rig's idle callback renews it now and then. */
static struct lease *shared;

static int renews(void *arg, struct err *e)
{
	(void)arg, (void)e;
	lease_renew(shared);
	nap(15);
	lease_revoke(shared);
	return 0;
}

static void a_round_ends_by_and_by(void **state)
{
	struct rig *rig = rig_new();

	(void)state;
	shared = rig->source.lease = lease_new();
	rig->idle = renews;
	rig_connect(rig, &engine_poll, &engine_poll, 2, 0);
	rig_write_run(rig, 0, PAGES, 1);
	rig_round(rig, ROUND_PRECOPY);
	assert_int_equal(rig->count.data_pages, PAGES);
	rig_assert_equal(rig);
	/* The guest is stopped then, and nothing is cleared. */
	rig_write_run(rig, 0, 100, 2);
	lease_revoke(shared);
	rig_round(rig, ROUND_LAST);
	rig_assert_equal(rig);
	lease_free(shared);
	rig_free(rig);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(it_is_over_in_time),
	cmocka_unit_test(when_something_was_cleared),
	cmocka_unit_test(of_a_process_that_has_died),
	cmocka_unit_test(no_clear_after_its_end),
	cmocka_unit_test(a_round_waits_for_it),
	cmocka_unit_test(a_round_ends_by_and_by),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
