// SPDX-License-Identifier: GPL-2.0-only
/*
 * Migrate mode: the device state travels by QEMU's own migration, which sends private RAM while the
 * guest runs:
 *
 *	migrate              QEMU sends its private RAM, beside late rounds (late_rounds.c), and
 *	                     stops the guest (STOP)
 *	pre-switchover       the guest is stopped, disk I/O is drained: nothing writes RAM any more
 *	migrate-continue     QEMU writes the device state
 *
 * The last harvest waits for pre-switchover, not for STOP: QEMU says STOP before it has drained
 * disk I/O.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/say.h"
#include "base/stop.h"
#include "net/sock.h"
#include "send/sender_internal.h"
#include "vmm/ram.h"

#define LATE_SLICE_MS	10u	/* how often a late round is looked after, whatever QEMU says */

/*
 * With our settings a foreign migration leaves RAM out, and so takes nothing of its dirty log. The
 * next migration that QEMU has is ours.
 */
static int send_migrate_check_foreign(struct sender *s, bool ran, struct err *e)
{
	int r = sender_renew_lease(s, e);
	const bool hidden = foreign_may_hide(&s->foreign);

	s->foreign.asked_ns = 0;
	if (r || !hidden || !ran || s->migration.was_running)
		return r;
	return err_set(e, GW_VM_STATE, EAGAIN,
		       "the source VM was stopped during the migration, and as QEMU's last migration had \"%s\" nothing would tell of another one since: try again",
		       s->foreign.last.status);
}

/*
 * Sets QEMU up for `migrate` as late as possible: a client that migrates this VM or saves it to a
 * file before must not find these settings, as QEMU would leave RAM out. While a migration is under
 * way QEMU accepts no settings and no second migration, so no client can use them afterwards
 * either; the journal undoes them when it has ended.
 */
