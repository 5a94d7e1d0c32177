// SPDX-License-Identifier: GPL-2.0-only
/* QEMU's stream as it comes in frames, in any order: which of it goes to QEMU at once, and that all of the rest is kept. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/clock.h"
#include "channel_rig.h"
#include "devstate/device_state.h"
#include "net/sock.h"

#define FRAMES	41u	/* of 128 KiB: as of some 650 vCPUs, in more than what a socket holds */

/* No byte of a frame is where it stands in another one. */
static uint8_t byte_at(uint64_t at)
{
	return (uint8_t)(at * 2654435761u >> 13 ^ at / WIRE_DEVICE_MAX);
}

struct rig {
	struct device_state d;
	struct channel *ch;
	int peer, qemu, stream;
	struct err e;
};

static int ds_setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	int pair[2], stream[2];

	device_state_init(&rig->d);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, stream), 0);
	assert_int_equal(channel_new(pair[0], engine, TIMEOUT_MS, &rig->ch, &rig->e), 0);
	rig->peer = pair[1];
	rig->stream = stream[0];
	rig->qemu = stream[1];
	*state = rig;
	return 0;
}

static int ds_teardown(void **state)
{
	struct rig *rig = *state;

	channel_free(rig->ch);
	close(rig->peer);
	close(rig->stream);
	close(rig->qemu);
	device_state_free(&rig->d);
	free(rig);
	return 0;
}

struct part {
	int fd;
	uint64_t at;
	uint32_t len;
	uint16_t flags;
};

static void *send_part(void *arg)
{
	static uint8_t body[8 + WIRE_DEVICE_MAX];
	const struct part *p = arg;
	struct wire_header h = { .type = WIRE_DEVICE, .flags = p->flags, .length = 8 + p->len };
	uint8_t head[WIRE_HEADER];

	wire_put_header(head, &h);
	wire_put_u64(body, p->at);
	for (uint32_t i = 0; i < p->len; i++)
		body[8 + i] = byte_at(p->at + i);
	if (!sock_send(p->fd, head, sizeof(head), deadline_ms(5000)))
		sock_send(p->fd, body, 8 + p->len, deadline_ms(5000));
	return NULL;
}

/* One frame comes. */
static int take(struct rig *rig, uint64_t at, uint32_t len, uint16_t flags)
{
	struct part p = { .fd = rig->peer, .at = at, .len = len, .flags = flags };
	struct wire_header h;
	pthread_t thread;
	int r;

	rig->e = (struct err) { 0 };
	assert_int_equal(pthread_create(&thread, NULL, send_part, &p), 0);
	r = channel_recv(rig->ch, &h, false, &rig->e);
	if (!r)
		r = device_state_frame(&rig->d, rig->ch, &h, rig->stream, TIMEOUT_MS, &rig->e);
	pthread_join(thread, NULL);
	return r;
}

static void assert_qemu_has(struct rig *rig, uint64_t from, uint64_t to)
{
	uint8_t byte;

	for (; from < to; from++) {
		assert_int_equal(read(rig->qemu, &byte, 1), 1);
		if (byte != byte_at(from))
			fail_msg("byte %llu is wrong", (unsigned long long)from);
	}
	assert_int_equal(read(rig->qemu, &byte, 1), -1);
	assert_int_equal(errno, EAGAIN);
}

static void assert_kept(struct rig *rig, uint64_t from, uint64_t to)
{
	uint8_t byte;

	for (; from < to; from++) {
		assert_int_equal(pread(rig->d.memfd, &byte, 1, (off_t)from), 1);
		if (byte != byte_at(from))
			fail_msg("byte %llu is wrong", (unsigned long long)from);
	}
}

/* In whatever order it comes, and not one byte of it is QEMU's before the commit point. */
static void all_of_it_is_kept(void **state)
{
	const uint64_t all = (uint64_t)FRAMES * WIRE_DEVICE_MAX;
	struct rig *rig = *state;

	for (unsigned int i = 0; i < FRAMES; i++) {
		assert_int_equal(device_state_complete(&rig->d, all, &rig->e), 0);
		assert_int_equal(take(rig, i * 7 % FRAMES * (uint64_t)WIRE_DEVICE_MAX, WIRE_DEVICE_MAX, WIRE_HELD), 0);
	}
	assert_int_equal(device_state_complete(&rig->d, all, &rig->e), 1);
	assert_int_equal(rig->d.n, 1);
	assert_kept(rig, 0, all);
	assert_qemu_has(rig, 0, 0);
}

