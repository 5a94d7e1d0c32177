// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device state by QEMU's own migration, which sends private RAM while the guest runs:
 *
 *	migrate              QEMU sends its private RAM, then stops the guest (STOP)
 *	pre-switchover       the guest stands still, disk I/O is drained: nobody writes RAM any more
 *	migrate-continue     QEMU writes the device state
 *
 * The last harvest waits for pre-switchover, not for STOP: QEMU says STOP before it has drained disk I/O.
 */
#include <errno.h>
#include <string.h>

#include "io/sock.h"
#include "migrate/sender_internal.h"
#include "vmm/ram.h"

/*
 * QEMU's settings for `migrate`, as late as they can be set: whoever migrates this VM or saves it to a file until then must not
 * find them, as RAM would be left out. While a migration is under way QEMU takes no settings, so nobody else's can find
 * them afterwards, and ours are undone when it has ended.
 */
static int begin(struct sender *s, struct err *e)
{
	struct migration *m = &s->migration;
	int r = migration_running(s->qmp, &m->was_running, e);

	if (!r)
		r = migration_plan(m, false, false, (unsigned int)s->limits.downtime_limit_ms, e);
	if (!r)
		r = journal_command(&s->journal, "migrate-set-capabilities", json_pack("{s:O}", "capabilities", m->old_caps), true, e);
	if (!r)
		r = journal_command(&s->journal, "migrate-set-parameters", json_incref(m->old_params), true, e);
	if (!r)
		r = migration_configure(m, e);
	/* What was heard until now is of before. */
	if (!r)
		r = sender_events(s, NULL, 0, e);
	s->stop_realtime_ns = 0;
	s->resumed = false;
	if (!r)
		r = journal_migrate(&s->journal, m->was_running, e);
	if (r)
		return r;
	r = migration_start(m, false, e);
	if (r)
		journal_refused(&s->journal);
	return r ? r : journal_accepted(&s->journal, e);
}

/* Passes on what QEMU has written. 1: it closed its end. */
static int pump(struct sender *s, struct err *e)
{
	static uint8_t buf[SAVED_OVERLAP + WIRE_DEVICE_MAX];	/* the end of the part before comes first */
	uint8_t *part = buf + SAVED_OVERLAP;
	ssize_t n = sock_recv_some(s->migration.stream, part, WIRE_DEVICE_MAX);
	int running;

	if (n == -EAGAIN)
		return 0;
	if (n < 0)
		return err_set(e, GW_INTERNAL, (int)-n, "QEMU's migration stream: %s", strerror((int)-n));
	if (n == 0)
		return 1;
	/* QEMU looked at that when it stopped the guest; we had, before, and an operator may have been faster than both. */
	running = saved_says_running(buf, SAVED_OVERLAP + (size_t)n);
	if (running >= 0)
		s->migration.was_running = running;
	memmove(buf, buf + n, SAVED_OVERLAP);
	return sender_device(s, part, (size_t)n, e);
}

static int qemu_failed(const char *status, struct err *e)
{
	return err_set(e, GW_QMP, EIO, "the source QEMU ended its migration with status \"%s\": see its log", status);
}

static int stand_still(struct sender *s, struct err *e)
{
	uint64_t deadline = deadline_ms(s->o->timeout_ms), before = 0;
	char status[64] = "";
	int r = begin(s, e);

	/* From here on QEMU plugs nothing. RAM that came before was in no round, and QEMU's stream leaves it out. */
	if (!r)
		r = backends_same(s->qmp, &s->vm, e);
	if (!r)
		r = sender_check_same(s, e);
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
 * The end of the stream says nothing: a migration that somebody cancels in its last moment has one, too, and QEMU lets the
 * guest run. Its status does.
 */
static int wait_completed(struct sender *s, char *status, size_t len, struct err *e)
{
	uint64_t deadline = deadline_ms(s->o->timeout_ms);
	int r = 0;

	while (!r && strcmp(status, "completed")) {
		if (!strcmp(status, "failed") || !strcmp(status, "cancelled") || !strcmp(status, "cancelling"))
			return qemu_failed(status, e);
		if (now_ns() > deadline)
			return err_set(e, GW_TIMEOUT, ETIMEDOUT, "the source QEMU does not complete its migration (status \"%s\")", status);
		r = sender_wait_qemu(s, -1, true, e);
		if (!r)
			r = sender_events(s, status, len, e);
	}
	return r;
}

/*
 * Sends the device state, up to QEMU's end of file. It may stream to the peer as QEMU writes it, its
 * end included: the receiver keeps all of it from its QEMU until DEVICE_END, which is what decides.
 */
static int state(struct sender *s, struct err *e)
{
	uint64_t deadline = deadline_ms(s->o->timeout_ms), before = 0;
	char status[64] = "";
	int r = journal_continue(&s->journal, e);

	if (!r)
		r = migration_continue(&s->migration, e);
	while (!r) {
		r = sender_wait_qemu(s, s->migration.stream, false, e);
		if (!r)
			r = sender_events(s, status, sizeof(status), e);
		if (!r)
			r = pump(s, e);
		if (s->report->device_bytes != before)
			deadline = deadline_ms(s->o->timeout_ms);
		before = s->report->device_bytes;
		if (!r && now_ns() > deadline)
			r = err_set(e, GW_TIMEOUT, ETIMEDOUT, "the source QEMU does not finish its device state (status \"%s\")", status);
	}
	if (r == 1)
		r = wait_completed(s, status, sizeof(status), e);
	/* So that it can be told from one that somebody else may begin, and complete, while a guardian waits for the monitor. */
	return r ? r : journal_completed(&s->journal, s->qmp, s->migration.was_running, e);
}

const struct device_way way_migrate = { .stand_still = stand_still, .state = state };
