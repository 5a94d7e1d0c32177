// SPDX-License-Identifier: GPL-2.0-only
/* Rounds between `migrate` and the guest's stop: when there are some, what of it they send, and that the rest is not lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <pthread.h>
#include <cmocka.h>

#include "base/clock.h"
#include "ram_rig.h"
#include "send/sender_internal.h"

#define HOT	40u	/* pages, from the first on */
#define COLD	600u	/* from page COLD_AT on, written once */
#define COLD_AT	1000u

/**
 * struct scene
 * @harvests: so many
 * @fails: the next one does; @slow_ms: it takes so long
 * @announced: the latest ROUND on the control connection
 * @shown: the latest late round that the operator has seen
 */
static struct scene {
	struct rig *rig;
	struct sender s;
	struct sender_options options;
	struct report report;
	unsigned int harvests, slow_ms;
	bool fails;
	uint32_t announced;
	unsigned int shown;
} *scene;

/* The control connection is no channel. */
int __real_channel_send(struct channel *ch, const struct wire_header *h, const void *body, struct err *e);
int __wrap_channel_send(struct channel *ch, const struct wire_header *h, const void *body, struct err *e);
bool __wrap_channel_readable(struct channel *ch);

int __wrap_channel_send(struct channel *ch, const struct wire_header *h, const void *body, struct err *e)
{
	if (ch)
		return __real_channel_send(ch, h, body, e);
	assert_int_equal(h->type, WIRE_ROUND);
	scene->announced = h->arg;
	return 0;
}

bool __wrap_channel_readable(struct channel *ch)
{
	(void)ch;
	return false;
}

static int harvest(struct dirty_source *source, struct err *e)
{
	(void)source;
	scene->harvests++;
	nap_ms(scene->slow_ms);
	/* Some of it, and not all. */
	rig_harvest(scene->rig);
	if (!scene->fails)
		return 0;
	scene->fails = false;
	return err_set(e, GW_INTERNAL, EAGAIN, "slots change all the time");
}

static void show(const struct report *r, void *arg)
{
	(void)arg;
	if (r->rows[r->nr_rows - 1].late)
		scene->shown = r->round;
}

static const struct dirty_ops ops = { .name = "scripted", .harvest = harvest, .clear = rig_clear, .next_data = rig_next_data };

/* Pre-copy is over, and its last harvest has found pages that were written before, and others. */
static int setup(void **state)
{
	struct sender *s;

	scene = calloc(1, sizeof(*scene));
	scene->rig = rig_new();
	scene->rig->source.ops = &ops;
	rig_connect(scene->rig, &engine_poll, &engine_poll, 2, 0);
	s = &scene->s;
	s->o = &scene->options;
	scene->options.progress = show;
	s->report = &scene->report;
	s->vm = scene->rig->src;
	s->source = &scene->rig->source;
	s->streams = scene->rig->streams;
	s->lease = s->foreign.lease = s->source->lease = lease_new();
	s->next_ping_ns = UINT64_MAX;
	s->features = WIRE_LATE;
	s->limits.downtime_limit_ms = 600000;
	scene->report.round = 2;
	scene->report.nr_rows = 2;
	assert_int_equal(hot_pages_init(&s->hot, &s->vm, &scene->rig->e), 0);
	assert_int_equal(stripes_init(&s->stripes, &s->vm, &scene->rig->e), 0);
	rig_write_run(scene->rig, 0, HOT, 1);
	hot_pages_hold(&s->hot, s->source);
	rig_write_run(scene->rig, COLD_AT, COLD, 2);
	*state = scene;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	/* Ends a round that is under way. */
	send_streams_free(scene->rig->streams);
	scene->rig->streams = NULL;
	hot_pages_free(&scene->s.hot);
	stripes_free(&scene->s.stripes);
	lease_free(scene->s.lease);
	rig_free(scene->rig);
	free(scene);
	return 0;
}

static void step(void)
{
	assert_int_equal(late_rounds_step(&scene->s, now_ns(), &scene->rig->e), 0);
}

/* As the receiver, which has it all. */
static void acknowledge(void)
{
	assert_int_equal(receive_streams_wait_round(scene->rig->receiving, scene->s.announced, false, NULL, &scene->rig->e), 0);
	atomic_store(&scene->s.stripes.acked, scene->s.announced);
}

/* Until so many have been announced. */
static void step_until(uint32_t round)
{
	for (uint64_t end = deadline_ms(20000); scene->announced < round; nap_ms(1)) {
		assert_true(now_ns() < end);
		step();
	}
}

static void stand_still(void)
{
	struct sender *s = &scene->s;
	struct err *e = &scene->rig->e;

	s->stop_realtime_ns = realtime_ns();
	assert_int_equal(late_rounds_end(s, e), 0);
	assert_null(s->round);
	assert_int_equal(s->source->ops->harvest(s->source, e), 0);
	sender_round_begin(s, ROUND_LAST);
	assert_int_equal(sender_round_end(s, e), 0);
	assert_int_equal(receive_streams_wait_round(scene->rig->receiving, s->number, true, NULL, e), 0);
	rig_assert_equal(scene->rig);
}

static uint64_t sent(unsigned int row)
{
	return scene->report.rows[row].data_pages;
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

/* Huge pages that another process writes: a hot one has mostly what the receiver has already. */
static void what_goes_as_changes_does_not_wait(void **state)
{
	static const uint64_t pages[] = { PAGES };

	(void)state;
	scene->s.vm.blocks[0].page_size = 2 << 20;
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

#define IN_SCENE(test)	cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		IN_SCENE(what_is_hot_waits_for_the_stop),
		IN_SCENE(what_goes_as_changes_does_not_wait),
		IN_SCENE(there_are_none),
		IN_SCENE(three_may_be_under_way),
		IN_SCENE(one_harvest_too_many),
		IN_SCENE(an_empty_one_does_not_go),
		IN_SCENE(the_guest_writes_until_it_stops),
		IN_SCENE(a_step_renews_the_lease),
		IN_SCENE(what_is_posted_is_not_waited_for),
		IN_SCENE(no_queue_grows),
		IN_SCENE(what_ends_them_cuts_the_one_under_way),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
