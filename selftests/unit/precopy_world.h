/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What pre-copy is made to see: a link of 12.5 MB/s; rounds, the guest and the clock are made up here. Include after cmocka.h,
 * in one file of a program: it has functions of the sender's.
 */
#ifndef GODWIT_PRECOPY_WORLD_H
#define GODWIT_PRECOPY_WORLD_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "page/page.h"
#include "qmp/qmp_latency.h"
#include "send/sender_internal.h"

#define MS	1000000ull
#define S	1000000000ull
#define LINK	12500000ull
#define PACKED	1300u		/* what a page takes */
#define DIRTY	2700u		/* pages after each round: packed they are less than 4 MiB */
#define ALL	20000u		/* in the first round */
#define SEGMENT		1448u
#define READ_NS	250u		/* to read a page */
#define HUGE	262144u		/* pages of a huge one */

enum when { NEVER, IN_THE_ROUND, IN_THE_HARVEST, BEFORE_THE_ROUND, WHEN_IT_FITS };

/**
 * struct world
 * @zeros: so many more are dirty each time, and are zeros
 * @when: the operator changes, once, how RAM is packed, to @to, around the end of round @round
 */
static struct world {
	uint64_t now, bytes, zeros;
	enum when when;
	unsigned int round;
	const char *to;
	struct sender *s;
	bool owes, early;
	struct sock_sent tcp;
	double lost;
} world;

/* Of the segments that TCP sends in the first round, and in all others, so many are lost. */
static double first_loses, others_lose;
static bool knows_tcp;

/* QEMU maps other RAM since this round; 0: never. */
static unsigned int exchanged_in;

/* Only its address counts. */
const struct devstate_ops devstate_save = { .state = NULL };

static void operator_at(enum when when, unsigned int round)
{
	struct codec_wish wish;
	struct err e = { 0 };

	if (world.when != when || world.round != round)
		return;
	assert_int_equal(codec_parse(world.to, &wish, &e), 0);
	atomic_store(&world.s->compress, codec_wish_word(&wish));
	world.when = NEVER;
}

/* lz4: all pages are of one word. */
static double page_now(void)
{
	const struct codec_wish wish = codec_word_wish(atomic_load(&world.s->compress));

	if (wish.kind == CODEC_OFF)
		return PAGE_BYTES;
	return wish.choice.codec == &codec_lz4 ? 36. / 64 : PACKED;
}

uint64_t __wrap_now_ns(void);
uint64_t __wrap_now_ns(void)
{
	return world.now;
}

static void send_pages(struct report_row *row, uint64_t pages)
{
	const uint64_t bytes = (uint64_t)((double)pages * page_now());

	row->data_pages += pages;
	row->page_bytes += bytes;
	world.bytes += bytes;
	world.now += bytes * S / LINK;
	if (!knows_tcp)
		return;
	world.tcp.segment = SEGMENT;
	world.tcp.segments += bytes / SEGMENT;
	world.lost += (double)(bytes / SEGMENT) * (world.s->report->round > 1 ? others_lose : first_loses);
	world.tcp.again = (uint64_t)world.lost;
}

int sender_round(struct sender *s, struct err *e)
{
	struct report_row *row = s->report->rows;
	const uint64_t pages = s->report->round++ ? DIRTY : ALL;

	(void)e;
	*row = (struct report_row) { .first = 1 };
	s->report->nr_rows = 1;
	send_pages(row, pages / 2);
	operator_at(IN_THE_ROUND, s->report->round);
	send_pages(row, pages / 2);
	row->zero_pages = world.zeros;
	world.now += world.zeros * READ_NS;
	return 0;
}

int sender_renew_lease(struct sender *s, struct err *e)
{
	(void)e;
	operator_at(BEFORE_THE_ROUND, s->report->round);
	return 0;
}

static int harvest(struct dirty_source *source, struct err *e)
{
	(void)e;
	operator_at(IN_THE_HARVEST, world.s->report->round);
	source->changed = exchanged_in && world.s->report->round >= exchanged_in;
	return 0;
}

int sender_check_fit(struct sender *s, bool *changed, struct err *e)
{
	(void)e;
	operator_at(WHEN_IT_FITS, s->report->round);
	*changed = false;
	return 0;
}

int sender_end_reuse(struct sender *s, struct err *e)
{
	(void)s;
	(void)e;
	return 0;
}

static int start(struct dirty_source *source, struct err *e)
{
	(void)source;
	(void)e;
	return 0;
}

int source_pending(const struct vm *vm, struct dirty_source *source, uint64_t *pages, struct err *e)
{
	(void)vm;
	(void)source;
	(void)e;
	*pages = DIRTY + world.zeros;
	return 0;
}

uint64_t sender_bytes(const struct sender *s)
{
	(void)s;
	return world.bytes;
}

uint64_t send_streams_queued(const struct send_streams *st)
{
	(void)st;
	return 0;
}

