// SPDX-License-Identifier: GPL-2.0-only
/* Bytes on the link and pages never get mixed up, whatever packs them and whatever is slowest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "page/page.h"
#include "plan/speed.h"

#define S	1000000000ull
#define MIB	(1ull << 20)

static void add(struct speeds *s, uint64_t pages, double page, uint64_t ns, bool held_back)
{
	speeds_add(s, &(struct speed_round) { .bytes = (uint64_t)((double)pages * page), .ns = ns, .page = page, .held_back = held_back });
}

/* The same pages again take as long again. */
static void a_round_like_the_last(void **state)
{
	const double page[] = { PAGE_BYTES, 1200, 300, 41, 0.75 };

	(void)state;
	for (size_t i = 0; i < sizeof(page) / sizeof(page[0]); i++) {
		struct speeds s = { .last = { 0, 0 } };
		struct speed freely;

		add(&s, 200000, page[i], 3 * S, false);
		freely = speeds_freely(&s);
		assert_int_equal(freely.rate, 200000 * page[i] / 3);
		assert_in_range(speed_ns(&freely, 200000), 3 * S - 1000, 3 * S + 1000);
		assert_in_range(speed_ns(&freely, 100), 1499000, 1501000);
	}
}

/*
 * Most pages went as references, and the link waited for the CPU: the first round's rate is one of few bytes in a long time. A
 * short round after it tells more, and the pages that were referred to credit nothing.
 */
static void references_are_no_rate(void **state)
{
	struct speeds s = { .last = { 0, 0 } }, all = { .last = { 0, 0 } };

	(void)state;
	speeds_add(&s, &(struct speed_round) {
		.bytes = 10 * MIB, .ns = S, .page = PAGE_BYTES, .pages = 2560, .referred = true,
	});
	assert_int_equal(s.last.rate, 10 * MIB);
	for (unsigned int i = 0; i < 2; i++) {
		struct speeds few = { .last = { 0, 0 } };

		/* As few as one likes. */
		speeds_add(&few, &(struct speed_round) { .bytes = MIB / 10, .ns = S, .page = PAGE_BYTES, .pages = 25, .referred = !i });
		assert_int_equal(few.last.rate, i ? MIB / 10 : 0);
		speeds_add(&few, &(struct speed_round) { .bytes = MIB, .ns = S / 50, .page = PAGE_BYTES, .pages = 256 });
		assert_int_equal(few.last.rate, i ? MIB / 10 : 50 * MIB);
	}
	/* Where all rounds are such, the second is better than nothing. */
	for (unsigned int i = 0; i < 2; i++)
		speeds_add(&all, &(struct speed_round) { .bytes = MIB, .ns = S / 10, .page = PAGE_BYTES, .referred = true });
	assert_int_equal(all.last.rate, 10 * MIB);
	speeds_add(&s, &(struct speed_round) {
		.bytes = 2 * MIB, .ns = S / 50, .page = PAGE_BYTES, .pages = 512,
	});
	assert_in_range(s.last.rate, 99 * MIB, 101 * MIB);
	assert_in_range(speed_pages(&s.last), 25000, 26000);
}

/* What post-copy goes by: of all rounds those that only the link has held up. */
static void a_rate_that_nothing_holds_back(void **state)
{
	struct speeds s = { .last = { 0, 0 } };

	(void)state;
	add(&s, 25600, PAGE_BYTES, 10 * S, true);
	assert_int_equal(s.last.rate, 10 * MIB);
	assert_int_equal(s.unhindered, 0);
	speeds_add(&s, &(struct speed_round) { .bytes = 10 * MIB, .ns = S, .page = PAGE_BYTES, .referred = true });
	add(&s, 256, PAGE_BYTES, S, false);	/* a short one */
	assert_int_equal(s.unhindered, 0);
	add(&s, 25600, PAGE_BYTES, S, false);
	add(&s, 25600, PAGE_BYTES, 10 * S, true);
	add(&s, 256, PAGE_BYTES, S, false);
	assert_int_equal(s.unhindered, 100 * MIB);
}

