// SPDX-License-Identifier: GPL-2.0-only
/* How pre-copy ends where rounds do not help: post-copy, slowed vCPUs, a refusal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "precopy_world.h"

static void postcopy_begins_as_it_was_asked_for(void **state)
{
	static const struct { enum postcopy_wish wish; unsigned int limit, rounds; bool owes; } cases[] = {
		{ POSTCOPY_ON, 1, 1, true }, { POSTCOPY_ON, 2000, 1, true }, { POSTCOPY_AUTO, 100, 3, true },
		{ POSTCOPY_AUTO, 2000, 2, false },
	};

	(void)state;
	can_owe = true;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		wish_now = cases[i].wish;
		assert_int_equal(migrate(cases[i].limit, 30, "off", NEVER, 0, NULL).round, cases[i].rounds);
		assert_int_equal(world.owes, cases[i].owes);
		assert_int_equal(world.early, cases[i].owes);
	}
	wish_now = POSTCOPY_OFF;
	can_owe = false;
}

/* It writes as much however slow it is. All of it is tried before pages are owed. */
static void the_guest_is_slowed_first(void **state)
{
	struct report r;

	(void)state;
	can_owe = true;
	wish_now = POSTCOPY_AUTO;
	throttle_now = THROTTLE_AUTO;
	r = migrate(100, 30, "off", NEVER, 0, NULL);
	assert_true(world.owes);
	assert_int_equal(r.throttle, THROTTLE_MAX);
	assert_in_range(r.round, 4, 10);
	for (unsigned int i = 1; i < r.nr_rows; i++)
		assert_true(r.rows[i].throttle >= r.rows[i - 1].throttle);
	/* As ever where rounds help. */
	r = migrate(2000, 30, "off", NEVER, 0, NULL);
	assert_false(world.owes);
	assert_int_equal(r.throttle, 0);
	throttle_now = 0;
	wish_now = POSTCOPY_OFF;
	can_owe = false;
}

/* A refusal names what no knob makes less. */
static void the_round_trip_is_named(void **state)
{
	static const struct { uint64_t rtt_ms; bool named; } cases[] = { { 0, false }, { 20, false }, { 60, true }, { 400, true } };
	struct report r;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct err e = { 0 };

		rtt_now = cases[i].rtt_ms * MS;
		assert_int_not_equal(try_migrate(&r, &e, 100, 3, "off", NEVER, 0, NULL), 0);
		assert_int_equal(e.exit, GW_NOT_CONVERGED);
		assert_int_equal(!!strstr(e.text, "round trip, which cannot be less"), cases[i].named);
		assert_int_equal(!!strstr(e.text, " 200 ms for half of"), cases[i].rtt_ms == 400);
	}
	rtt_now = 0;
}

/* So it does what the link is expected to lose. */
static void the_loss_is_named(void **state)
{
	static const double cases[] = { 0, 0.00001, 0.005 };
	struct report r;

	(void)state;
	rtt_now = 200 * MS;
	knows_tcp = true;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct err e = { 0 };

		first_loses = others_lose = cases[i];
		assert_int_not_equal(try_migrate(&r, &e, 300, 3, "off", NEVER, 0, NULL), 0);
		assert_int_equal(e.exit, GW_NOT_CONVERGED);
		assert_int_equal(!!strstr(e.text, " ms as the link loses 0.50 % of the segments"), i == 2);
	}
	first_loses = others_lose = 0;
	knows_tcp = false;
	rtt_now = 0;
}

/* What may be lost of the device state is foretold, and no reason to stay, as rounds make it no less. What is lost of RAM they may. */
static void a_loss_that_stays_refuses_no_guest(void **state)
{
	struct report as_ever, r, refused;
	struct err e = { 0 };

	(void)state;
	rtt_now = 200 * MS;
	knows_tcp = true;
	as_ever = migrate(1150, 3, "off", NEVER, 0, NULL);
	first_loses = others_lose = 0.003;
	r = migrate(1150, 3, "off", NEVER, 0, NULL);
	assert_int_not_equal(try_migrate(&refused, &e, 1100, 3, "off", NEVER, 0, NULL), 0);
	first_loses = others_lose = 0;
	knows_tcp = false;
	rtt_now = 0;
	assert_int_equal(r.round, as_ever.round);
	assert_true(as_ever.predicted_ns < 1100 * MS && r.predicted_ns > 1150 * MS);
}

/* With what is lost the device state alone would take longer than is allowed: it is foretold, and no reason to stay. */
static void a_loss_forbids_no_postcopy(void **state)
{
	struct report r;

	(void)state;
	rtt_now = 200 * MS;
	knows_tcp = can_owe = true;
	wish_now = POSTCOPY_AUTO;
	first_loses = others_lose = 0.05;
	r = migrate(180, 30, "off", NEVER, 0, NULL);
	assert_true(world.owes);
	assert_in_range(r.link.loss_ns, 200 * MS, 400 * MS);
	assert_in_range(r.predicted_ns - r.link.loss_ns, 100 * MS, 180 * MS);
	first_loses = others_lose = 0;
	knows_tcp = can_owe = false;
	wish_now = POSTCOPY_OFF;
	rtt_now = 0;
}

/* Once a mapping has changed QEMU's are looked at, before any other process is. */
static void ram_that_was_exchanged(void **state)
{
	struct err e = { 0 };
	struct report r;

	(void)state;
	exchanged_in = 2;
	assert_int_not_equal(try_migrate(&r, &e, 100, 3, "off", NEVER, 0, NULL), 0);
	exchanged_in = 0;
	assert_int_equal(e.exit, GW_VM_STATE);
	assert_string_equal(e.text, "exchanged");
	assert_int_equal(r.round, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_loss_is_named),
		cmocka_unit_test(a_loss_that_stays_refuses_no_guest), cmocka_unit_test(a_loss_forbids_no_postcopy),
		cmocka_unit_test(postcopy_begins_as_it_was_asked_for),
		cmocka_unit_test(the_guest_is_slowed_first),
		cmocka_unit_test(the_round_trip_is_named),
		cmocka_unit_test(ram_that_was_exchanged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