struct sock_sent send_streams_tcp(const struct send_streams *st)
{
	(void)st;
	return world.tcp;
}

void sender_progress(struct sender *s)
{
	(void)s;
}

int sender_check_writers(struct sender *s, struct err *e)
{
	(void)s;
	(void)e;
	return 0;
}

int sender_check_mapped(struct sender *s, struct err *e)
{
	assert_true(s->source->changed);
	return err_set(e, GW_VM_STATE, EAGAIN, "exchanged");
}

int sender_ask_switchover(struct sender *s, struct err *e)
{
	(void)s;
	(void)e;
	return 0;
}

void sender_slow(struct sender *s)
{
	s->report->throttle = s->limits.throttle == THROTTLE_AUTO ? s->slowed : s->limits.throttle;
}

int vcpus_find(struct qmp *q, pid_t pid, struct vcpus *v, struct err *e)
{
	(void)q;
	(void)e;
	*v = (struct vcpus) { .pid = pid };
	return 0;
}

bool owing_wanted(const struct sender *s)
{
	return s->owing.agreed && s->limits.postcopy >= POSTCOPY_ON;
}

int owing_choose(struct sender *s, struct err *e)
{
	(void)e;
	s->owing.chosen = world.owes = true;
	return 0;
}

/* The guest runs still, and it is decided. */
int owing_early(struct sender *s, struct err *e)
{
	(void)e;
	assert_true(s->owing.chosen);
	world.early = true;
	return 0;
}

int connect_again(struct sender *s, int r, struct err *e)
{
	(void)s;
	(void)e;
	return r;
}

int source_check_mappers(struct dirty_source *source, const char *root, struct err *e)
{
	(void)source;
	(void)root;
	(void)e;
	return 0;
}

int dirty_rate_begin(struct qmp *q, struct dirty_rate *last, struct err *e)
{
	(void)q;
	(void)last;
	(void)e;
	return 0;
}

int dirty_rate_check(struct qmp *q, struct dirty_rate *last, bool guest_stopped, struct err *e)
{
	(void)q;
	(void)last;
	(void)guest_stopped;
	(void)e;
	return 0;
}

int qmp_latency_measure(struct qmp_latency *t, struct qmp *q, struct err *e)
{
	(void)t;
	(void)q;
	(void)e;
	return 0;
}

uint64_t qmp_latency_median(const struct qmp_latency *t)
{
	(void)t;
	return 0;
}

/* Of a page of 1 GiB that another process writes; some of it was zeros, some was not. */
static void has_a_huge_page(struct sender *s, struct dirty_source *source, uint64_t zeros)
{
	struct err e = { 0 };

	s->vm.nblocks = 1;
	s->vm.blocks[0].pages = HUGE;
	s->vm.blocks[0].page_size = 1u << 30;
	assert_int_equal(zeros_init(&s->zeros, &s->vm, &e), 0);
	for (uint64_t p = HUGE - zeros; p < HUGE; p++)
		zeros_note(&s->zeros, 0, p, true);
	source->map[0] = malloc(HUGE / 8);
	memset(source->map[0], 0xff, HUGE / 8);
}

static uint64_t zeros_now;
static enum postcopy_wish wish_now;
static unsigned int throttle_now;
static bool can_owe;
static uint64_t rtt_now;

/* What precopy() returns. */
static int try_migrate(struct report *rep, struct err *e, unsigned int limit_ms, unsigned int rounds, const char *from,
		       enum when when, unsigned int round, const char *to)
{
	static const struct dirty_ops ops = { .start = start, .harvest = harvest };
	static struct sender s;
	struct dirty_source source = { .ops = &ops };
	struct codec_wish wish;
	int r;

	*rep = (struct report) { .phase = "" };
	memset(&s, 0, sizeof(s));
	s.report = rep;
	s.rtt_ns = rtt_now;
	rep->streams = 16;
	s.source = &source;
	s.limits.downtime_limit_ms = limit_ms;
	s.limits.max_rounds = rounds;
	s.limits.postcopy = wish_now;
	s.limits.throttle = throttle_now;
	s.owing.agreed = can_owe;
	assert_int_equal(codec_parse(from, &wish, e), 0);
	atomic_store(&s.compress, codec_wish_word(&wish));
	world = (struct world) {
		.now = S, .when = when, .round = round, .to = to, .s = &s, .zeros = zeros_now,
	};
	if (zeros_now)
		has_a_huge_page(&s, &source, zeros_now);
	r = precopy(&s, e);
	zeros_free(&s.zeros);
	free(source.map[0]);
	return r;
}

/* Pre-copy until the switchover. */
static struct report migrate(unsigned int limit_ms, unsigned int rounds, const char *from, enum when when, unsigned int round,
			     const char *to)
{
	static struct report report;
	struct err e = { 0 };

	assert_int_equal(try_migrate(&report, &e, limit_ms, rounds, from, when, round, to), 0);
	assert_int_equal(world.when, NEVER);
	return report;
}

#endif
