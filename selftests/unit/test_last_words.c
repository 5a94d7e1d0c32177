// SPDX-License-Identifier: GPL-2.0-only
/* What a peer says before it goes is heard, whatever else lies on the way, and not for ever. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "channel_rig.h"

static uint64_t round_trip_ns;

static void say_abort(int fd, const char *text)
{
	struct wire_header h = { .type = WIRE_ABORT, .arg = GW_VERIFY, .length = (uint32_t)strlen(text) };
	uint8_t head[WIRE_HEADER];

	wire_put_header(head, &h);
	assert_int_equal(write(fd, head, sizeof(head)), sizeof(head));
	assert_int_equal(write(fd, text, h.length), h.length);
}

static void *say_the_rest_late(void *fd)
{
	const struct wire_header ping = { .type = WIRE_PING, .length = 8 };
	uint8_t bytes[WIRE_HEADER + 8] = { 0 };

	wire_put_header(bytes, &ping);
	assert_int_equal(write(*(int *)fd, bytes, 9), 9);
	nap(100);
	assert_int_equal(write(*(int *)fd, bytes + 9, sizeof(bytes) - 9), sizeof(bytes) - 9);
	say_abort(*(int *)fd, "no \x1b[2J room");
	return NULL;
}

/* Behind other frames, with a delay in the middle of one, and while an interrupt is up. */
static void last_words_are_heard(void **state)
{
	const struct wire_header ping = { .type = WIRE_PING, .length = 8 }, ack = { .type = WIRE_ACK, .arg = 3 };
	struct link *l = *state;
	atomic_bool flag = true;
	uint8_t bytes[2 * WIRE_HEADER + 8] = { 0 };
	pthread_t thread;

	channel_interrupt(l->ch, &flag);
	wire_put_header(bytes, &ack);
	wire_put_header(bytes + WIRE_HEADER, &ping);
	assert_int_equal(write(l->peer, bytes, sizeof(bytes)), sizeof(bytes));
	pthread_create(&thread, NULL, say_the_rest_late, &l->peer);
	channel_last_words(l->ch, 1000, &l->e);
	pthread_join(thread, NULL);
	assert_int_equal(l->e.exit, GW_VERIFY);
	assert_int_equal(channel_abort_status(l->ch), GW_VERIFY);
	assert_non_null(strstr(l->e.text, "no  [2J room"));
}

/* A frame that was being received when the wait was given up: its rest is no header. */
static void last_words_follow_half_a_body(void **state)
{
	const struct wire_header device = { .type = WIRE_DEVICE, .length = 64 };
	struct link *l = *state;
	atomic_bool flag = false;
	pthread_t thread;
	uint8_t bytes[WIRE_HEADER + 64] = { 0 }, body[64];
	struct wire_header h;

	wire_put_header(bytes, &device);
	assert_int_equal(write(l->peer, bytes, WIRE_HEADER + 24), WIRE_HEADER + 24);
	assert_int_equal(channel_recv(l->ch, &h, false, &l->e), 0);
	channel_interrupt(l->ch, &flag);
	pthread_create(&thread, NULL, raise_flag, &flag);
	assert_int_equal(channel_body(l->ch, body, sizeof(body), &l->e), -ECANCELED);
	pthread_join(thread, NULL);
	assert_int_equal(write(l->peer, bytes + WIRE_HEADER + 24, 40), 40);
	say_abort(l->peer, "no room");
	channel_last_words(l->ch, 1000, &l->e);
	assert_int_equal(l->e.exit, GW_VERIFY);
}

static void no_last_words_behind_half_a_header(void **state)
{
	const struct wire_header ping = { .type = WIRE_PING, .length = 8 };
	struct link *l = *state;
	atomic_bool flag = false;
	uint8_t bytes[WIRE_HEADER + 8] = { 0 };
	struct wire_header h;
	pthread_t thread;

	wire_put_header(bytes, &ping);
	assert_int_equal(write(l->peer, bytes, 9), 9);
	channel_interrupt(l->ch, &flag);
	pthread_create(&thread, NULL, raise_flag, &flag);
	assert_int_equal(channel_recv(l->ch, &h, false, &l->e), -ECANCELED);
	pthread_join(thread, NULL);
	assert_int_equal(write(l->peer, bytes + 9, sizeof(bytes) - 9), sizeof(bytes) - 9);
	channel_last_words(l->ch, 100, &l->e);
	assert_int_equal(l->e.exit, GW_OK);
}

static void *flood(void *fd)
{
	const struct wire_header ack = { .type = WIRE_ACK };
	uint8_t bytes[WIRE_HEADER];

	wire_put_header(bytes, &ack);
	while (send(*(int *)fd, bytes, sizeof(bytes), MSG_NOSIGNAL) == sizeof(bytes))
		;
	return NULL;
}

/* A peer that never ends is not listened to for ever. */
static void last_words_are_short(void **state)
{
	struct link *l = *state;
	pthread_t thread;

	pthread_create(&thread, NULL, flood, &l->peer);
	channel_last_words(l->ch, 200, &l->e);
	assert_int_equal(l->e.exit, GW_OK);
	shutdown(l->peer, SHUT_RDWR);
	pthread_join(thread, NULL);
}

static void nothing_is_said(void **state)
{
	struct link *l = *state;
	uint64_t start = now_ns();

	channel_last_words(l->ch, 100, &l->e);
	assert_int_equal(l->e.exit, GW_OK);
	assert_in_range(now_ns() - start, 100 * MS, 10000 * MS);
}

/* A broken send looks for the reason first. */
static void an_abort_explains_a_broken_send(void **state)
{
	const struct wire_header ack = { .type = WIRE_ACK };
	struct link *l = *state;

	say_abort(l->peer, "full");
	shutdown(l->peer, SHUT_RD);
	assert_int_not_equal(channel_send(l->ch, &ack, NULL, &l->e), 0);
	assert_int_equal(l->e.exit, GW_VERIFY);
}

uint64_t __wrap_sock_rtt_ns(int fd);
uint64_t __wrap_sock_rtt_ns(int fd)
{
	(void)fd;
	return round_trip_ns;
}

/* The round trip is the peer's to make: it never acknowledges, or closes. */
static void our_own_have_an_end(void **state)
{
	struct link *l = *state;
	const uint64_t begin_ns = now_ns();

	round_trip_ns = 60 * 1000000000ull;
	channel_abort(l->ch, &l->e);
	round_trip_ns = 0;
	assert_in_range(now_ns() - begin_ns, 3000000000ull, 60 * 1000000000ull);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(last_words_are_heard, setup, teardown),
	cmocka_unit_test_setup_teardown(last_words_are_short, setup, teardown),
	cmocka_unit_test_setup_teardown(last_words_follow_half_a_body, setup, teardown),
	cmocka_unit_test_setup_teardown(no_last_words_behind_half_a_header, setup, teardown),
	cmocka_unit_test_setup_teardown(nothing_is_said, setup, teardown),
	cmocka_unit_test_setup_teardown(an_abort_explains_a_broken_send, setup, teardown),
	cmocka_unit_test_setup_teardown(our_own_have_an_end, setup, teardown),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