/* Of pages that were not packed, or where nothing is known of them. */
static void without_a_codec(void **state)
{
	const struct speed s = { .rate = 100 * MIB };

	(void)state;
	assert_int_equal(speed_ns(&s, 256), S / 100);
	assert_int_equal(speed_ns(&(struct speed) { 0, 100 }, 0), 0);
	assert_true(speed_ns(&(struct speed) { 0, 100 }, 1) > 1000000 * S);
	assert_true(speed_ns(&s, 1e18) > 1000000 * S);
}

/*
 * A CPU that packs is what is slow: 20 MiB/s of pages that do not get smaller. Then a short round of pages that do: they take as
 * long to pack. A prediction with their size and the old rate would be ten times too short.
 */
static void neither_half_is_of_another_round(void **state)
{
	struct speeds s = { .last = { 0, 0 } };
	struct speed freely;

	(void)state;
	add(&s, 50000, PAGE_BYTES, 10 * S, false);
	add(&s, 5000, PAGE_BYTES / 10, S, false);
	freely = speeds_freely(&s);
	assert_int_equal(freely.page, PAGE_BYTES);
	assert_in_range(speed_ns(&freely, 5000), S - 1000, S + 1000);
	/* One that tells changes both. */
	add(&s, 50000, PAGE_BYTES / 10, 10 * S, false);
	freely = speeds_freely(&s);
	assert_int_equal(freely.page, PAGE_BYTES / 10);
	assert_in_range(speed_ns(&freely, 5000), S - 1000, S + 1000);
	/* A round that took no time tells nothing, and of the first one there is nothing better. */
	add(&s, 50000, PAGE_BYTES, 0, false);
	assert_int_equal(speeds_freely(&s).page, PAGE_BYTES / 10);
	s = (struct speeds) { .last = { 0, 0 } };
	add(&s, 10, 100, S, false);
	assert_int_equal(speeds_freely(&s).rate, 1000);
}

/* Which rate is better is a matter of pages: fewer bytes a second may be more of them. */
static void bandwidth_does_not_hold_back_the_last_round(void **state)
{
	struct speeds s = { .last = { 0, 0 } };

	(void)state;
	add(&s, 25600, PAGE_BYTES, S, false);
	add(&s, 12800, PAGE_BYTES, S, true);
	assert_int_equal(speeds_freely(&s).rate, 100 * MIB);
	assert_int_equal(s.last.rate, 50 * MIB);
	add(&s, 50000, 400, S, true);
	assert_int_equal(speeds_freely(&s).rate, 50000 * 400);
	assert_int_equal(speeds_freely(&s).page, 400);
	add(&s, 12800, PAGE_BYTES, S, false);
	assert_int_equal(speeds_freely(&s).rate, 50 * MIB);
}

/* Of pages that are packed in another way any round tells more than those before, until a long one has told. */
static void another_codec(void **state)
{
	struct speeds s = { .last = { 0, 0 } };
	struct speed freely;

	(void)state;
	add(&s, 50000, 1300, 6 * S, false);
	add(&s, 50000, 1300, 12 * S, true);
	speeds_change(&s);
	assert_true(s.changed);
	/* Held back, and short: but what was faster was of the other way. */
	add(&s, 300, PAGE_BYTES, S / 10, true);
	freely = speeds_freely(&s);
	assert_false(s.changed);
	assert_int_equal(freely.page, PAGE_BYTES);
	assert_in_range(speed_ns(&freely, 3000), S - 1000, S + 1000);
	/* A round that was over before anything had arrived must not count for ever. */
	add(&s, 300, PAGE_BYTES, S / 5, false);
	freely = speeds_freely(&s);
	assert_in_range(speed_ns(&freely, 1500), S - 1000, S + 1000);
	add(&s, 5000, PAGE_BYTES, S, false);
	add(&s, 300, PAGE_BYTES, S, false);
	freely = speeds_freely(&s);
	assert_in_range(speed_ns(&freely, 5000), S - 1000, S + 1000);
	/* There was none: the link is as fast as it was, and pages may not get smaller. */
	add(&s, 50000, 1300, 6 * S, false);
	speeds_change(&s);
	speeds_add(&s, &(struct speed_round) { .bytes = 28, .ns = S / 100 });
	freely = speeds_freely(&s);
	assert_false(s.changed);
	assert_int_equal(freely.rate, 50000 * 1300 / 6);
	assert_in_range(speed_ns(&freely, 1), 378000, 379000);
	speeds_add(&s, &(struct speed_round) { .ns = S / 100, .page = 2000 });
	freely = speeds_freely(&s);
	assert_int_equal(freely.rate, 50000 * 1300 / 6);
}

