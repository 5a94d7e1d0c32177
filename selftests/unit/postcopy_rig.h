/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Both ends of a post-copy but QEMU and the module: the source's file, streams, the request connection, and the guests of
 * lazy_rig.h. Include after cmocka.h.
 */
#ifndef GODWIT_POSTCOPY_RIG_H
#define GODWIT_POSTCOPY_RIG_H

#include <sys/socket.h>

#define PAGES	2048u
#include "lazy_rig.h"
#include "receive/receive_streams.h"
#include "receive/requests.h"
#include "send/answers.h"
#include "send/send_streams.h"

#define STREAMS	2u
#define OWED	1536u

static struct lazy_rig rig;
static unsigned int timeout_ms = 5000;

/* Between two ends of a connection: forwards, and does nothing for so long after so many bytes. */
struct stall {
	int from, to;
	uint64_t after;
	unsigned int ms;
	pthread_t thread;
};

/*
 * @src: its RAM is as at the stop; @there: the destination's, as the writer knows it; @tls: of the request connection, at the
 * receiver and at the sender; NULL: it is in the clear
 */
static struct link {
	struct vm src, there;
	struct dirty_source source;
	struct ram_writer writer;
	struct stripes stripes;
	struct pace pace;
	_Atomic uint32_t compress;
	struct delta *delta;
	struct owed owed;
	struct push push;
	struct round round;
	struct send_streams *out;
	struct receive_streams *in;
	struct answers *answers;
	struct requests *requests;
	struct tls *tls[2];
	int peer;
	struct err e;
} l;

static inline void no_clear_is_due(void)
{
	fail_msg("nothing is cleared after the stop");
}

static inline int next_data(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t end, bool exact, uint64_t *run_first,
		     uint64_t *run_count, struct err *e)
{
	return file_next_data(s->vm->blocks[block].fd, first, end, exact, run_first, run_count, e);
}

static const struct dirty_ops ops = { .name = "at rest", .clear = (void *)no_clear_is_due, .next_data = next_data };

static inline void pair(int fds[2])
{
	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), errno);
}

static inline void *stall_main(void *arg)
{
	struct stall *s = arg;
	uint8_t buf[4096];
	uint64_t sum = 0;
	ssize_t n;

	while ((n = read(s->from, buf, sizeof(buf))) > 0) {
		if (sum < s->after && sum + (uint64_t)n >= s->after)
			nap_ms(s->ms);
		sum += (uint64_t)n;
		if (send(s->to, buf, (size_t)n, MSG_NOSIGNAL) != n)
			break;
	}
	shutdown(s->from, SHUT_RDWR);
	shutdown(s->to, SHUT_RDWR);
	return NULL;
}

/* What goes from fds[0] to fds[1] stalls; what comes back does not. */
static inline void stalled_pair(int fds[2], struct stall *s, struct stall *back)
{
	int near[2], far[2];

	pair(near);
	pair(far);
	fds[0] = near[0];
	fds[1] = far[1];
	*back = (struct stall) { .from = far[0], .to = near[1] };
	s->from = near[1];
	s->to = far[0];
	assert_int_equal(pthread_create(&s->thread, NULL, stall_main, s), 0);
	assert_int_equal(pthread_create(&back->thread, NULL, stall_main, back), 0);
}

static inline void stalled_end(struct stall *s, struct stall *back)
{
	pthread_join(s->thread, NULL);
	pthread_join(back->thread, NULL);
	close(s->from);
	close(s->to);
}

static inline int file_of_ram(void)
{
	int file = memfd_create("ram", MFD_CLOEXEC);

	assert_return_code(ftruncate(file, (off_t)PAGES * PAGE_BYTES), errno);
	return file;
}

