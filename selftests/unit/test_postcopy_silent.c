// SPDX-License-Identifier: GPL-2.0-only
/* The guest runs at the destination, and its receiver, or a tunnel to it, falls silent without a word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "postcopy_rig.h"
#include "send/sender_internal.h"

#define TIMEOUT_MS	2000u

/* Streams may be silent for four times as long, and are full here: what the sender owes does not fit into them. */
static void is_noticed_in_time(void **state)
{
	static const struct sender_options o = { .timeout_ms = TIMEOUT_MS, .engine = &engine_poll };
	static struct dirty_source source;
	static struct report report;
	static struct sender s = {
		.o = &o, .report = &report, .source = &source, .vm = { .pidfd = -1, .vm_fd = -1 },
		.migration = { .stream = -1 }, .owing = OWING_NONE, .journal = { .pipe = -1 }, .guardian = { .pipe = -1 },
		.commit = COMMIT_SENT, .note = RECORD_NONE,
	};
	struct send_streams_options out = {
		.vm = &l.src, .engine = &engine_poll, .pace = &s.pace, .compress = &s.compress, .timeout_ms = TIMEOUT_MS,
		.idle = sender_idle, .arg = &s,
	};
	int control[2], fds[STREAMS][2], here[STREAMS];
	uint64_t began_ns;

	(void)state;
	open_both(1, 0);
	s.vm = l.src;
	s.started_ns = now_ns();
	pair(control);
	assert_int_equal(channel_new(control[0], &engine_poll, TIMEOUT_MS, &s.ch, &l.e), 0);
	channel_unasked(s.ch, sender_take, &s);
	for (unsigned int i = 0; i < STREAMS; i++) {
		pair(fds[i]);
		here[i] = fds[i][0];
	}
	pace_init(&s.pace, 0);
	assert_int_equal(send_streams_start(&out, here, STREAMS, &s.streams, &l.e), 0);
	s.owing.owed = l.owed;
	s.owing.collected = true;
	push_init(&s.owing.push, &l.owed);
	report_round_begin(&report, false, 0);
	sender_push_begin(&s);
	began_ns = now_ns();
	assert_true(owing_finish(&s, &l.e) < 0);
	assert_true(err_is_link(&l.e));
	assert_non_null(strstr(l.e.text, "the receiver says nothing any more"));
	assert_in_range((now_ns() - began_ns) / 1000000, TIMEOUT_MS, 3 * TIMEOUT_MS);
	send_streams_free(s.streams);
	channel_free(s.ch);
	close(control[1]);
	for (unsigned int i = 0; i < STREAMS; i++)
		close(fds[i][1]);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(is_noticed_in_time),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