static int send_migrate_begin(struct sender *s, struct err *e)
{
	struct migration *m = &s->migration;
	const bool ran = m->was_running;
	int r = migration_running(s->qmp, &m->was_running, e);

	if (!r)
		r = migration_plan(m, false, false, (unsigned int)s->limits.downtime_limit_ms, e);
	if (!r)
		r = journal_command(&s->journal, "migrate-set-capabilities",
				    json_pack("{s:O}", "capabilities", m->old_caps), true, e);
	if (!r)
		r = journal_command(&s->journal, "migrate-set-parameters",
				    json_incref(m->old_params), true, e);
	if (!r)
		r = migration_configure(m, e);
	if (!r)
		r = send_migrate_check_foreign(s, ran, e);
	/* Drops the events from before. */
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

/* Passes on what QEMU has written. 1: QEMU has closed its end. */
static int send_migrate_pump(struct sender *s, struct err *e)
{
	/* The end of the part before comes first. */
	static uint8_t buf[SAVE_OVERLAP + WIRE_DEVICE_MAX];
	uint8_t *part = buf + SAVE_OVERLAP;
	ssize_t n = sock_recv_some(s->migration.stream, part, WIRE_DEVICE_MAX);

	if (n == -EAGAIN)
		return 0;
	if (n < 0)
		return err_set(e, GW_INTERNAL, (int)-n, "cannot read QEMU's migration stream: %s",
			       strerror((int)-n));
	if (n == 0)
		return 1;
	/* Its note is with the devices. What comes before is RAM, which the guest writes. */
	if (s->held) {
		s->says |= save_says(buf, SAVE_OVERLAP + (size_t)n);
		memmove(buf, buf + n, SAVE_OVERLAP);
	}
	return sender_device(s, part, (size_t)n, e);
}

static int send_migrate_failed(const char *status, struct err *e)
{
	return err_set(e, GW_QMP, EIO,
		       "the source QEMU ended its migration with status \"%s\": see its log", status);
}

/* Takes QEMU's events; while its migration goes on, so do rounds. */
static int send_migrate_step(struct sender *s, char *status, size_t len, struct err *e)
{
	const uint64_t since_ns = now_ns();
	int r = sender_events(s, status, len, e);

	if (r || !strcmp(status, "pre-switchover"))
		return r;
	if (migration_has_ended(status) || !strcmp(status, "completed"))
		return send_migrate_failed(status, e);
	return late_rounds_step(s, since_ns, e);
}

static int send_migrate_wait_still(struct sender *s, char *status, size_t len, struct err *e)
{
	uint64_t deadline = deadline_ms(s->o->timeout_ms), before = 0;
	int r;

	while (strcmp(status, "pre-switchover")) {
		r = sender_wait_qemu(s, s->migration.stream, LATE_SLICE_MS, e);
		if (!r)
			r = send_migrate_pump(s, e);
		if (r == 1)
			return send_migrate_failed("failed", e);
		if (!r)
			r = send_migrate_step(s, status, len, e);
		if (r < 0)
			return r;
		if (s->report->device_bytes != before)
			deadline = deadline_ms(s->o->timeout_ms);
		before = s->report->device_bytes;
		if (now_ns() > deadline)
			return err_set(e, GW_TIMEOUT, ETIMEDOUT,
				       "the source QEMU does not reach pre-switchover (status \"%s\")",
				       status);
	}
	return 0;
}

static int send_migrate_stand_still(struct sender *s, struct err *e)
{
	char status[64] = "";
	int r = send_migrate_begin(s, e);

	if (!r)
		r = send_migrate_step(s, status, sizeof(status), e);
	/*
	 * From here on QEMU refuses to plug a device. RAM that was plugged before was in no round,
	 * and QEMU's stream leaves it out.
	 */
	if (!r)
		r = backends_same(s->qmp, &s->vm, e);
	if (!r)
		r = sender_check_same(s, e);
	if (!r && !s->o->pause)
		r = vm_check_balloon(s->qmp, e);
	if (!r)
		r = send_migrate_wait_still(s, status, sizeof(status), e);
	if (!r)
		r = late_rounds_end(s, e);
	/* Ours may have ended, and a foreign one begun: nothing is cleared any more. */
	if (r && s->lease)
		lease_revoke(s->lease);
	return r;
}

/*
 * The end of the stream proves nothing: the stream of a migration that an operator cancels in its
 * last moment ends, too, and QEMU lets the guest run. The migration's status decides.
 */
static int send_migrate_wait_completed(struct sender *s, char *status, size_t len, struct err *e)
{
	uint64_t deadline = deadline_ms(s->o->timeout_ms);
	int r = 0;

	while (!r && strcmp(status, "completed")) {
		if (migration_has_ended(status))
			return send_migrate_failed(status, e);
		if (now_ns() > deadline)
			return err_set(e, GW_TIMEOUT, ETIMEDOUT,
				       "the source QEMU does not complete its migration (status \"%s\")",
				       status);
		r = sender_wait_qemu(s, -1, STOP_SLICE_NS / 1000000, e);
		if (!r)
			r = sender_events(s, status, len, e);
	}
	return r;
}

/*
 * QEMU notes whether the guest ran when it stops the guest. We have asked before that, and an
 * operator may have stopped the guest in between: QEMU's note counts.
 */
static void send_migrate_hear(struct sender *s)
{
	struct migration *m = &s->migration;

	if (s->says == (SAVE_SAYS_RUNS | SAVE_SAYS_STANDS))
		say("the device state says both that the guest ran and that it was paused, and the guest may have written one of these: godwit does not let it run");
	m->was_running = save_ran(s->says, m->was_running, s->stop_realtime_ns);
}

/*
 * Sends the device state, up to QEMU's end of file. It may stream to the receiver as QEMU writes
 * it, its end included: the receiver keeps all of it from its QEMU until DEVICE_END, the commit
 * point.
 */
static int send_migrate_state(struct sender *s, struct err *e)
{
	uint64_t deadline = deadline_ms(s->o->timeout_ms), before = 0;
	char status[64] = "";
	int r = journal_continue(&s->journal, e);

	s->held = true;
	if (!r)
		r = migration_continue(&s->migration, e);
	while (!r) {
		r = sender_wait_qemu(s, s->migration.stream, STOP_SLICE_NS / 1000000, e);
		if (!r)
			r = sender_events(s, status, sizeof(status), e);
		if (!r)
			r = send_migrate_pump(s, e);
		if (s->report->device_bytes != before)
			deadline = deadline_ms(s->o->timeout_ms);
		before = s->report->device_bytes;
		if (!r && now_ns() > deadline)
			r = err_set(e, GW_TIMEOUT, ETIMEDOUT,
				    "the source QEMU does not finish its device state (status \"%s\")",
				    status);
	}
	if (r == 1)
		r = send_migrate_wait_completed(s, status, sizeof(status), e);
	send_migrate_hear(s);
	/*
	 * Another client may begin, and complete, a migration while a guardian waits for the
	 * monitor: the record tells ours from that.
	 */
	return r ? r : journal_completed(&s->journal, s->qmp, s->migration.was_running, e);
}

const struct devstate_ops devstate_migrate = {
	.stand_still = send_migrate_stand_still, .state = send_migrate_state,
};
