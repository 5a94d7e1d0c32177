// SPDX-License-Identifier: GPL-2.0-only
/*
 * Post-copy from the source's file to the guests that touch its pages elsewhere: streams that push, the request connection
 * and its threads at both ends, and a real userfaultfd of each guest. Then peers of ill will, at either end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <cmocka.h>

#define PAGES	2048u
#include "lazy_rig.h"
#include "receive/receive_streams.h"
#include "receive/requests.h"
#include "send/answers.h"
#include "send/send_streams.h"

#define STREAMS	2u
#define OWED	1536u

static struct lazy_rig rig;

/* @src: its RAM is as at the stop; @there: the destination's, as the writer knows it */
static struct link {
	struct vm src, there;
	struct dirty_source source;
	struct ram_writer writer;
	struct stripes stripes;
	struct pace pace;
	struct owed owed;
	struct push push;
	struct round round;
	struct send_streams *out;
	struct receive_streams *in;
	struct answers *answers;
	struct requests *requests;
	int peer;
	struct err e;
} l;

static void no_clear_is_due(void)
{
	fail_msg("nothing is cleared after the stop");
}

static int next_data(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t end, bool exact, uint64_t *run_first,
		     uint64_t *run_count, struct err *e)
{
	return file_next_data(s->vm->blocks[block].fd, first, end, exact, run_first, run_count, e);
}

static const struct dirty_ops ops = { .name = "at rest", .clear = (void *)no_clear_is_due, .next_data = next_data };

static void pair(int fds[2])
{
	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), errno);
}

static int file_of_ram(void)
{
	int file = memfd_create("ram", MFD_CLOEXEC);

	assert_return_code(ftruncate(file, (off_t)PAGES * PAGE_BYTES), errno);
	return file;
}

/* Pages [0, OWED) were written since they were sent; what kind they are goes round. */
static void open_both(uint32_t unit, uint64_t features)
{
	static const enum version kinds[] = { V_NEW, V_NEW, V_ZERO, V_NEW, V_SAME };
	const uint64_t pages = PAGES;
	uint8_t page[PAGE_BYTES];
	int file = file_of_ram();

	memset(&l, 0, sizeof(l));
	l.src = (struct vm) { .nblocks = 1, .blocks = { { .name = "ram0", .pages = PAGES, .page_size = PAGE_BYTES, .fd = file_of_ram() } } };
	l.there = l.src;
	l.there.blocks[0].fd = file;
	assert_return_code(ram_writer_open(&l.writer, &l.there, &l.e), 0);
	l.writer.features = features;
	rig_open(&rig, file, unit, 2, OWED);
	rig_owe(&rig, 0, OWED);
	for (uint64_t p = 0; p < OWED; p++) {
		rig.want[p] = kinds[p % 5];
		rig_fill(page, p, kinds[p % 5]);
		assert_int_equal(pwrite(l.src.blocks[0].fd, page, sizeof(page), (off_t)(p * PAGE_BYTES)), sizeof(page));
	}
	l.source = (struct dirty_source) { .ops = &ops, .vm = &l.src };
	l.source.map[0] = calloc(PAGES / 64 + 1, 8);
	assert_return_code(stripes_init(&l.stripes, &l.src, &l.e), 0);
	assert_return_code(owed_init(&l.owed, &pages, &unit, 1, &l.e), 0);
	assert_return_code(owed_add(&l.owed, 0, 0, OWED), 0);
	push_init(&l.push, &l.owed);
}

static void begin_requests(int fd)
{
	const struct requests_options o = { .fd = fd, .engine = &engine_poll, .writer = &l.writer, .timeout_ms = 5000 };

	assert_return_code(lazy_punch(&rig.ram, &rig.e), 0);
	l.writer.lazy = &rig.ram;
	assert_return_code(requests_start(&o, &l.requests, &l.e), 0);
}

static void begin_answers(int fd)
{
	const struct answers_options o = {
		.vm = &l.src, .owed = &l.owed, .push = &l.push, .engine = &engine_poll, .fd = fd, .timeout_ms = 5000,
	};

	assert_return_code(answers_start(&o, &l.answers, &l.e), 0);
}

static void close_both(void)
{
	send_streams_free(l.out);
	answers_free(l.answers);
	requests_free(l.requests);
	receive_streams_free(l.in);
	l.writer.lazy = NULL;
	ram_writer_close(&l.writer);
	push_free(&l.push);
	owed_free(&l.owed);
	stripes_free(&l.stripes);
	free(l.source.map[0]);
	close(l.src.blocks[0].fd);
	rig_close(&rig);
}

static void open_streams(uint64_t features, uint64_t bytes_per_s)
{
	struct send_streams_options out = {
		.vm = &l.src, .engine = &engine_poll, .pace = &l.pace, .timeout_ms = 5000, .features = features,
	};
	const struct receive_streams_options in = { .writer = &l.writer, .engine = &engine_poll, .timeout_ms = 5000 };
	int there[STREAMS], here[STREAMS], fds[2];

	pace_init(&l.pace, bytes_per_s);
	assert_return_code(codec_parse(features ? "lz4" : "off", &out.compress, &l.e), 0);
	for (unsigned int i = 0; i < STREAMS; i++) {
		pair(fds);
		here[i] = fds[0];
		there[i] = fds[1];
	}
	assert_return_code(send_streams_start(&out, here, STREAMS, &l.out, &l.e), 0);
	assert_return_code(receive_streams_start(&in, there, STREAMS, &l.in, &l.e), 0);
}

