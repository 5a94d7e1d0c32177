// SPDX-License-Identifier: GPL-2.0-only
/* What the sender does beside its rounds: counts what goes over connections that come and go, and listens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "send/sender_internal.h"

#define MS	1000000ull

/* Their streams are these: what they have sent so far. */
static struct round_count counts;
static uint64_t now = 1000 * MS;
static unsigned int renewals;

uint64_t __wrap_now_ns(void);
struct round_count __wrap_send_streams_counts(const struct send_streams *st);
uint64_t __wrap_send_streams_sent(const struct send_streams *st);
struct zero_copy_count __wrap_send_streams_zero_copies(const struct send_streams *st);
void __wrap_send_streams_free(struct send_streams *st);
bool __wrap_channel_readable(struct channel *ch);
int __wrap_foreign_renew_soon(struct foreign_watch *w, struct err *e);

uint64_t __wrap_now_ns(void)
{
	return now;
}

struct round_count __wrap_send_streams_counts(const struct send_streams *st)
{
	return st ? counts : (struct round_count) { .data_pages = 0 };
}

uint64_t __wrap_send_streams_sent(const struct send_streams *st)
{
	return st ? counts.page_bytes : 0;
}

struct zero_copy_count __wrap_send_streams_zero_copies(const struct send_streams *st)
{
	(void)st;
	return (struct zero_copy_count) { 0, 0 };
}

void __wrap_send_streams_free(struct send_streams *st)
{
	(void)st;
	memset(&counts, 0, sizeof(counts));
}

bool __wrap_channel_readable(struct channel *ch)
{
	(void)ch;
	return false;
}

int __wrap_foreign_renew_soon(struct foreign_watch *w, struct err *e)
{
	(void)w;
	(void)e;
	renewals++;
	return 0;
}

/* Only its address counts. */
static struct send_streams *const some_streams = (struct send_streams *)&counts;

static void sends(uint64_t pages)
{
	counts.data_pages += pages;
	counts.packed_pages[1] += pages / 2;
	counts.page_bytes += pages * 1000;
}

static void assert_counted(const struct sender *s, uint64_t pages)
{
	const struct round_count c = sender_counts(s);

	assert_int_equal(c.data_pages, pages);
	assert_int_equal(c.packed_pages[1], pages / 2);
	assert_int_equal(c.page_bytes, pages * 1000);
}

/* What has been sent of a round over connections that were lost was sent. */
static void a_round_over_several_connections(void **state)
{
	static struct sender s;

	(void)state;
	s.streams = some_streams;
	sends(40);
	s.counts_before = counts;
	sends(100);
	assert_counted(&s, 100);
	sender_disconnect(&s);
	assert_counted(&s, 100);
	/* A try to connect again that failed. */
	sender_disconnect(&s);
	assert_counted(&s, 100);
	s.streams = some_streams;
	sends(20);
	assert_counted(&s, 120);
	sender_disconnect(&s);
	s.streams = some_streams;
	sends(6);
	assert_counted(&s, 126);
	assert_int_equal(sender_bytes(&s), 166000);
}

/* Until a round is over its own pages are the best guess, and a whole number of bytes may be none. */
static void the_first_round_tells_what_a_page_takes(void **state)
{
	static struct report report;
	static const struct sender_options options;
	static struct sender s;

	(void)state;
	memset(&counts, 0, sizeof(counts));
	s.o = &options;
	s.report = &report;
	s.streams = some_streams;
	s.round = &s.the_round;
	report.round = 1;
	report.nr_rows = 1;
	counts.data_pages = 6400;
	counts.page_bytes = 3600;
	sender_progress(&s);
	assert_float_equal(report.speed.page, 36. / 64, 0.001);
}

/* QEMU is asked ten times a second, however often the streams have the sender look. */
static void the_lease_is_renewed_at_its_own_pace(void **state)
{
	static struct report report;
	static const struct sender_options options;
	static struct sender s;
	struct err e = { 0 };

	(void)state;
	s.o = &options;
	s.report = &report;
	s.lease = (struct lease *)&options;
	s.round = &s.the_round;
	s.round->kind = ROUND_PRECOPY;
	s.next_ping_ns = UINT64_MAX;
	report.nr_rows = 1;
	for (unsigned int i = 0; i < 100; i++) {
		assert_int_equal(sender_idle(&s, &e), 0);
		now += 20 * MS;
	}
	assert_in_range(renewals, 20, 21);
	for (unsigned int i = 0; i < 100; i++) {
		assert_int_equal(sender_idle(&s, &e), 0);
		now += 101 * MS;
	}
	assert_in_range(renewals, 119, 121);
}

/* COMPLETE may come while much is left to push: the guest has ended there. */
static void nothing_is_pushed_behind_complete(void **state)
{
	static const uint64_t pages[] = { 64 };
	static const uint32_t units[] = { 1 };
	struct wire_header complete = { .type = WIRE_COMPLETE };
	static struct sender_options o;
	static struct report report;
	static struct sender s;
	struct wire_extent x;
	struct err e = { 0 };
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(channel_new(pair[0], &engine_poll, 1000, &s.ch, &e), 0);
	s.o = &o;
	s.report = &report;
	s.commit = COMMIT_RUNS;
	assert_int_equal(owed_init(&s.owing.owed, pages, units, 1, &e), 0);
	assert_int_equal(owed_add(&s.owing.owed, 0, 0, 64), 0);
	push_init(&s.owing.push, &s.owing.owed);
	s.owing.collected = true;
	assert_true(push_take(&s.owing.push, 1, &x));
	assert_int_equal(sender_take(&s, &complete, &e), 1);
	assert_true(s.owing.complete);
	assert_false(push_take(&s.owing.push, 1, &x));
	/* Once. */
	assert_int_equal(sender_take(&s, &complete, &e), 0);
	owing_reset(&s.owing);
	channel_free(s.ch);
	close(pair[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_round_over_several_connections),
		cmocka_unit_test(the_first_round_tells_what_a_page_takes),
		cmocka_unit_test(the_lease_is_renewed_at_its_own_pace),
		cmocka_unit_test(nothing_is_pushed_behind_complete),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
