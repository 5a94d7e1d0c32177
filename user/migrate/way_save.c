// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device state without a migration of QEMU's (saved.h), and its private RAM by us (devram.h):
 *
 *	first round          and all of the private RAM, while the guest runs
 *	stop                 its answer comes when disk I/O is drained: nobody writes RAM any more
 *	last harvest         and what has changed of the private RAM
 *	xen-save-devices-state
 *
 * QEMU's migration goes through all RAM, shared or not: 75 us for each GiB in the blackout and 135 us before it, with its
 * big lock held. Comparing the private RAM takes some 4 ms. And since 8.1 it leaves no memfd out of its stream.
 */
#include <errno.h>

#include "io/sock.h"
#include "io/stop.h"
#include "migrate/sender_internal.h"
#include "vmm/jobs.h"

int way_agreed(struct sender *s, bool saved, struct err *e)
{
	int r;

	if (saved && s->choice == WAY_MIGRATE)
		return err_set(e, GW_BAD_PEER, EPROTO, "the other side agrees to what was not offered");
	if (!saved)
		return s->choice == WAY_SAVE ? way_refused(s->o->wish, e) : 0;
	s->way = &way_save;
	s->report->saved = true;
	r = journal_saved(&s->journal, e);
	return r ? r : saved_open(&s->saved, s->qmp, e);
}

/* Until QEMU has answered what was begun. */
static int wait_answer(struct sender *s, const char *what, bool keep_alive, struct err *e)
{
	uint64_t deadline = deadline_ms(s->o->timeout_ms);
	int r = 0;

	while (!r) {
		r = sender_events(s, NULL, 0, e);
		if (!r && qmp_answered(s->qmp))
			return 0;
		if (!r && now_ns() > deadline)
			r = err_set(e, GW_TIMEOUT, ETIMEDOUT, "the source QEMU does not answer \"%s\"", what);
		if (!r)
			r = sender_wait_qemu(s, -1, keep_alive, e);
	}
	return r;
}

/* Others may have stopped the guest meanwhile, or let it run. Whether one that stands still can be saved was asked at first. */
static int same_as_before(struct sender *s, struct err *e)
{
	bool running;
	int r = migration_running(s->qmp, &running, e);

	if (r || running == s->migration.was_running)
		return r;
	return err_set(e, GW_VM_STATE, EBUSY, "the source VM was %s meanwhile: try again", running ? "continued" : "stopped");
}

static int stand_still(struct sender *s, struct err *e)
{
	int r = devram_send(&s->devram, s->ch, &s->report->device_bytes, e);

	if (!r)
		r = same_as_before(s, e);
	/* What was heard until now is of before; from here on nobody else may let it run. */
	if (!r)
		r = sender_events(s, NULL, 0, e);
	s->resumed = false;
	s->stop_realtime_ns = 0;
	if (!r && s->migration.was_running) {
		r = journal_stop(&s->journal, e);
		if (!r)
			r = qmp_begin(s->qmp, "stop", NULL, e);
		if (!r)
			r = wait_answer(s, "stop", true, e);
	}
	/*
	 * QEMU's migration would ask for these itself: what came while RAM was sent. A job that has begun since the last look keeps
	 * QEMU from giving up its disks, which xen-save-devices-state of 11.1 does not tell.
	 */
	if (!r)
		r = migration_check_idle(s->qmp, e);
	if (!r)
		r = sender_check_same(s, e);
	return r ? r : jobs_check_again(s->qmp, e);
}

static int rest(struct sender *s, struct err *e)
{
	int r = private_same(s->qmp, &s->devram.ram, e);

	return r ? r : devram_send(&s->devram, s->ch, &s->report->device_bytes, e);
}

static int state(struct sender *s, struct err *e)
{
	int r = saved_begin(&s->saved, s->qmp, e);

	if (!r)
		r = wait_answer(s, "xen-save-devices-state", false, e);
	if (!r)
		r = saved_check_disks(s->qmp, e);
	if (!r)
		r = saved_finish(&s->saved, s->migration.was_running, e);
	return r ? r : sender_device(s, s->saved.state, s->saved.len, e);
}

const struct device_way way_save = { .stand_still = stand_still, .rest = rest, .state = state };
