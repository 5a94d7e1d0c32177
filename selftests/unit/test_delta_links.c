// SPDX-License-Identifier: GPL-2.0-only
/* Pages that are sent again as what has changed of them, over links that are late, or are lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include "delta_rig.h"

#define LATE	4u

/**
 * struct relay - a stream's bytes, each 16 KiB of them so late
 */
struct relay {
	int from, to;
	unsigned int nap_ns;
	pthread_t thread;
};

static void *relay_main(void *arg)
{
	struct relay *r = arg;
	const struct timespec ts = { .tv_nsec = r->nap_ns };
	char buf[16384];
	ssize_t n, m, at;

	while ((n = read(r->from, buf, sizeof(buf))) > 0) {
		nanosleep(&ts, NULL);
		for (at = 0; at < n; at += m) {
			m = write(r->to, buf + at, (size_t)(n - at));
			if (m <= 0)
				return NULL;
		}
	}
	return NULL;
}

static void connect_late(struct rig *rig, struct relay *relays)
{
	struct send_streams_options o = {
		.vm = &rig->src, .engine = engine, .pace = &rig->pace, .timeout_ms = 5000, .compress = &rig->compress,
		.features = rig->features, .delta = rig->delta,
	};
	struct receive_streams_options there = { .writer = &rig->place, .engine = engine, .timeout_ms = 5000 };
	int out[LATE], in[LATE], pair[2];

	rig->place.features = rig->features;
	for (unsigned int i = 0; i < LATE; i++) {
		assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		out[i] = pair[0];
		relays[i] = (struct relay) { .from = pair[1], .nap_ns = i ? 0 : 1000000 };
		assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		in[i] = pair[1];
		relays[i].to = pair[0];
		assert_int_equal(pthread_create(&relays[i].thread, NULL, relay_main, &relays[i]), 0);
	}
	assert_int_equal(send_streams_start(&o, out, LATE, &rig->streams, &rig->e), 0);
	assert_int_equal(receive_streams_start(&there, in, LATE, &rig->receiving, &rig->e), 0);
}

#define LATE_ROUNDS	30u

/* ACKs each round when it has arrived: there may be several on their way. */
static void *ack_main(void *arg)
{
	struct rig *rig = arg;
	struct err e = { 0 };

	for (uint32_t round = 1; round <= LATE_ROUNDS; round++) {
		if (receive_streams_wait_round(rig->receiving, round, false, NULL, &e))
			return (void *)"a round did not arrive";
		atomic_store(&rig->stripes.acked, round);
	}
	return NULL;
}

/* One stream is late by rounds, and stripes go from stream to stream: the parts are always over what they are parts of. */
static void rounds_overtake_nothing(void **state)
{
	(void)state;
	for (uint32_t seed = 1; seed <= 3; seed++) {
		struct rig *rig = delta_rig("lz4", ROOM);
		struct relay relays[LATE];
		struct round_count sum = { .data_pages = 0 };
		uint32_t random = seed;
		pthread_t acks;
		void *wrong;

		connect_late(rig, relays);
		assert_int_equal(pthread_create(&acks, NULL, ack_main, rig), 0);
		for (uint64_t page = 0; page < PAGES / 4; page++)
			fill(rig, page, &random, page % 3);
		for (unsigned int round = 0; round < LATE_ROUNDS; round++) {
			assert_int_equal(rig_send(rig, ROUND_PRECOPY), 0);
			round_count_add(&sum, &rig->count);
			for (unsigned int i = 0; i < 300; i++)
				change(rig, next_random(&random) % (PAGES / 4), &random);
		}
		pthread_join(acks, &wrong);
		assert_null(wrong);
		the_rest(rig);
		assert_true(sum.delta_pages > 1000);
		send_streams_free(rig->streams);
		rig->streams = NULL;
		for (unsigned int i = 0; i < LATE; i++) {
			pthread_join(relays[i].thread, NULL);
			close(relays[i].from);
			close(relays[i].to);
		}
		rig_free(rig);
	}
}

/* Takes the receiver away when so many bytes have been sent, at the latest after 100 ms. */
struct loss {
	struct rig *rig;
	uint64_t bytes;
	pthread_t thread;
};

static void *lose_main(void *arg)
{
	const struct timespec ts = { .tv_nsec = 10000 };
	struct loss *l = arg;

	for (unsigned int i = 0; i < 10000 && send_streams_sent(l->rig->streams) < l->bytes; i++)
		nanosleep(&ts, NULL);
	receive_streams_free(l->rig->receiving);
	return NULL;
}

/*
 * The link is lost with rounds under way, of which the receiver has got some, in part: from then on what was sent of them is
 * not what is there.
 */
static void a_lost_link_is_no_base(void **state)
{
	unsigned int failed = 0, deltas = 0;

	(void)state;
	for (uint32_t seed = 1; seed <= 12; seed++) {
		struct rig *rig = delta_rig("lz4", ROOM);
		uint32_t random = seed, stands;
		struct loss l = { .rig = rig };

		map_there = seed % MAPS_THERE;
		begin(rig, 3, &random);
		for (unsigned int loss = 0; loss < 4; loss++) {
			change_some(rig, 600, &random);
			rig_round(rig, ROUND_PRECOPY);
			deltas += rig->count.delta_pages;
			stands = rig->rounds;
			/* Not acknowledged, whether it arrives or not. */
			change_some(rig, 600, &random);
			rig_send(rig, ROUND_PRECOPY);
			change_some(rig, 600, &random);
			for (uint64_t page = 0; page < PAGES / 2; page++)
				change(rig, page, &random);
			l.bytes = send_streams_sent(rig->streams) + next_random(&random) % (1u << 20);
			assert_int_equal(pthread_create(&l.thread, NULL, lose_main, &l), 0);
			rig->e = (struct err) { 0 };
			failed += rig_send(rig, ROUND_PRECOPY) != 0;
			pthread_join(l.thread, NULL);
			send_streams_free(rig->streams);
			stripes_lost(&rig->stripes, rig->delta, stands, rig->source.map);
			rig->base = rig->rounds;
			atomic_store(&rig->stripes.acked, rig->base);
			rig->e = (struct err) { 0 };
			rig_connect(rig, engine, engine, 3, 4096);
		}
		change_some(rig, 600, &random);
		rig_round(rig, ROUND_PRECOPY);
		rig_assert_equal(rig);
		the_rest(rig);
		rig_free(rig);
	}
	map_there = false;
	assert_in_range(failed, 30, 48);
	assert_true(deltas > 3000);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(rounds_overtake_nothing), cmocka_unit_test(a_lost_link_is_no_base),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