static void last_round(void)
{
	receive_streams_hold(l.in);
	l.stripes.round = 1;
	round_begin(&l.round, &l.src, &l.source, ROUND_LAST, NULL, &l.stripes);
	send_streams_begin(l.out, &l.round, 1);
	assert_return_code(send_streams_wait(l.out, NULL, &l.e), 0);
	round_end(&l.round);
	assert_return_code(receive_streams_wait_round(l.in, 1, true, NULL, &l.e), 0);
}

static void begin_push(void)
{
	round_begin(&l.round, &l.src, &l.source, ROUND_PUSH, NULL, NULL);
	l.round.push = &l.push;
	send_streams_begin(l.out, &l.round, 2);
}

static bool guests_busy(void)
{
	for (unsigned int g = 0; g < rig.guests; g++)
		for (unsigned int t = 0; t < THREADS; t++)
			if (rig.guest[g]->actor[t].busy)
				return true;
	return false;
}

static void guests_look(void)
{
	for (unsigned int g = 0; g < rig.guests; g++)
		for (unsigned int t = 0; t < THREADS; t++)
			rig_act(&rig, g, t, ACT_LOOK, 0, PAGES);
}

static void guests_end(void)
{
	for (uint64_t end = deadline_ms(SOON_MS); guests_busy() && now_ns() < end;) {
		if (l.requests)
			assert_false(requests_failed(l.requests, &l.e));
		nap_ms(1);
	}
	assert_false(guests_busy());
	for (unsigned int g = 0; g < rig.guests; g++)
		for (unsigned int t = 0; t < THREADS; t++)
			assert_int_equal(rig.guest[g]->actor[t].wrong, 0);
}

/* early: the guests touch pages before the source pushes any, as in the load of the device state. */
static void migrate(uint32_t unit, uint64_t features, uint64_t bytes_per_s, bool early)
{
	struct round_count sent;
	struct requests_count c;
	int fds[2];

	open_both(unit, features);
	open_streams(features, bytes_per_s);
	last_round();
	pair(fds);
	begin_requests(fds[0]);
	receive_streams_release(l.in);
	guests_look();
	begin_answers(fds[1]);
	if (early)
		guests_end();
	begin_push();
	assert_return_code(send_streams_wait(l.out, &sent, &l.e), 0);
	round_end(&l.round);
	for (uint64_t end = deadline_ms(SOON_MS); atomic_load(&rig.ram.owed.left) && now_ns() < end;)
		nap_ms(1);
	assert_int_equal(rig.ram.owed.left, 0);
	guests_end();
	assert_int_equal(rig.ram.units, OWED / unit);
	assert_return_code(answers_check(l.answers, &l.e), 0);
	c = requests_count(l.requests);
	/* What came by a stream meanwhile is answered all the same. */
	for (uint64_t end = deadline_ms(SOON_MS); answers_count(l.answers) < c.asked && now_ns() < end;)
		nap_ms(1);
	assert_int_equal(c.asked, answers_count(l.answers));
	if (early)
		assert_int_equal(c.asked, OWED / unit);
	if (!early && features)
		assert_true(sent.same_pages > 0 && sent.packed_pages[0] > 0);
	/* The link is so slow that guests ask, and not for all. */
	if (!early && bytes_per_s)
		assert_true(c.asked > 0 && sent.data_pages > 0);
	assert_int_equal(rig.ram.owed.left, 0);
	/* All is there: nothing need wait any more. */
	lazy_unregister(&rig.ram);
	guests_look();
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

static void units(void **state)
{
	(void)state;
	migrate(512, 0, 0, true);
	migrate(512, WIRE_FILL | WIRE_LZ4, 4u << 20, false);
	migrate(64, 0, 20u << 20, false);
}

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
	bad_answer(NULL, 0, WIRE_COMMIT, 1, "COMMIT on the request connection");
}

/* On a stream: pages that are not owed, and RAM behind its end. */
static void a_stream_of_ill_will(void **state)
{
	static const struct { uint64_t first; bool ended; const char *says; } bad[] = {
		{ OWED, false, "did not owe" }, { PAGES, false, "outside of" }, { 3, true, "after the last round" },
	};

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		struct receive_streams_options in = { .writer = &l.writer, .engine = &engine_poll, .timeout_ms = 5000 };
		struct wire_header round = { .type = WIRE_ROUND, .flags = WIRE_ROUND_LAST, .arg = 1 };
		struct wire_header ram = { .type = WIRE_RAM, .arg = 1, .length = WIRE_EXTENT + PAGE_BYTES };
		uint8_t frame[WIRE_HEADER + WIRE_EXTENT + PAGE_BYTES] = { 0 };
		struct wire_extent x = { .pages = 1, .first = bad[i].first };
		int fds[2], requests[2];

		open_both(1, 0);
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
		wire_put_header(frame, &ram);
		wire_put_extent(frame + WIRE_HEADER, &x);
		assert_int_equal(send(fds[1], frame, sizeof(frame), 0), sizeof(frame));
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

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(all_on_request),
	cmocka_unit_test(pushed_and_on_request),
	cmocka_unit_test(packed),
	cmocka_unit_test(units),
	cmocka_unit_test(a_sender_of_ill_will),
	cmocka_unit_test(a_stream_of_ill_will),
	cmocka_unit_test(a_stream_that_is_early),
	cmocka_unit_test(a_receiver_of_ill_will),
	cmocka_unit_test(a_fault_leads_the_push),
	cmocka_unit_test(the_link_is_lost),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
