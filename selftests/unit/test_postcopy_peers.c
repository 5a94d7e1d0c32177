// SPDX-License-Identifier: GPL-2.0-only
/* What a peer of post-copy can do wrong: by will, at either end, on the streams and on the request connection; and its loss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "postcopy_rig.h"
#include "receive/receiver_internal.h"

/* A sender of ill will: the frames that it sends on the request connection; each ends it. */
static void bad_answer(const struct wire_extent *x, unsigned int n, uint16_t type, unsigned int asks, const char *says)
{
	uint8_t frame[WIRE_HEADER + 4 * WIRE_EXTENT + 4 * PAGE_BYTES] = { 0 };
	struct wire_header h = { .type = type, .arg = n, .length = n * WIRE_EXTENT };
	size_t sum = 0;
	int fds[2];

	open_both(1, 0);
	pair(fds);
	begin_requests(fds[0]);
	for (unsigned int i = 0; i < asks; i++) {
		uint8_t want[WIRE_HEADER + WIRE_EXTENT];

		rig_act(&rig, 0, i, ACT_LOOK, 10 + i, 1);
		assert_int_equal(recv(fds[1], want, sizeof(want), MSG_WAITALL), sizeof(want));
	}
	for (unsigned int i = 0; i < n; i++) {
		wire_put_extent(frame + WIRE_HEADER + i * WIRE_EXTENT, &x[i]);
		sum += x[i].kind == WIRE_DATA ? x[i].pages * PAGE_BYTES : 0;
	}
	h.length += (uint32_t)sum;
	wire_put_header(frame, &h);
	assert_int_equal(send(fds[1], frame, WIRE_HEADER + h.length, MSG_NOSIGNAL), WIRE_HEADER + h.length);
	for (uint64_t end = deadline_ms(SOON_MS); !requests_failed(l.requests, &l.e) && now_ns() < end;)
		nap_ms(1);
	assert_true(requests_failed(l.requests, &l.e));
	assert_int_equal(l.e.exit, GW_BAD_PEER);
	if (!strstr(l.e.text, says))
		fail_msg("\"%s\" is not in \"%s\"", says, l.e.text);
	close(fds[1]);
	close_both();
}

static void a_sender_of_ill_will(void **state)
{
	const struct wire_extent ten = { .pages = 1, .first = 10 }, eleven = { .pages = 1, .first = 11 };
	const struct wire_extent twice[] = { ten, ten }, more = { .pages = 2, .first = 10 };
	const struct wire_extent outside = { .pages = 1, .first = PAGES }, block = { .block = 1, .pages = 1 };
	const struct wire_extent never = { .pages = 1, .first = OWED }, zero = { .kind = WIRE_ZERO, .pages = 1, .first = 11 };

	(void)state;
	bad_answer(&ten, 1, WIRE_RAM, 0, "was not asked for it");
	bad_answer(&eleven, 1, WIRE_RAM, 1, "was not asked for it");
	bad_answer(&zero, 1, WIRE_RAM, 1, "was not asked for it");
	bad_answer(twice, 2, WIRE_RAM, 1, "was not asked for it");
	bad_answer(&more, 1, WIRE_RAM, 2, "was not asked for it");
	bad_answer(&never, 1, WIRE_RAM, 1, "was not asked for it");
	bad_answer(&outside, 1, WIRE_RAM, 1, "outside of the guest's RAM");
	bad_answer(&block, 1, WIRE_RAM, 1, "outside of the guest's RAM");
	bad_answer(&ten, 1, WIRE_DELTA, 1, "DELTA on the request connection");
	bad_answer(NULL, 0, WIRE_COMMIT, 1, "COMMIT on the request connection");
}