static void add_again(struct speeds *s, uint64_t pages, uint64_t page, uint64_t ns)
{
	speeds_add(s, &(struct speed_round) { .bytes = pages * page, .ns = ns, .page = page, .pages = pages });
}

/* --delta: a round of many pages and few bytes shows what its pages take, and not how fast the link is. */
static void pages_that_go_in_part(void **state)
{
	struct speeds s = { .last = { 0, 0 } };
	struct speed freely;

	(void)state;
	add_again(&s, 25600, PAGE_BYTES, 10 * S);
	add_again(&s, 5000, 512, S / 20);
	freely = speeds_freely(&s);
	assert_int_equal(freely.rate, 10 * MIB);
	assert_int_equal(freely.page, 512);
	assert_in_range(speed_ns(&freely, 5000), 244 * S / 1000, 245 * S / 1000);
	/* Too few pages to tell, or none of --delta's. */
	add_again(&s, 1000, 1, S);
	add(&s, 5000, 1, S, false);
	assert_int_equal(s.last.page, 512);
}

/* Nearly all are unchanged: the link would take any number of them, the CPU does not. */
static void no_more_pages_than_in_any_round(void **state)
{
	struct speeds s = { .last = { 0, 0 } };
	struct speed freely;

	(void)state;
	add_again(&s, 25600, PAGE_BYTES, S);
	add_again(&s, 100000, 1, S);
	freely = speeds_freely(&s);
	assert_int_equal(freely.rate, 100 * MIB);
	assert_in_range(speed_ns(&freely, 100000), S, S + S / 500);
	/* And the same in a round that tells. */
	add_again(&s, 50000, 100, 5 * S);
	speeds_add(&s, &(struct speed_round) { .bytes = 64 * MIB, .ns = S, .page = 1, .pages = 50000 });
	freely = speeds_freely(&s);
	assert_int_equal(freely.rate, 64 * MIB);
	assert_in_range(speed_ns(&freely, 100000), S, S + S / 500);
}

/* What device state takes: of few bytes that waited for a CPU nobody knows. */
static void what_the_link_carries(void **state)
{
	struct speeds s = { .last = { 0, 0 } };

	(void)state;
	speeds_add(&s, &(struct speed_round) { .bytes = MIB, .ns = S, .page = PAGE_BYTES, .referred = true });
	for (unsigned int i = 0; i < 3; i++)
		add_again(&s, 4400, 1, S / 50);
	assert_int_equal(s.link, 0);
	/* A mebibyte at least as fast as that; more slowly says less than more quickly. */
	add_again(&s, 4400, 240, S / 50);
	assert_in_range(s.link, 50 * MIB, 51 * MIB);
	add_again(&s, 4400, 240, S);
	add_again(&s, 4400, 1, S / 50);
	assert_in_range(s.link, 50 * MIB, 51 * MIB);
	/* The link is another now; and --bandwidth is not the link. */
	add(&s, 2560, PAGE_BYTES, S, false);
	assert_int_equal(s.link, 10 * MIB);
	add(&s, 2560, PAGE_BYTES, 2 * S, true);
	assert_int_equal(s.link, 10 * MIB);
	add(&s, 2560, PAGE_BYTES, S / 2, true);
	assert_int_equal(s.link, 20 * MIB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_round_like_the_last),
		cmocka_unit_test(references_are_no_rate),
		cmocka_unit_test(a_rate_that_nothing_holds_back),
		cmocka_unit_test(without_a_codec),
		cmocka_unit_test(neither_half_is_of_another_round),
		cmocka_unit_test(bandwidth_does_not_hold_back_the_last_round),
		cmocka_unit_test(another_codec),
		cmocka_unit_test(pages_that_go_in_part),
		cmocka_unit_test(no_more_pages_than_in_any_round),
		cmocka_unit_test(what_the_link_carries),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
