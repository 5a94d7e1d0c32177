// SPDX-License-Identifier: GPL-2.0-only
/* Channels over TLS, and connections that join by it: frames whole, words at the end, and no stream of another session. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "net/channel_internal.h"
#include "net/dial.h"
#include "net/join.h"
#include "net/sock.h"
#include "tls_rig.h"

static char key[64] = "/tmp/godwit-tls-XXXXXX";

static int setup_key(void **state)
{
	int fd = mkstemp(key);

	(void)state;
	close(fd);
	write_text(key, "godwit:00112233445566778899aabbccddeeff\n");
	return 0;
}

static int remove_key(void **state)
{
	(void)state;
	return unlink(key);
}

static struct tls_creds *creds(enum tls_role role)
{
	struct tls_options o = { .psk = key };
	struct tls_creds *c;
	struct err e = { 0 };

	assert_int_equal(tls_creds_open(&o, role, &c, &e), 0);
	return c;
}

/**
 * struct both - a channel at each end
 * @raw: the socket of the sender's
 */
struct both {
	struct tls_creds *c[2];
	struct channel *ch[2];
	int raw;
	struct err e;
};

static void open_both(struct both *b)
{
	struct tls *t[2];
	int pair[2], done[2] = { 0, 0 };

	memset(b, 0, sizeof(*b));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	for (unsigned int i = 0; i < 2; i++) {
		b->c[i] = creds(i ? TLS_RECEIVER : TLS_SENDER);
		assert_int_equal(tls_open(b->c[i], pair[i], &t[i], &b->e), 0);
	}
	for (unsigned int n = 0; n < 1000 && !(done[0] && done[1]); n++)
		for (unsigned int i = 0; i < 2; i++)
			if (!done[i])
				assert_true((done[i] = tls_step(t[i], &b->e)) >= 0);
	b->raw = pair[0];
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(channel_new_tls(pair[i], t[i], &engine_poll, 2000, &b->ch[i], &b->e), 0);
}

static void close_both(struct both *b)
{
	for (unsigned int i = 0; i < 2; i++) {
		channel_free(b->ch[i]);
		tls_creds_free(b->c[i]);
	}
}

#define FRAMES	40u
#define PAGES	50u

static void *send_frames(void *arg)
{
	struct both *b = arg;
	struct wire_header end = { .type = WIRE_ROUND, .arg = 1 };
	struct ram_frame *f;
	struct err e = { 0 };
	int r = 0;

	for (unsigned int i = 0; !r && i < FRAMES; i++) {
		r = channel_frame(b->ch[0], &f, &e);
		if (r)
			break;
		f->extents[f->nr++] = (struct wire_extent) { .kind = WIRE_DATA, .pages = PAGES, .first = i };
		for (unsigned int k = 0; k < PAGES; k++) {
			memset(f->buf + k * PAGE_BYTES, (int)(i + k), PAGE_BYTES);
			f->iov[f->nr_iov++] = (struct iovec) { f->buf + k * PAGE_BYTES, PAGE_BYTES };
			f->bytes += PAGE_BYTES;
		}
		r = channel_push(b->ch[0], f, &e);
	}
	if (!r)
		r = channel_send(b->ch[0], &end, NULL, &e);
	return (void *)(intptr_t)r;
}

static void frames_arrive_whole(void **state)
{
	static uint8_t pages[PAGES * PAGE_BYTES];
	uint8_t extent[WIRE_EXTENT];
	struct wire_header h;
	pthread_t thread;
	struct both b;
	void *sent;

	(void)state;
	open_both(&b);
	pthread_create(&thread, NULL, send_frames, &b);
	for (unsigned int i = 0; i < FRAMES; i++) {
		struct iovec iov[] = { { extent, 10 }, { extent + 10, sizeof(extent) - 10 }, { pages, 77 },
				       { pages + 77, sizeof(pages) - 77 } };

		assert_int_equal(channel_expect(b.ch[1], WIRE_RAM, &h, &b.e), 0);
		assert_int_equal(h.length, sizeof(extent) + sizeof(pages));
		assert_int_equal(channel_bodyv(b.ch[1], iov, 4, &b.e), 0);
		for (size_t k = 0; k < sizeof(pages); k++)
			if (pages[k] != (uint8_t)(i + k / PAGE_BYTES))
				fail_msg("frame %u, byte %zu", i, k);
	}
	assert_int_equal(channel_expect(b.ch[1], WIRE_ROUND, &h, &b.e), 0);
	pthread_join(thread, &sent);
	assert_null(sent);
	assert_false(channel_readable(b.ch[1]));
	close_both(&b);
}