/* On a stream: pages that are not owed, RAM behind its end, and a part of a page that was taken away. */
static void a_stream_of_ill_will(void **state)
{
	static const struct { uint64_t first; bool ended, part; const char *says; } bad[] = {
		{ OWED, false, false, "did not owe" }, { PAGES, false, false, "outside of" },
		{ 3, true, false, "sent RAM after the last round" }, { 3, false, true, "parts of pages after the last round" },
		{ OWED, false, true, "parts of pages after the last round" },
	};

	(void)state;
	for (unsigned int i = 0; i < 5; i++) {
		struct receive_streams_options in = { .writer = &l.writer, .engine = &engine_poll, .timeout_ms = 5000 };
		struct wire_header round = { .type = WIRE_ROUND, .flags = WIRE_ROUND_LAST, .arg = 1 };
		struct wire_header ram = { .type = WIRE_RAM, .arg = 1, .length = WIRE_EXTENT + PAGE_BYTES };
		uint8_t frame[WIRE_HEADER + WIRE_EXTENT + PAGE_BYTES] = { 0 };
		struct wire_extent x = { .pages = 1, .first = bad[i].first };
		int fds[2], requests[2];

		open_both(1, WIRE_DELTAS);
		pair(fds);
		pair(requests);
		assert_return_code(receive_streams_start(&in, &fds[0], 1, &l.in, &l.e), 0);
		receive_streams_hold(l.in);
		wire_put_header(frame, &round);
		assert_int_equal(send(fds[1], frame, WIRE_HEADER, 0), WIRE_HEADER);
		assert_return_code(receive_streams_wait_round(l.in, 1, true, NULL, &l.e), 0);
		begin_requests(requests[0]);
		receive_streams_release(l.in);
		round = (struct wire_header) { .type = WIRE_ROUND, .arg = 2 };
		wire_put_header(frame, &round);
		if (bad[i].ended)
			assert_int_equal(send(fds[1], frame, WIRE_HEADER, 0), WIRE_HEADER);
		if (bad[i].part) {
			ram.type = WIRE_DELTA;
			ram.length = WIRE_EXTENT + WIRE_PACKED_HEAD + 1 + WIRE_PART;
			x.kind = WIRE_PARTS;
			frame[WIRE_HEADER + WIRE_EXTENT + WIRE_PACKED_HEAD] = 1;
		}
		wire_put_header(frame, &ram);
		wire_put_extent(frame + WIRE_HEADER, &x);
		assert_int_equal(send(fds[1], frame, WIRE_HEADER + ram.length, 0), WIRE_HEADER + ram.length);
		for (uint64_t end = deadline_ms(SOON_MS); !atomic_load(receive_streams_failed(l.in)) && now_ns() < end;)
			nap_ms(1);
		receive_streams_error(l.in, &l.e);
		assert_int_equal(l.e.exit, GW_BAD_PEER);
		if (!strstr(l.e.text, bad[i].says))
			fail_msg("\"%s\" is not in \"%s\"", bad[i].says, l.e.text);
		assert_int_equal(rig.ram.owed.left, OWED);
		close(fds[1]);
		close(requests[1]);
		close_both();
	}
}

/* A frame on a stream, of one extent. */
static void send_ram(int fd, const struct wire_extent *x)
{
	uint8_t frame[WIRE_HEADER + WIRE_EXTENT + PAGE_BYTES];
	struct wire_header h = { .type = WIRE_RAM, .arg = 1, .length = WIRE_EXTENT };

	if (x->kind == WIRE_DATA) {
		h.length += PAGE_BYTES;
		rig_fill(frame + WIRE_HEADER + WIRE_EXTENT, x->first, V_NEW);
	}
	wire_put_header(frame, &h);
	wire_put_extent(frame + WIRE_HEADER, x);
	assert_int_equal(send(fd, frame, WIRE_HEADER + h.length, 0), WIRE_HEADER + h.length);
}

static void wait_left(uint64_t left)
{
	for (uint64_t end = deadline_ms(SOON_MS); atomic_load(&rig.ram.owed.left) != left && now_ns() < end;)
		nap_ms(1);
	assert_int_equal(rig.ram.owed.left, left);
	assert_false(atomic_load(receive_streams_failed(l.in)));
}

