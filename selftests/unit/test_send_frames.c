// SPDX-License-Identifier: GPL-2.0-only
/* Frames that go beside rounds, on streams with the receiver's at the other end. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include "base/clock.h"
#include "each_engine.h"
#include "ram_rig.h"

/**
 * struct seen - what has come beside the RAM: DEVICE frames, whose first 8 bytes are a number
 * @in_order: each number was the one before plus one
 * @early, @late: before the last round was in place, and behind it
 * @wrong: RAM was not in place when a late one came
 */
struct seen {
	struct rig *rig;
	pthread_mutex_t lock;
	uint64_t next, sum;
	unsigned int early, late;
	bool out_of_order, wrong;
};

static int see(void *arg, struct channel *ch, const struct wire_header *h, bool placed, struct err *e)
{
	static _Thread_local uint8_t body[8 + WIRE_DEVICE_MAX];
	struct seen *seen = arg;
	int r = channel_body(ch, body, h->length, e);

	pthread_mutex_lock(&seen->lock);
	seen->out_of_order |= wire_get_u64(body) != seen->next++;
	seen->sum += wire_get_u64(body);
	seen->early += !placed;
	seen->late += placed;
	if (placed)
		seen->wrong |= memcmp(seen->rig->ram, seen->rig->there, PAGES * PAGE_BYTES);
	pthread_mutex_unlock(&seen->lock);
	return r;
}

static int seen_all(void *arg, struct err *e)
{
	struct seen *seen = arg;
	bool all;

	(void)e;
	pthread_mutex_lock(&seen->lock);
	all = seen->early + seen->late == 300;
	pthread_mutex_unlock(&seen->lock);
	return all;
}

static void connect_to_see(struct rig *rig, unsigned int n, struct seen *seen)
{
	struct send_streams_options o = { .vm = &rig->src, .engine = engine, .pace = &rig->pace, .compress = &rig->compress, .timeout_ms = 60000 };
	struct receive_streams_options there = {
		.writer = &rig->place, .engine = engine, .timeout_ms = 60000, .frame = see, .arg = seen,
	};
	int out[WIRE_STREAMS_MAX], in[WIRE_STREAMS_MAX], pair[2];

	*seen = (struct seen) { .rig = rig };
	pthread_mutex_init(&seen->lock, NULL);
	for (unsigned int i = 0; i < n; i++) {
		assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		out[i] = pair[0];
		in[i] = pair[1];
	}
	assert_int_equal(send_streams_start(&o, out, n, &rig->streams, &rig->e), 0);
	assert_int_equal(receive_streams_start(&there, in, n, &rig->receiving, &rig->e), 0);
}

static void post(struct rig *rig, uint64_t from, uint64_t to, uint32_t bytes, bool first)
{
	static uint8_t body[8 + WIRE_DEVICE_MAX];
	struct wire_header h = { .type = WIRE_DEVICE, .length = 8 + bytes };

	for (; from < to; from++) {
		wire_put_u64(body, from);
		assert_int_equal(send_streams_post(rig->streams, &h, body, first, &rig->e), 0);
	}
}

/* Before, in and behind the last round: each comes once, what was posted before it on its stream comes before its end. */
static void frames_go_beside_rounds(void **state)
{
	struct rig *rig = *state;
	struct round rd;
	struct seen seen;

	connect_to_see(rig, 3, &seen);
	rig_write_run(rig, 0, PAGES, 1);
	post(rig, 0, 100, 100, true);
	rig->stripes.round = ++rig->rounds;
	round_begin(&rd, &rig->src, &rig->source, ROUND_LAST, NULL, &rig->stripes);
	send_streams_begin(rig->streams, &rd, rig->rounds);
	post(rig, 100, 200, 20000, false);
	assert_int_equal(send_streams_wait(rig->streams, &rig->count, &rig->e), 0);
	round_end(&rd);
	post(rig, 200, 300, 20000, false);
	assert_int_equal(send_streams_wait(rig->streams, NULL, &rig->e), 0);
	assert_int_equal(receive_streams_wait_round(rig->receiving, rig->rounds, true, NULL, &rig->e), 0);
	assert_int_equal(receive_streams_wait(rig->receiving, seen_all, &seen, NULL, &rig->e), 0);
	assert_int_equal(seen.sum, 299 * 300 / 2);
	assert_true(seen.early >= 100 && seen.late >= 100);
	assert_false(seen.wrong);
	rig_assert_equal(rig);
	receive_streams_stop(rig->receiving);
}

static void the_first_stream_keeps_the_order(void **state)
{
	struct rig *rig = *state;
	struct seen seen;

	connect_to_see(rig, 4, &seen);
	post(rig, 0, 200, 3000, true);
	rig_write_run(rig, 0, 1000, 1);
	assert_int_equal(rig_send(rig, ROUND_PRECOPY), 0);
	post(rig, 200, 300, 3000, true);
	assert_int_equal(send_streams_wait(rig->streams, NULL, &rig->e), 0);
	assert_int_equal(receive_streams_wait(rig->receiving, seen_all, &seen, NULL, &rig->e), 0);
	assert_false(seen.out_of_order);
	assert_int_equal(seen.early, 300);
}

/* No peer reads, and then there is none: the posting thread hears that, and waits no longer. */
static void posting_to_nobody_ends(void **state)
{
	static uint8_t body[8 + WIRE_DEVICE_MAX];
	struct wire_header h = { .type = WIRE_DEVICE, .length = sizeof(body) };
	struct canceller c = { 0 };
	struct rig *rig = *state;
	uint64_t start = now_ns();
	int peers[2], r = 0;

	rig->idle = give_up;
	rig->idle_arg = &c;
	rig_connect_to_nobody(rig, engine, 2, 0, peers);
	for (unsigned int i = 0; i < 100 && !r; i++)
		r = send_streams_post(rig->streams, &h, body, false, &rig->e);
	assert_int_not_equal(r, 0);
	assert_int_equal(rig->e.exit, GW_CANCELLED);
	assert_in_range(now_ns() - start, 200 * MS, 10000 * MS);
	close_all(peers, 2);
}

static void one_that_breaks_ends_posting(void **state)
{
	static uint8_t body[8 + WIRE_DEVICE_MAX];
	struct wire_header h = { .type = WIRE_DEVICE, .length = sizeof(body) };
	struct rig *rig = *state;
	int peers[2], r = 0;

	rig_connect_to_nobody(rig, engine, 2, 0, peers);
	close_all(peers, 2);
	for (unsigned int i = 0; i < 100 && !r; i++)
		r = send_streams_post(rig->streams, &h, body, i % 2, &rig->e);
	if (!r)
		r = send_streams_wait(rig->streams, NULL, &rig->e);
	assert_int_not_equal(r, 0);
	assert_int_equal(rig->e.exit, GW_LINK_LOST);
}

#define TEST(f)	cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
static const struct CMUnitTest tests[] = {
	TEST(frames_go_beside_rounds), TEST(the_first_stream_keeps_the_order), TEST(posting_to_nobody_ends),
	TEST(one_that_breaks_ends_posting),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