/* Frames that came in one record are told of, though the socket has nothing to read any more. */
static void what_was_read_ahead_is_told(void **state)
{
	struct wire_header h = { .type = WIRE_ROUND, .arg = 1 };
	struct both b;

	(void)state;
	open_both(&b);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(channel_send(b.ch[0], &h, NULL, &b.e), 0);
	for (unsigned int i = 0; i < 3; i++) {
		assert_true(channel_readable(b.ch[1]));
		assert_int_equal(channel_expect(b.ch[1], WIRE_ROUND, &h, &b.e), 0);
	}
	assert_false(channel_readable(b.ch[1]));
	close_both(&b);
}

/* A key is not used for ever. The rest of the frame that goes beyond is not sent, and the source runs on. */
static void a_key_is_used_up(void **state)
{
	struct wire_header h = { .type = WIRE_PING, .length = 8 };
	struct both b;
	int r = 0;

	(void)state;
	open_both(&b);
	assert_true(b.ch[0]->most == UINT64_MAX);	/* the library's are new ones by then */
	b.ch[0]->most = 1000;
	while (!r)
		r = channel_send(b.ch[0], &h, "12345678", &b.e);
	assert_int_equal(b.e.exit, GW_TLS);
	assert_non_null(strstr(b.e.text, "--streams"));
	assert_in_range(channel_sent(b.ch[0]), 1000, 1000 + WIRE_HEADER + 8);
	close_both(&b);
	assert_false(tls_is_long(64ull << 30, 1));
	assert_true(tls_is_long((64ull << 30) + PAGE_BYTES, 1));
	assert_false(tls_is_long(1024ull << 30, 16));
	assert_true(tls_is_long(1024ull << 30, 15));
}

static void *abort_it(void *arg)
{
	struct both *b = arg;
	struct err why = { 0 };

	err_set(&why, GW_RAM_DIFFERS, EINVAL, "the reason");
	return (void *)(intptr_t)channel_abort(b->ch[1], &why);
}

static void an_abort_gets_through(void **state)
{
	struct wire_header h;
	pthread_t thread;
	void *confirmed;
	struct both b;

	(void)state;
	open_both(&b);
	pthread_create(&thread, NULL, abort_it, &b);
	assert_true(channel_recv(b.ch[0], &h, false, &b.e) < 0);
	assert_true(channel_aborted(b.ch[0]));
	assert_int_equal(b.e.exit, GW_RAM_DIFFERS);
	assert_non_null(strstr(b.e.text, "the reason"));
	channel_free(b.ch[0]);
	b.ch[0] = NULL;
	pthread_join(thread, &confirmed);
	assert_int_equal((intptr_t)confirmed, 1);
	close_both(&b);
}

/* Bytes of somebody else in the connection: refused as TLS, and no frame. */
static void foreign_bytes_are_refused(void **state)
{
	struct wire_header h = { .type = WIRE_ROUND, .arg = 1 };
	uint8_t head[WIRE_HEADER];
	struct both b;

	(void)state;
	open_both(&b);
	wire_put_header(head, &h);
	assert_int_equal(send(b.raw, head, sizeof(head), 0), sizeof(head));
	assert_true(channel_recv(b.ch[1], &h, false, &b.e) < 0);
	assert_int_equal(b.e.exit, GW_TLS);
	assert_false(channel_aborted(b.ch[1]));
	close_both(&b);
}

static void the_end_is_a_lost_link(void **state)
{
	struct wire_header h;
	struct both b;

	(void)state;
	for (unsigned int said = 0; said < 2; said++) {
		open_both(&b);
		if (!said)
			shutdown(b.raw, SHUT_WR);
		channel_free(b.ch[0]);
		b.ch[0] = NULL;
		assert_true(channel_recv(b.ch[1], &h, false, &b.e) < 0);
		assert_int_equal(b.e.exit, GW_LINK_LOST);
		close_both(&b);
	}
}

/**
 * struct site - a listener, and a control connection to it
 */
struct site {
	struct join join;
	int lfd, other[2], control;
	struct tls_creds *c[2];
};

static void open_site(struct site *s)
{
	struct sockaddr_in in;
	socklen_t len = sizeof(in);
	char addr[32];

	memset(s, 0, sizeof(*s));
	s->lfd = sock_tcp_listen("127.0.0.1:0");
	getsockname(s->lfd, (struct sockaddr *)&in, &len);
	snprintf(addr, sizeof(addr), "127.0.0.1:%d", ntohs(in.sin_port));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s->other), 0);
	s->control = sock_tcp_connect(addr, deadline_ms(2000));
	assert_true(s->control >= 0);
	close(accept(s->lfd, NULL, NULL));
	assert_int_equal(join_init(&s->join, s->lfd), 0);
	for (unsigned int i = 0; i < 2; i++)
		s->c[i] = creds(i ? TLS_RECEIVER : TLS_SENDER);
	s->join.creds = s->c[1];
	s->join.want = 3;
}