/* What is pushed before the receiver is ready waits. And a long run of one byte comes in several steps. */
static void a_stream_that_is_early(void **state)
{
	const struct receive_streams_options in = { .writer = &l.writer, .engine = &engine_poll, .timeout_ms = 5000 };
	const struct wire_header round = { .type = WIRE_ROUND, .flags = WIRE_ROUND_LAST, .arg = 1 };
	uint8_t frame[WIRE_HEADER], want[PAGE_BYTES], page[PAGE_BYTES];
	int fds[2], requests[2];

	(void)state;
	open_both(1, WIRE_FILL);
	pair(fds);
	pair(requests);
	assert_return_code(receive_streams_start(&in, &fds[0], 1, &l.in, &l.e), 0);
	receive_streams_hold(l.in);
	wire_put_header(frame, &round);
	assert_int_equal(send(fds[1], frame, WIRE_HEADER, 0), WIRE_HEADER);
	send_ram(fds[1], &(struct wire_extent) { .pages = 1, .first = 6 });
	assert_return_code(receive_streams_wait_round(l.in, 1, true, NULL, &l.e), 0);
	nap_ms(100);
	assert_false(atomic_load(receive_streams_failed(l.in)));
	begin_requests(requests[0]);
	receive_streams_release(l.in);
	wait_left(OWED - 1);
	send_ram(fds[1], &(struct wire_extent) { .kind = WIRE_SAME_OF(0xa5), .pages = 200, .first = 100 });
	wait_left(OWED - 201);
	memset(want, 0xa5, sizeof(want));
	for (uint64_t p = 100; p < 300; p++) {
		assert_int_equal(pread(l.there.blocks[0].fd, page, sizeof(page), (off_t)(p * PAGE_BYTES)), sizeof(page));
		assert_memory_equal(page, want, sizeof(page));
	}
	close(fds[1]);
	close(requests[1]);
	close_both();
}

/* A receiver of ill will. */
static void bad_question(const struct wire_extent *x, unsigned int n, uint16_t type, const char *says)
{
	struct wire_header h = { .type = type, .arg = n, .length = n * WIRE_EXTENT };
	uint8_t frame[WIRE_HEADER + 4 * WIRE_EXTENT];
	int fds[2];

	open_both(1, 0);
	pair(fds);
	begin_answers(fds[1]);
	wire_put_header(frame, &h);
	for (unsigned int i = 0; i < n; i++)
		wire_put_extent(frame + WIRE_HEADER + i * WIRE_EXTENT, &x[i]);
	assert_int_equal(send(fds[0], frame, WIRE_HEADER + h.length, 0), WIRE_HEADER + h.length);
	for (uint64_t end = deadline_ms(SOON_MS); !answers_check(l.answers, &l.e) && now_ns() < end;)
		nap_ms(1);
	assert_int_equal(l.e.exit, GW_BAD_PEER);
	if (!strstr(l.e.text, says))
		fail_msg("\"%s\" is not in \"%s\"", says, l.e.text);
	close(fds[0]);
	close_both();
}

static void a_receiver_of_ill_will(void **state)
{
	const struct wire_extent twice[] = { { .pages = 1, .first = 10 }, { .pages = 1, .first = 10 } };
	const struct wire_extent never = { .pages = 1, .first = OWED }, outside = { .pages = 1, .first = PAGES };
	const struct wire_extent many = { .pages = 2, .first = 10 };

	(void)state;
	bad_question(twice, 2, WIRE_WANT, "or twice");
	bad_question(&never, 1, WIRE_WANT, "is not owed");
	bad_question(&outside, 1, WIRE_WANT, "malformed");
	bad_question(&many, 1, WIRE_WANT, "malformed");
	bad_question(NULL, 0, WIRE_COMPLETE, "COMPLETE on the request connection");
}

