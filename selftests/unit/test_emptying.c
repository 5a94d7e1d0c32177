// SPDX-License-Identifier: GPL-2.0-only
/*
 * While the receiver empties its RAM it says once a second that it lives, to a sender that knows of that, and hears a request to stop; the
 * sender waits on. How long it takes is the test's, and so is the clock.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/stop.h"
#include "claim/owners.h"
#include "peer/hello.h"
#include "receive/receiver_internal.h"

#define STEPS	50u
#define STEP_NS	100000000ull
#define PATIENCE_MS 3000u

/* link: -Wl,--wrap for these */
uint64_t __real_now_ns(void);
uint64_t __wrap_now_ns(void);
int __wrap_owners_check(const char *proc, const struct vm *vm, enum owners_end end, struct err *e);
int __wrap_migration_check_waits(struct qmp *qmp, struct err *e);
int __wrap_ram_writer_open(struct ram_writer *p, const struct vm *vm, const struct ram_alive *alive, struct err *e);

static uint64_t later_ns;
static unsigned int stop_at, steps, looks, guest_comes_at;

uint64_t __wrap_now_ns(void)
{
	return __real_now_ns() + later_ns;
}

int __wrap_owners_check(const char *proc, const struct vm *vm, enum owners_end end, struct err *e)
{
	(void)proc, (void)vm, (void)end, (void)e;
	return 0;
}

int __wrap_migration_check_waits(struct qmp *qmp, struct err *e)
{
	(void)qmp;
	looks++;
	return guest_comes_at && steps >= guest_comes_at ? err_set(e, GW_VM_STATE, EBUSY, "it receives another guest") : 0;
}

/* Five seconds by ten steps each, and then it fails. */
int __wrap_ram_writer_open(struct ram_writer *p, const struct vm *vm, const struct ram_alive *alive, struct err *e)
{
	int r = 0;

	(void)p, (void)vm;
	for (steps = 1; steps <= STEPS && !r; steps++) {
		later_ns += STEP_NS;
		if (steps == stop_at)
			raise(SIGTERM);
		r = alive->step(alive->arg, e);
	}
	return r ? r : err_set(e, GW_NO_ROOM, ENOSPC, "the end");
}

struct rig {
	struct receiver_options o;
	struct receiver r;
	int peer;
	struct err e;
};

static void begin(struct rig *rig, uint64_t features)
{
	int fds[2];

	*rig = (struct rig) { .r = { .o = &rig->o, .features = features } };
	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), errno);
	assert_int_equal(channel_new(fds[0], &engine_poll, PATIENCE_MS, &rig->r.ch, &rig->e), 0);
	rig->peer = fds[1];
	stop_at = steps = looks = guest_comes_at = 0;
}

/* How many PONGs have come, and nothing else. */
static unsigned int pongs(const struct rig *rig)
{
	uint8_t frame[WIRE_HEADER + 8];
	struct wire_header h;
	unsigned int n = 0;

	while (recv(rig->peer, frame, sizeof(frame), 0) == sizeof(frame)) {
		assert_int_equal(wire_get_header(frame, &h), 0);
		assert_int_equal(h.type, WIRE_PONG);
		assert_int_equal(h.arg, 0);
		n++;
	}
	return n;
}

static void end(struct rig *rig)
{
	channel_free(rig->r.ch);
	close(rig->peer);
}

static void a_sign_of_life(void **state)
{
	struct rig rig;

	(void)state;
	begin(&rig, WIRE_EMPTIES);
	assert_int_not_equal(join_streams(&rig.r, &rig.e), 0);
	assert_int_equal(rig.e.exit, GW_NO_ROOM);
	assert_in_range(pongs(&rig), 4, 5);
	end(&rig);
}

static void an_older_sender(void **state)
{
	struct rig rig;

	(void)state;
	begin(&rig, ~WIRE_EMPTIES);
	assert_int_not_equal(join_streams(&rig.r, &rig.e), 0);
	assert_int_equal(rig.e.exit, GW_NO_ROOM);
	assert_int_equal(pongs(&rig), 0);
	end(&rig);
}