static void close_site(struct site *s)
{
	join_close(&s->join);
	close(s->lfd);
	close(s->control);
	for (unsigned int i = 0; i < 2; i++) {
		close(s->other[i]);
		tls_creds_free(s->c[i]);
	}
}

struct dialing {
	struct dial d;
	struct err e;
	int r;
};

static void *dial_main(void *arg)
{
	struct dialing *d = arg;

	d->r = dial_join(&d->d, &d->e);
	return NULL;
}

static void streams_join(void **state)
{
	struct dialing right = { .r = 1 }, wrong = { .r = 1 };
	struct tls *tls[WIRE_STREAMS_MAX];
	int fds[WIRE_STREAMS_MAX], silent[40], r = 0;
	uint64_t end = deadline_ms(20000);
	pthread_t a, b;
	struct site s;

	(void)state;
	open_site(&s);
	right.d = (struct dial) { .n = 3, .addr = "there", .creds = s.c[0], .patience_ms = 10000 };
	memcpy(right.d.secret, s.join.secret, WIRE_SECRET);
	/* The same credentials, and another secret, as that of another session is. */
	wrong.d = right.d;
	wrong.d.secret[3] ^= 1;
	/* Strangers that say nothing, the beginning of a handshake, or a JOIN in the clear. */
	for (unsigned int i = 0; i < 40; i++) {
		static const uint8_t half[] = { 22, 3, 1, 2, 0, 1, 0 };
		uint8_t join[WIRE_HEADER + WIRE_SECRET];
		struct wire_header h = { .type = WIRE_JOIN, .arg = 1, .length = WIRE_SECRET };

		wire_put_header(join, &h);
		memcpy(join + WIRE_HEADER, s.join.secret, WIRE_SECRET);
		silent[i] = sock_tcp_begin_again(s.control);
		sock_tcp_connected(silent[i], deadline_ms(1000));
		if (i % 3 == 1)
			send(silent[i], half, sizeof(half), MSG_NOSIGNAL);
		if (i % 3 == 2)
			send(silent[i], join, sizeof(join), MSG_NOSIGNAL);
		assert_int_equal(join_step(&s.join, s.other[0], 5), 0);
	}
	dial_init(&wrong.d);
	dial_init(&right.d);
	assert_int_equal(dial_begin(&wrong.d, s.control, &wrong.e), 0);
	pthread_create(&a, NULL, dial_main, &wrong);
	for (unsigned int i = 0; i < 100; i++)
		assert_int_equal(join_step(&s.join, s.other[0], 5), 0);
	assert_int_equal(dial_begin(&right.d, s.control, &right.e), 0);
	pthread_create(&b, NULL, dial_main, &right);
	while (!r && now_ns() < end)
		r = join_step(&s.join, s.other[0], 20);
	assert_int_equal(r, 1);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	assert_int_equal(right.r, 0);
	join_take(&s.join, fds, tls);
	for (unsigned int i = 0; i < 3; i++) {
		uint8_t x = 7, y = 0;

		/* The sessions are those of the right ones, each with its own. */
		assert_int_equal(tls_seal(right.d.tls[i], &(struct iovec) { &x, 1 }, 1), 1);
		assert_int_equal(tls_flush(right.d.tls[i]), 1);
		if (!tls_pending(tls[i]))
			assert_int_equal(sock_wait(fds[i], POLLIN, deadline_ms(1000)), 0);
		assert_int_equal(tls_read(tls[i], &(struct iovec) { &y, 1 }, 1), 1);
		assert_int_equal(y, 7);
		tls_free(tls[i]);
		close(fds[i]);
	}
	for (unsigned int i = 0; i < 40; i++)
		close(silent[i]);
	dial_close(&right.d);
	dial_close(&wrong.d);
	close_site(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_arrive_whole),
		cmocka_unit_test(what_was_read_ahead_is_told),
		cmocka_unit_test(a_key_is_used_up),
		cmocka_unit_test(an_abort_gets_through),
		cmocka_unit_test(foreign_bytes_are_refused),
		cmocka_unit_test(the_end_is_a_lost_link),
		cmocka_unit_test(streams_join),
	};

	return cmocka_run_group_tests(tests, setup_key, remove_key);
}