/* Private RAM goes to QEMU at once, as far as it has come without a gap, and never beyond what is kept. */
static void what_comes_before_is_qemus(void **state)
{
	struct rig *rig = *state;

	assert_int_equal(take(rig, 100, 100, 0), 0);
	assert_qemu_has(rig, 0, 0);
	assert_int_equal(take(rig, 300, 50, WIRE_HELD), 0);
	assert_int_equal(take(rig, 0, 100, 0), 0);
	assert_qemu_has(rig, 0, 200);
	assert_int_equal(device_state_complete(&rig->d, 350, &rig->e), 0);
	assert_int_equal(take(rig, 200, 100, 0), 0);
	assert_qemu_has(rig, 200, 300);
	assert_int_equal(device_state_complete(&rig->d, 350, &rig->e), 1);
	assert_int_equal(take(rig, 350, 50, WIRE_HELD), 0);
	assert_qemu_has(rig, 0, 0);
	assert_kept(rig, 300, 400);
}

/* QEMU does not read: that is noticed. */
static void one_that_does_not_read_is_noticed(void **state)
{
	struct rig *rig = *state;
	int r = 0;

	for (unsigned int i = 0; i < FRAMES && !r; i++)
		r = take(rig, i * (uint64_t)WIRE_DEVICE_MAX, WIRE_DEVICE_MAX, 0);
	assert_int_not_equal(r, 0);
	assert_int_equal(rig->e.exit, GW_TIMEOUT);
}

/* A sender that never ends must not take all of the host's memory, nor all of a list. */
static void more_than_any_has_is_refused(void **state)
{
	struct rig *rig = *state;
	int r = 0;

	assert_int_equal(take(rig, DEVICE_STATE_MAX - 100, 100, WIRE_HELD), 0);
	assert_int_not_equal(take(rig, DEVICE_STATE_MAX - 50, 100, WIRE_HELD), 0);
	assert_int_equal(rig->e.exit, GW_BAD_PEER);
	assert_int_not_equal(take(rig, UINT64_MAX - 50, 100, WIRE_HELD), 0);
	assert_int_equal(rig->e.exit, GW_BAD_PEER);
	for (unsigned int i = 0; i < DEVICE_STATE_PARTS && !r; i++)
		r = take(rig, 2 * i, 1, WIRE_HELD);
	assert_int_not_equal(r, 0);
	assert_int_equal(rig->e.exit, GW_BAD_PEER);
}

/* Bytes that come twice; bytes behind those that are kept, for QEMU now; bytes to be kept that QEMU has. */
static void contradictions_are_refused(void **state)
{
	static const struct part wrong[] = {
		{ .at = 150, .len = 100, .flags = 0 }, { .at = 50, .len = 51, .flags = 0 }, { .at = 120, .len = 10, .flags = 0 },
		{ .at = 50, .len = 200, .flags = 0 }, { .at = 499, .len = 2, .flags = WIRE_HELD }, { .at = 510, .len = 20, .flags = 0 },
		{ .at = 0, .len = 50, .flags = WIRE_HELD },
	};
	struct rig *rig = *state;

	assert_int_equal(take(rig, 0, 50, 0), 0);
	assert_int_equal(take(rig, 100, 100, 0), 0);
	assert_int_equal(take(rig, 500, 10, WIRE_HELD), 0);
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_not_equal(take(rig, wrong[i].at, wrong[i].len, wrong[i].flags), 0);
		assert_int_equal(rig->e.exit, GW_BAD_PEER);
	}
	assert_int_equal(take(rig, 50, 50, 0), 0);
	assert_int_equal(take(rig, 200, 300, 0), 0);
	assert_qemu_has(rig, 0, 500);
}

/* More than was announced, or nothing to be kept: QEMU could run already, or never. */
static void the_end_must_fit(void **state)
{
	struct rig *rig = *state;

	assert_int_equal(device_state_complete(&rig->d, 0, &rig->e), 0);
	assert_int_equal(take(rig, 0, 100, 0), 0);
	assert_int_equal(device_state_complete(&rig->d, 100, &rig->e), -EPROTO);
	assert_int_equal(take(rig, 100, 100, WIRE_HELD), 0);
	assert_int_equal(device_state_complete(&rig->d, 199, &rig->e), -EPROTO);
	assert_int_equal(device_state_complete(&rig->d, 200, &rig->e), 1);
	assert_int_equal(device_state_complete(&rig->d, 201, &rig->e), 0);
}

#define TEST(f)	cmocka_unit_test_setup_teardown(f, ds_setup, ds_teardown)
static const struct CMUnitTest tests[] = {
	TEST(all_of_it_is_kept), TEST(what_comes_before_is_qemus), TEST(one_that_does_not_read_is_noticed),
	TEST(more_than_any_has_is_refused), TEST(contradictions_are_refused), TEST(the_end_must_fit),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
