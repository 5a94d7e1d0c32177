// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device state by QEMU's own migration, which sends private RAM while the guest runs:
 *
 *	migrate              QEMU sends its private RAM, then stops the guest (STOP)
 *	pre-switchover       the guest stands still, disk I/O is drained: nobody writes RAM any more
 *	migrate-continue     QEMU writes the device state; it is held back until it is complete
 *
 * The last harvest waits for pre-switchover, not for STOP: QEMU says STOP before it has drained disk I/O.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "io/sock.h"
#include "migrate/sender_internal.h"
#include "vmm/ram.h"

/* Passes on what QEMU has written. 1: it closed its end. */
static int pump(struct sender *s, struct err *e)
{
	static uint8_t buf[WIRE_DEVICE_MAX];
	ssize_t n = sock_recv_some(s->migration.stream, buf, sizeof(buf));

	if (n == -EAGAIN)
		return 0;
	if (n < 0)
		return err_set(e, GW_INTERNAL, (int)-n, "QEMU's migration stream: %s", strerror((int)-n));
	if (n == 0)
		return 1;
	return sender_device(s, buf, (size_t)n, e);
}

static int qemu_failed(const char *status, struct err *e)
{
	return err_set(e, GW_QMP, EIO, "the source QEMU ended its migration with status \"%s\": see its log", status);
}

static int stand_still(struct sender *s, struct err *e)
{
	uint64_t deadline = deadline_ms(s->o->timeout_ms), before = 0;
	char status[64] = "";
	int r = migration_start(&s->migration, false, e);

	/* From here on QEMU plugs nothing. RAM that came before was in no round, and QEMU's stream leaves it out. */
	if (!r)
		r = backends_same(s->qmp, &s->vm, e);
	if (r)
		return r;
	for (;;) {
		r = sender_wait_qemu(s, s->migration.stream, true, e);
		if (!r)
			r = pump(s, e);
		if (r == 1)
			return qemu_failed("failed", e);
		if (!r)
			r = sender_events(s, status, sizeof(status), e);
		if (r < 0)
			return r;
		if (!strcmp(status, "pre-switchover"))
			return 0;
		if (!strcmp(status, "failed") || !strcmp(status, "cancelled") || !strcmp(status, "completed"))
			return qemu_failed(status, e);
		if (s->report->device_bytes != before)
			deadline = deadline_ms(s->o->timeout_ms);
		before = s->report->device_bytes;
		if (now_ns() > deadline)
			return err_set(e, GW_TIMEOUT, ETIMEDOUT, "the source QEMU does not come to the switchover (status \"%s\")", status);
	}
}

/*
 * Reads the device state up to QEMU's end of file, and holds back its last HELD_MIN bytes at least. While any of
 * the state itself (which ends with a byte that says so; a description of it follows, which a destination does
 * not need to run) is still here, the destination cannot run: so the source can be put back, whoever dies.
 */
#define HELD_MIN	(4u << 20)	/* more than a description ever is */
#define HELD_MAX	(2 * HELD_MIN)

static int hold_device_state(struct sender *s, struct held *held, struct err *e)
{
	uint64_t deadline = deadline_ms(s->o->timeout_ms);
	char status[64] = "";
	ssize_t n;
	int r;

	for (;;) {
		r = sender_wait_qemu(s, s->migration.stream, false, e);
		if (!r)
			r = sender_events(s, status, sizeof(status), e);
		if (r < 0)
			return r;
		if (!strcmp(status, "failed"))
			return qemu_failed(status, e);
		n = sock_recv_some(s->migration.stream, held->bytes + held->len, HELD_MAX - held->len);
		if (n == 0)
			return 0;
		if (n < 0 && n != -EAGAIN)
			return err_set(e, GW_INTERNAL, (int)-n, "QEMU's migration stream: %s", strerror((int)-n));
		if (n > 0) {
			held->len += (size_t)n;
			deadline = deadline_ms(s->o->timeout_ms);
		}
		if (held->len == HELD_MAX) {
			r = sender_device(s, held->bytes, HELD_MIN, e);
			if (r)
				return r;
			memmove(held->bytes, held->bytes + HELD_MIN, HELD_MAX - HELD_MIN);
			held->len -= HELD_MIN;
		}
		if (now_ns() > deadline)
			return err_set(e, GW_TIMEOUT, ETIMEDOUT, "the source QEMU does not finish its device state (status \"%s\")",
				       status);
	}
}

static int state(struct sender *s, struct held *held, struct err *e)
{
	int r;

	held->bytes = malloc(HELD_MAX);
	if (!held->bytes)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	r = migration_continue(&s->migration, e);
	return r ? r : hold_device_state(s, held, e);
}

const struct device_way way_migrate = { .stand_still = stand_still, .state = state };
