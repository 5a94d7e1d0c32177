// SPDX-License-Identifier: GPL-2.0-only
/*
 * Post-copy from the source's file to the guests that touch its pages elsewhere: streams that push, the request connection
 * and its threads at both ends, and a real userfaultfd of each guest.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "postcopy_rig.h"
#include "tls_ends.h"

/* Of the request connection, records by the library; without credentials it is in the clear. */
static struct ends secure;
static const char *credentials;

static void request_pair(int fds[2])
{
	if (!credentials) {
		pair(fds);
		return;
	}
	open_done(&secure, credentials, credentials, false);
	for (unsigned int i = 0; i < 2; i++) {
		fds[i] = secure.fd[1 - i];
		l.tls[i] = secure.t[1 - i];
		secure.fd[1 - i] = -1;
		secure.t[1 - i] = NULL;
	}
}

/* early: the guests touch pages before the source pushes any, as in the load of the device state. */
static void migrate(uint32_t unit, uint64_t features, uint64_t bytes_per_s, bool early)
{
	struct round_count sent;
	struct requests_count c = { 0 };
	int fds[2];

	open_both(unit, features);
	if (features & WIRE_DELTAS)
		know_all();
	open_streams(features, bytes_per_s);
	last_round();
	request_pair(fds);
	begin_requests(fds[0]);
	receive_streams_release(l.in);
	guests_look(early ? PAGES : PAGES / 4);
	begin_answers(fds[1]);
	if (early)
		guests_end();
	/* Else while it is pushed: however busy this host is, some is asked for, and most is not. */
	for (uint64_t end = deadline_ms(SOON_MS); !answers_count(l.answers) && now_ns() < end;)
		nap_ms(1);
	begin_push();
	assert_return_code(send_streams_wait(l.out, &sent, &l.e), 0);
	round_end(&l.round);
	for (uint64_t end = deadline_ms(SOON_MS); atomic_load(&rig.ram.owed.left) && now_ns() < end;)
		nap_ms(1);
	assert_int_equal(rig.ram.owed.left, 0);
	guests_end();
	assert_int_equal(rig.ram.units, OWED / unit);
	assert_return_code(answers_check(l.answers, &l.e), 0);
	requests_count(l.requests, &c);
	/* What came by a stream meanwhile is answered all the same. */
	for (uint64_t end = deadline_ms(SOON_MS); answers_count(l.answers) < c.asked && now_ns() < end;)
		nap_ms(1);
	assert_int_equal(c.asked, answers_count(l.answers));
	/* Each answer is counted, with the time that it took. */
	for (uint64_t end = deadline_ms(SOON_MS); c.waited.count < c.asked && now_ns() < end; nap_ms(1)) {
		c = (struct requests_count) { 0 };
		requests_count(l.requests, &c);
	}
	assert_int_equal(c.waited.count, c.asked);
	assert_true(latency_mean(&c.waited) <= c.waited.worst_ns && c.waited.sum_ns >= c.asked);
	if (early)
		assert_int_equal(c.asked, OWED / unit);
	if (!early && features)
		assert_true(sent.same_pages > 0 && sent.packed_pages[0] > 0);
	assert_int_equal(sent.delta_pages + sent.unchanged_pages, 0);
	if (!early)
		assert_true(c.asked > 0 && sent.data_pages > 0);
	assert_int_equal(rig.ram.owed.left, 0);
	/* All is there: nothing need wait any more. */
	lazy_unregister(&rig.ram);
	guests_look(PAGES);
	guests_end();
	close_both();
}

static void all_on_request(void **state)
{
	(void)state;
	migrate(1, 0, 0, true);
}

static void pushed_and_on_request(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 4; i++)
		migrate(1, 0, 40u << 20, false);
	migrate(1, 0, 0, false);
}

static void packed(void **state)
{
	(void)state;
	migrate(1, WIRE_FILL | WIRE_LZ4, 4u << 20, false);
	migrate(1, WIRE_FILL | WIRE_LZ4, 0, false);
}

/* What was sent once, and is as it was, the receiver has taken away. */
static void pushed_whole(void **state)
{
	(void)state;
	migrate(1, WIRE_FILL | WIRE_LZ4 | WIRE_DELTAS, 0, false);
	migrate(64, WIRE_FILL | WIRE_LZ4 | WIRE_DELTAS, 20u << 20, false);
}

static void units(void **state)
{
	(void)state;
	migrate(512, 0, 0, true);
	migrate(512, WIRE_FILL | WIRE_LZ4, 4u << 20, false);
	migrate(64, 0, 20u << 20, false);
}

/* Many requests, and many answers, are read ahead by the library: of those no poll() tells. */
static void over_tls(void **state)
{
	static const char *const kinds[] = { "good", "psk" };

	(void)state;
	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		credentials = kinds[i];
		migrate(1, 0, 0, true);
		close_ends(&secure);
		migrate(1, WIRE_FILL | WIRE_LZ4, 4u << 20, false);
		close_ends(&secure);
		migrate(512, 0, 0, true);
		close_ends(&secure);
	}
	credentials = NULL;
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(all_on_request),
	cmocka_unit_test(pushed_and_on_request),
	cmocka_unit_test(packed),
	cmocka_unit_test(pushed_whole),
	cmocka_unit_test(units),
	cmocka_unit_test(over_tls),
};

int main(void)
{
	return cmocka_run_group_tests(tests, setup_files, remove_files);
}