/* Pages [0, OWED) were written since they were sent; what kind they are goes round. */
static inline void open_both(uint32_t unit, uint64_t features)
{
	static const enum version kinds[] = { V_NEW, V_NEW, V_ZERO, V_NEW, V_SAME };
	const uint64_t pages = PAGES;
	uint8_t page[PAGE_BYTES];
	int file = file_of_ram();

	memset(&l, 0, sizeof(l));
	l.src = (struct vm) { .nblocks = 1, .blocks = { { .name = "ram0", .pages = PAGES, .page_size = PAGE_BYTES, .fd = file_of_ram() } } };
	l.there = l.src;
	l.there.blocks[0].fd = file;
	assert_return_code(ram_writer_open(&l.writer, &l.there, NULL, &l.e), 0);
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

/* The sender has sent all pages before, and just as they are now. Before open_streams(). */
static inline void know_all(void)
{
	static const uint64_t pages = PAGES;
	uint8_t page[PAGE_BYTES];

	l.delta = delta_new(&pages, 1, 1u << 20);
	assert_non_null(l.delta);
	for (uint64_t p = 0; p < PAGES; p++) {
		assert_int_equal(pread(l.src.blocks[0].fd, page, sizeof(page), (off_t)(p * PAGE_BYTES)), sizeof(page));
		assert_true(delta_takes(l.delta, 0, p, true));
		delta_changed(l.delta, 0, p, page, true);
	}
}

static inline void begin_requests(int fd)
{
	const struct requests_options o = {
		.fd = fd, .tls = l.tls[0], .engine = &engine_poll, .writer = &l.writer, .timeout_ms = timeout_ms,
	};

	rig_punch(&rig, NULL);
	l.writer.lazy = &rig.ram;
	assert_return_code(requests_start(&o, &l.requests, &l.e), 0);
}

static inline void begin_answers(int fd)
{
	const struct answers_options o = {
		.vm = &l.src, .owed = &l.owed, .push = &l.push, .engine = &engine_poll, .fd = fd, .tls = l.tls[1],
		.timeout_ms = timeout_ms,
	};

	assert_return_code(answers_start(&o, &l.answers, &l.e), 0);
}

static inline void close_both(void)
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
	delta_free(l.delta);
	close(l.src.blocks[0].fd);
	rig_close(&rig);
}

/* stalls: two for each stream; NULL: none does. */
static inline void open_streams_that_stall(uint64_t features, uint64_t bytes_per_s, struct stall *stalls)
{
	struct send_streams_options out = {
		.vm = &l.src, .engine = &engine_poll, .pace = &l.pace, .compress = &l.compress, .timeout_ms = timeout_ms,
		.features = features, .delta = l.delta, .delta_always = l.delta,
	};
	struct codec_wish wish;
	const struct receive_streams_options in = { .writer = &l.writer, .engine = &engine_poll, .timeout_ms = timeout_ms };
	int there[STREAMS], here[STREAMS], fds[2];

	pace_init(&l.pace, bytes_per_s);
	assert_return_code(codec_parse(features ? "lz4" : "off", &wish, &l.e), 0);
	l.compress = codec_wish_word(&wish);
	for (unsigned int i = 0; i < STREAMS; i++) {
		if (stalls)
			stalled_pair(fds, &stalls[2 * i], &stalls[2 * i + 1]);
		else
			pair(fds);
		here[i] = fds[0];
		there[i] = fds[1];
	}
	assert_return_code(send_streams_start(&out, here, STREAMS, &l.out, &l.e), 0);
	assert_return_code(receive_streams_start(&in, there, STREAMS, &l.in, &l.e), 0);
}

static inline void open_streams(uint64_t features, uint64_t bytes_per_s)
{
	open_streams_that_stall(features, bytes_per_s, NULL);
}

static inline void last_round(void)
{
	receive_streams_hold(l.in);
	l.stripes.round = 1;
	round_begin(&l.round, &l.src, &l.source, ROUND_LAST, NULL, &l.stripes);
	send_streams_begin(l.out, &l.round, 1);
	assert_return_code(send_streams_wait(l.out, NULL, &l.e), 0);
	round_end(&l.round);
	assert_return_code(receive_streams_wait_round(l.in, 1, true, NULL, &l.e), 0);
}

static inline void begin_push(void)
{
	round_begin(&l.round, &l.src, &l.source, ROUND_PUSH, NULL, NULL);
	l.round.push = &l.push;
	send_streams_begin(l.out, &l.round, 2);
}

static inline bool guests_busy(void)
{
	for (unsigned int g = 0; g < rig.guests; g++)
		for (unsigned int t = 0; t < THREADS; t++)
			if (rig.guest[g]->actor[t].busy)
				return true;
	return false;
}

/* At the first pages of the RAM, in an order of each thread's own. */
static inline void guests_look(uint64_t pages)
{
	for (unsigned int g = 0; g < rig.guests; g++)
		for (unsigned int t = 0; t < THREADS; t++)
			rig_act(&rig, g, t, ACT_LOOK, 0, pages);
}

static inline void guests_end(void)
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

#endif