/* The streams go on where the guest is. */
static void a_fault_leads_the_push(void **state)
{
	const struct wire_header h = { .type = WIRE_WANT, .arg = 1, .length = WIRE_EXTENT };
	const struct wire_extent want = { .pages = 1, .first = 1000 };
	uint8_t frame[WIRE_HEADER + WIRE_EXTENT], answer[WIRE_HEADER + WIRE_EXTENT];
	struct wire_extent x;
	int fds[2];

	(void)state;
	open_both(1, 0);
	pair(fds);
	begin_answers(fds[1]);
	wire_put_header(frame, &h);
	wire_put_extent(frame + WIRE_HEADER, &want);
	assert_int_equal(send(fds[0], frame, sizeof(frame), 0), sizeof(frame));
	assert_int_equal(recv(fds[0], answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
	assert_memory_equal(answer + WIRE_HEADER, frame + WIRE_HEADER, WIRE_EXTENT);
	assert_true(push_take(&l.push, 64, &x));
	assert_int_equal(x.first, 1000 - 1000 % PUSH_STRIPE);
	close(fds[0]);
	close_both();
}

/* The link goes: both ends say so, and no fault sees zeros. */
static void the_link_is_lost(void **state)
{
	int fds[2];

	(void)state;
	open_both(1, 0);
	pair(fds);
	begin_requests(fds[0]);
	rig_act(&rig, 0, 0, ACT_LOOK, 10, 1);
	nap_ms(50);
	close(fds[1]);
	for (uint64_t end = deadline_ms(SOON_MS); !requests_failed(l.requests, &l.e) && now_ns() < end;)
		nap_ms(1);
	assert_int_equal(l.e.exit, GW_LINK_LOST);
	nap_ms(50);
	assert_true(rig.guest[0]->actor[0].busy);
	close_both();
}

static void *end_soon(void *fd)
{
	nap_ms(300);
	shutdown(*(int *)fd, SHUT_RDWR);
	return NULL;
}

/* A stream ends while the receiver tells of itself, on a connection that takes nothing just then: the link is lost. */
static void a_stream_ends_while_the_receiver_tells(void **state)
{
	const struct receiver_options o = { .timeout_ms = 60000 };
	const struct receive_streams_options in = { .writer = &l.writer, .engine = &engine_poll, .timeout_ms = 5000 };
	struct receiver r = { .o = &o, .lfd = -1, .vm = { .pidfd = -1 }, .postcopy = POSTCOPY_NONE };
	static const uint8_t bytes[4096];
	int control[2], stream[2], requests[2];
	pthread_t thread;

	(void)state;
	open_both(1, 0);
	pair(control);
	pair(stream);
	pair(requests);
	assert_return_code(receive_streams_start(&in, &stream[0], 1, &l.in, &l.e), 0);
	begin_requests(requests[0]);
	while (send(control[0], bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	assert_return_code(channel_new(control[0], &engine_poll, o.timeout_ms, &r.ch, &l.e), 0);
	channel_interrupt(r.ch, receive_streams_failed(l.in));
	r.streams = l.in;
	r.postcopy.requests = l.requests;
	r.postcopy.lazy.owed.left = 1;
	assert_int_equal(pthread_create(&thread, NULL, end_soon, &stream[1]), 0);
	assert_int_equal(postcopy_finish(&r, &l.e), -ECANCELED);
	assert_ptr_equal(strstr(l.e.text, "the connection to the other host broke: "), l.e.text);
	pthread_join(thread, NULL);
	channel_free(r.ch);
	close(control[1]);
	close(stream[1]);
	close(requests[1]);
	close_both();
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_sender_of_ill_will),
	cmocka_unit_test(a_stream_of_ill_will),
	cmocka_unit_test(a_stream_that_is_early),
	cmocka_unit_test(a_receiver_of_ill_will),
	cmocka_unit_test(a_fault_leads_the_push),
	cmocka_unit_test(the_link_is_lost),
	cmocka_unit_test(a_stream_ends_while_the_receiver_tells),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
