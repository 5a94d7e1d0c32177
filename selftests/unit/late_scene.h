/* SPDX-License-Identifier: GPL-2.0-only */
/* A sender between `migrate` and the guest's stop. Include after cmocka.h, in one file of a program: it wraps functions. */
#ifndef GODWIT_LATE_SCENE_H
#define GODWIT_LATE_SCENE_H

#include <errno.h>

#include "base/clock.h"
#include "ram_rig.h"
#include "send/sender_internal.h"

#define HOT	40u	/* pages, from the first on */
#define COLD	600u	/* from page COLD_AT on, written once */
#define COLD_AT	1000u
#define IN_SCENE(test)	cmocka_unit_test_setup_teardown(test, setup, teardown)

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

static inline int harvest(struct dirty_source *source, struct err *e)
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

static inline void show(const struct report *r, void *arg)
{
	(void)arg;
	if (r->rows[r->nr_rows - 1].late)
		scene->shown = r->round;
}

static const struct dirty_ops ops = { .name = "scripted", .harvest = harvest, .clear = rig_clear, .next_data = rig_next_data };

/* Pre-copy is over, and its last harvest has found pages that were written before, and others. */
static inline int setup(void **state)
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

static inline int teardown(void **state)
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

static inline void step(void)
{
	assert_int_equal(late_rounds_step(&scene->s, now_ns(), &scene->rig->e), 0);
}

/* As the receiver, which has it all. */
static inline void acknowledge(void)
{
	assert_int_equal(receive_streams_wait_round(scene->rig->receiving, scene->s.announced, false, NULL, &scene->rig->e), 0);
	atomic_store(&scene->s.stripes.acked, scene->s.announced);
}

/* Until so many have been announced. */
static inline void step_until(uint32_t round)
{
	for (uint64_t end = deadline_ms(20000); scene->announced < round; nap_ms(1)) {
		assert_true(now_ns() < end);
		step();
	}
}

static inline void stand_still(void)
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

static inline uint64_t sent(unsigned int row)
{
	return scene->report.rows[row].data_pages;
}

#endif
