// SPDX-License-Identifier: GPL-2.0-only
/* The device state as it comes in frames: which of it goes to QEMU at once, and that all of the rest is kept, however large. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "channel_rig.h"
#include "migrate/load.h"

#define FRAMES	41u	/* of 256 KiB: as of some 1300 vCPUs, in more than two of what QEMU's stream once held back */

/* No byte of a frame is where it stands in another one. */
static uint8_t byte_at(uint64_t at)
{
	return (uint8_t)(at * 2654435761u >> 13 ^ at / WIRE_DEVICE_MAX);
}

struct rig {
	struct receiver_options o;
	struct receiver r;
	int peer, qemu;
};

static void rig_open(struct rig *rig, bool committed)
{
	struct err e = { 0 };
	int pair[2], stream[2];

	*rig = (struct rig) { .o.timeout_ms = TIMEOUT_MS };
	rig->r = (struct receiver) { .o = &rig->o, .state = -1, .committed = committed };
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, stream), 0);
	assert_int_equal(channel_new(pair[0], engine, TIMEOUT_MS, &rig->r.ch, &e), 0);
	rig->peer = pair[1];
	rig->r.migration.stream = stream[0];
	rig->qemu = stream[1];
}

static void rig_close(struct rig *rig)
{
	channel_free(rig->r.ch);
	close(rig->peer);
	close(rig->qemu);
	close(rig->r.migration.stream);
	if (rig->r.state >= 0)
		close(rig->r.state);
}

struct sent {
	int fd;
	unsigned int frames;
};

static void *send_state(void *arg)
{
	static uint8_t body[WIRE_DEVICE_MAX];
	struct wire_header h = { .type = WIRE_DEVICE, .length = sizeof(body) };
	struct sent *s = arg;
	uint8_t head[WIRE_HEADER];

	wire_put_header(head, &h);
	for (unsigned int i = 0; i < s->frames; i++) {
		for (uint64_t j = 0; j < sizeof(body); j++)
			body[j] = byte_at((uint64_t)i * sizeof(body) + j);
		if (sock_send(s->fd, head, sizeof(head), deadline_ms(5000)) || sock_send(s->fd, body, sizeof(body), deadline_ms(5000)))
			break;
	}
	return NULL;
}

/* Takes them all, or as many as it likes. */
static int take(struct rig *rig, unsigned int frames, struct err *e)
{
	struct sent s = { .fd = rig->peer, .frames = frames };
	pthread_t thread;
	int r = 0;

	assert_int_equal(pthread_create(&thread, NULL, send_state, &s), 0);
	for (unsigned int i = 0; i < frames && !r; i++) {
		struct wire_header h;

		r = channel_recv(rig->r.ch, &h, false, e);
		if (!r)
			r = load_frame(&rig->r, &h, e);
	}
	shutdown(rig->peer, SHUT_RDWR);
	pthread_join(thread, NULL);
	return r;
}

static void all_of_it_is_kept(void **state)
{
	static uint8_t back[WIRE_DEVICE_MAX];
	struct err e = { 0 };
	struct rig rig;
	char byte;

	(void)state;
	rig_open(&rig, true);
	assert_int_equal(take(&rig, FRAMES, &e), 0);
	assert_int_equal(rig.r.state_bytes, (uint64_t)FRAMES * WIRE_DEVICE_MAX);
	for (uint64_t at = 0; at < rig.r.state_bytes; at += sizeof(back)) {
		assert_int_equal(pread(rig.r.state, back, sizeof(back), (off_t)at), sizeof(back));
		for (uint64_t i = 0; i < sizeof(back); i++)
			if (back[i] != byte_at(at + i))
				fail_msg("byte %llu is wrong", (unsigned long long)(at + i));
	}
	/* Not one byte of it is QEMU's before the commit point. */
	assert_int_equal(read(rig.qemu, &byte, 1), -1);
	assert_int_equal(errno, EAGAIN);
	rig_close(&rig);
}

/* A sender that never ends must not take all of the host's memory. */
static void more_than_any_has_is_refused(void **state)
{
	struct err e = { 0 };
	struct rig rig;

	(void)state;
	rig_open(&rig, true);
	rig.r.state_bytes = LOAD_STATE_MAX - WIRE_DEVICE_MAX;	/* of a file that is sparse */
	assert_int_not_equal(take(&rig, 2, &e), 0);
	assert_int_equal(e.exit, GW_BAD_PEER);
	assert_int_equal(rig.r.state_bytes, LOAD_STATE_MAX);
	rig_close(&rig);
}

/* Private RAM, before COMMIT: it is QEMU's at once, and nothing is kept. One that does not read it is noticed. */
static void what_comes_before_is_qemus(void **state)
{
	struct err e = { 0 };
	struct rig rig;
	uint8_t first = 1;

	(void)state;
	rig_open(&rig, false);
	assert_int_not_equal(take(&rig, FRAMES, &e), 0);
	assert_int_equal(e.exit, GW_TIMEOUT);
	assert_int_equal(rig.r.state, -1);
	assert_int_equal(read(rig.qemu, &first, 1), 1);
	assert_int_equal(first, byte_at(0));
	rig_close(&rig);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(all_of_it_is_kept),
	cmocka_unit_test(more_than_any_has_is_refused),
	cmocka_unit_test(what_comes_before_is_qemus),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