static void a_sender_that_is_gone(void **state)
{
	struct rig rig;

	(void)state;
	begin(&rig, WIRE_EMPTIES);
	assert_return_code(shutdown(rig.peer, SHUT_RDWR), errno);
	assert_int_not_equal(join_streams(&rig.r, &rig.e), 0);
	assert_int_not_equal(rig.e.exit, GW_NO_ROOM);
	end(&rig);
}

/* Another client has QEMU receive another guest: what is emptied from then on is that one's. */
static void another_guest_comes(void **state)
{
	struct rig rig;

	(void)state;
	for (int knows = 0; knows < 2; knows++) {
		begin(&rig, knows ? WIRE_EMPTIES : 0);
		assert_int_not_equal(join_streams(&rig.r, &rig.e), 0);
		assert_int_equal(rig.e.exit, GW_NO_ROOM);
		assert_in_range(looks, 5, 6);
		end(&rig);
		begin(&rig, knows ? WIRE_EMPTIES : 0);
		guest_comes_at = STEPS / 2;
		assert_int_not_equal(join_streams(&rig.r, &rig.e), 0);
		assert_int_equal(rig.e.exit, GW_VM_STATE);
		assert_in_range(steps, STEPS / 2, STEPS / 2 + 11);
		end(&rig);
	}
}

/* The receiver of a sender that waits for READY, a third of whose patience each nap is. */
struct busy {
	int fd;
	pthread_t thread;
};

static void *say_pongs(void *arg)
{
	const struct wire_header pong = { .type = WIRE_PONG, .length = 8 }, ready = { .type = WIRE_READY, .arg = 7, .length = WIRE_SECRET };
	uint8_t frame[WIRE_HEADER + WIRE_SECRET] = { 0 };
	const struct busy *b = arg;

	wire_put_header(frame, &pong);
	for (unsigned int i = 0; i < 4; i++) {
		nap_ms(PATIENCE_MS / 3);
		assert_int_equal(send(b->fd, frame, WIRE_HEADER + 8, 0), WIRE_HEADER + 8);
	}
	wire_put_header(frame, &ready);
	assert_int_equal(send(b->fd, frame, sizeof(frame), 0), sizeof(frame));
	return NULL;
}

/* Each PONG is soon enough, and all of them together are not. */
static void the_sender_waits(void **state)
{
	struct wire_header h;
	uint8_t secret[WIRE_SECRET];
	struct rig rig;
	struct busy b;

	(void)state;
	for (int knows = 1; knows >= 0; knows--) {
		begin(&rig, 0);
		b.fd = rig.peer;
		assert_int_equal(pthread_create(&b.thread, NULL, say_pongs, &b), 0);
		if (knows) {
			assert_int_equal(hello_ready(rig.r.ch, WIRE_EMPTIES, &h, &rig.e), 0);
			assert_int_equal(h.arg, 7);
			assert_int_equal(channel_body(rig.r.ch, secret, sizeof(secret), &rig.e), 0);
		} else {
			assert_int_not_equal(hello_ready(rig.r.ch, ~WIRE_EMPTIES, &h, &rig.e), 0);
			assert_int_equal(rig.e.exit, GW_BAD_PEER);
			assert_string_equal(rig.e.text, "the receiver sent PONG where READY was due");
		}
		pthread_join(b.thread, NULL);
		end(&rig);
	}
}

/* The last one: a request to stop is for ever. */
static void a_request_to_stop(void **state)
{
	struct rig rig;

	(void)state;
	begin(&rig, 0);
	stop_at = STEPS / 2;
	assert_int_not_equal(join_streams(&rig.r, &rig.e), 0);
	assert_int_equal(rig.e.exit, GW_CANCELLED);
	end(&rig);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sign_of_life),
		cmocka_unit_test(an_older_sender),
		cmocka_unit_test(a_sender_that_is_gone),
		cmocka_unit_test(another_guest_comes),
		cmocka_unit_test(the_sender_waits),
		cmocka_unit_test(a_request_to_stop),
	};

	stop_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
