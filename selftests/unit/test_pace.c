// SPDX-License-Identifier: GPL-2.0-only
/* The bandwidth limit, against a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/pace.h"
#include "page/page.h"

#define SEC	1000000000ull
#define MIB	(1ull << 20)

/**
 * struct sender - a stream that sends whenever it may
 * @late_ns: how much later than allowed it wakes up
 */
struct sender {
	uint64_t at, late_ns;
};

/* n streams for some seconds; in every second, beginning anywhere, the limit holds within 5 %. */
static void run(uint64_t rate, unsigned int n, uint64_t late_ns, unsigned int seconds)
{
	static struct { uint64_t at, bytes; } sent[2000000];
	struct sender s[16] = { 0 };
	uint64_t begin = 77 * SEC, in_window = 0, total = 0;
	unsigned int count = 0, tail = 0;
	struct pace p;

	pace_init(&p, rate);
	for (unsigned int i = 0; i < n; i++)
		s[i] = (struct sender) { .at = begin, .late_ns = late_ns };
	for (;;) {
		uint32_t bytes = pace_burst(&p) < 256 << 10 ? pace_burst(&p) : 256 << 10;
		struct sender *next = &s[0];

		for (unsigned int i = 1; i < n; i++)
			if (s[i].at < next->at)
				next = &s[i];
		if (next->at >= begin + seconds * SEC)
			break;
		/* It asks, waits, sends, and needs 20 us for all else. */
		sent[count].at = pace_take(&p, bytes, next->at);
		if (sent[count].at > next->at)
			sent[count].at += late_ns;
		next->at = sent[count].at + 20000;
		sent[count++].bytes = bytes;
		assert_true(count < sizeof(sent) / sizeof(sent[0]));
	}
	for (unsigned int i = 0; i < count; i++) {
		in_window += sent[i].bytes;
		if (sent[i].at < begin + seconds * SEC)
			total += sent[i].bytes;
		while (sent[tail].at + SEC <= sent[i].at)
			in_window -= sent[tail++].bytes;
		if (in_window > rate + rate / 20)
			fail_msg("%llu bytes in a second, limit %llu, %u streams", (unsigned long long)in_window,
				 (unsigned long long)rate, n);
	}
	/* And it is made use of. */
	assert_in_range(total, rate * seconds / 100 * 95, rate * seconds / 100 * 105);
}

static void the_limit_holds(void **state)
{
	static const uint64_t rates[] = { 1 * MIB, 7 * MIB, 100 * MIB, 3000 * MIB };

	(void)state;
	for (unsigned int i = 0; i < 4; i++)
		for (unsigned int n = 1; n <= 16; n *= 4) {
			run(rates[i], n, 0, 3);
			run(rates[i], n, 200000, 3);
		}
}

static void no_limit(void **state)
{
	struct pace p;

	(void)state;
	pace_init(&p, 0);
	for (uint64_t t = 5; t < 100; t++)
		assert_true(pace_take(&p, 1ull << 40, t) == t);
	assert_int_equal(pace_burst(&p), UINT32_MAX);
}

/* Time that passed unused is no credit but for a moment. */
static void idle_time_is_lost(void **state)
{
	uint64_t now = 10 * SEC, got = 0;
	struct pace p;

	(void)state;
	pace_init(&p, 100 * MIB);
	pace_take(&p, MIB, now);
	now += 60 * SEC;
	while (pace_take(&p, MIB / 4, now) == now)
		got += MIB / 4;
	assert_in_range(got, MIB, 2 * MIB);
}

static void it_can_be_changed_and_lifted(void **state)
{
	uint64_t now = SEC, at;
	struct pace p;

	(void)state;
	pace_init(&p, MIB);
	pace_take(&p, MIB / 2, now);
	at = pace_take(&p, MIB / 2, now);
	assert_in_range(at - now, SEC / 100 * 45, SEC / 2);
	pace_set(&p, 10 * MIB);
	at = pace_take(&p, MIB, now);
	assert_in_range(at - now, SEC / 100 * 95, SEC);	/* what was allowed before counts as it did */
	at = pace_take(&p, MIB, now);
	assert_in_range(at - now, SEC / 100 * 105, SEC / 100 * 110);
	pace_set(&p, 0);
	assert_true(pace_take(&p, MIB, now) == now);
}

static void bursts_are_whole_pages(void **state)
{
	struct pace p;

	(void)state;
	for (uint64_t rate = 1; rate < 1ull << 45; rate = rate * 3 + 1) {
		pace_init(&p, rate);
		assert_true(pace_burst(&p) == UINT32_MAX || pace_burst(&p) % PAGE_BYTES == 0);
		assert_true(pace_burst(&p) >= PAGE_BYTES);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_limit_holds),
		cmocka_unit_test(no_limit),
		cmocka_unit_test(idle_time_is_lost),
		cmocka_unit_test(it_can_be_changed_and_lifted),
		cmocka_unit_test(bursts_are_whole_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
