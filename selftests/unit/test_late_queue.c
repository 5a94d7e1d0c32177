// SPDX-License-Identifier: GPL-2.0-only
/* Rounds between `migrate` and the guest's stop: what is queued, posted or held back does not put off the stop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "late_scene.h"

/* One stream, whose other end nobody reads from; this page to send, once. */
static void connect_to_nobody(int *peer, uint64_t page)
{
	struct rig *rig = scene->rig;

	send_streams_free(rig->streams);
	receive_streams_free(rig->receiving);
	rig->receiving = NULL;
	rig_connect_to_nobody(rig, &engine_poll, 1, 0, peer);
	scene->s.streams = rig->streams;
	bitmap_clear(rig->source.map[0], 0, PAGES);
	memset(rig->log, 0, sizeof(rig->log));
	rig_write(rig, page, 3);
}

static void wait_until_sent(void)
{
	for (uint64_t end = deadline_ms(20000); !send_streams_round_is_over(scene->s.streams); nap_ms(1))
		assert_true(now_ns() < end);
}

/* QEMU's stream waits for the link: to wait for that here would put off all that QEMU says, its stop first. */
static void what_is_posted_is_not_waited_for(void **state)
{
	static uint8_t body[160 << 10];
	const struct wire_header h = { .type = WIRE_DEVICE, .length = sizeof(body) };
	struct rig *rig = scene->rig;
	int peer;

	(void)state;
	for (unsigned int at_stop = 0; at_stop < 2; at_stop++) {
		connect_to_nobody(&peer, 2000 + at_stop);
		scene->s.late_ns = at_stop ? 1 : 0;
		step();
		assert_non_null(scene->s.round);
		wait_until_sent();
		/* More than the socket takes. */
		for (unsigned int i = 0; i < 2; i++)
			assert_int_equal(send_streams_post(rig->streams, &h, body, false, &rig->e), 0);
		if (at_stop)
			assert_int_equal(late_rounds_end(&scene->s, &rig->e), 0);
		else
			step();
		assert_null(scene->s.round);
		assert_int_equal(scene->announced, at_stop + 1);
		close(peer);
		scene->s.stop_realtime_ns = 0;
	}
}

/* What is queued would go before the last round; what QEMU's stream has queued is no reason to wait. */
static void queue_grows_not(bool by_ack)
{
	static uint8_t buf[64 << 10];
	int peer;

	connect_to_nobody(&peer, 2000);
	scene->report.speed.rate = 100000;
	scene->s.limits.downtime_limit_ms = 100;	/* 1000 bytes */
	step();
	wait_until_sent();
	assert_true(send_streams_queued(scene->s.streams) > PAGE_BYTES);
	step();
	assert_int_equal(scene->announced, 1);
	rig_dirty(scene->rig, 2001, 3, true);
	for (uint64_t end = deadline_ms(300); now_ns() < end; nap_ms(1))
		step();
	assert_int_equal(scene->harvests, 0);
	if (by_ack)
		atomic_store(&scene->s.stripes.acked, 1);
	while (!by_ack && send_streams_queued(scene->s.streams))
		assert_true(recv(peer, buf, sizeof(buf), 0) > 0);
	for (uint64_t end = deadline_ms(20000); scene->s.number < 2; nap_ms(1)) {
		assert_true(now_ns() < end);
		step();
	}
	close(peer);
}

static void no_queue_grows(void **state)
{
	queue_grows_not(false);
	teardown(state);
	setup(state);
	queue_grows_not(true);
}

/* A limit that the operator sets now, or a hurry: the stop is not to wait for that round. */
static void what_ends_them_cuts_the_one_under_way(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		struct sender *s = &scene->s;

		step();
		assert_false(atomic_load(&s->round->cut));
		s->limits.bandwidth_mib = i == 0;
		s->hurries = i == 1;
		s->stop_realtime_ns = i == 2;
		pace_set(&s->pace, i == 0 ? 1 << 20 : 0);
		step();
		assert_true(!s->round || atomic_load(&s->round->cut));
		assert_int_equal(atomic_load(&s->pace.rate), 0);
		step_until(1);
		acknowledge();
		for (uint64_t end = deadline_ms(200); now_ns() < end; nap_ms(1))
			step();
		assert_int_equal(s->number, 1);
		stand_still();
		teardown(state);
		setup(state);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_SCENE(what_is_posted_is_not_waited_for),
		IN_SCENE(no_queue_grows),
		IN_SCENE(what_ends_them_cuts_the_one_under_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
