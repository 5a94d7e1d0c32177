// SPDX-License-Identifier: GPL-2.0-only
/*
 * Save mode: QEMU yields its device state without a migration (save.h), and we send its private RAM
 * (private_ram_frames.h):
 *
 *	first round          and all of the private RAM, while the guest runs
 *	stop                 its answer comes when disk I/O is drained: nothing writes RAM any more
 *	last harvest         and what has changed of the private RAM
 *	xen-save-devices-state
 *
 * QEMU's migration goes through all RAM, shared or not: 75 us for each GiB in the blackout and 135
 * us before it, with its big lock held. To compare the private RAM takes some 4 ms. And since 8.1
 * QEMU leaves no memfd out of its migration stream.
 */
#include <errno.h>

#include "base/clock.h"
#include "base/stop.h"
#include "qmp/jobs.h"
#include "send/sender_internal.h"

/* Waits until QEMU has answered the command that is under way. */
static int send_save_wait_answer(struct sender *s, const char *what, struct err *e)
{
	uint64_t deadline = deadline_ms(s->o->timeout_ms);
	int r = 0;

	while (!r) {
		r = sender_events(s, NULL, 0, e);
		if (!r && qmp_answered(s->qmp))
			return 0;
		if (!r && now_ns() > deadline)
			r = err_set(e, GW_TIMEOUT, ETIMEDOUT,
				    "the source QEMU does not answer \"%s\"", what);
		if (!r)
			r = sender_wait_qemu(s, -1, STOP_SLICE_NS / 1000000, e);
	}
	return r;
}

/*
 * Another client may have stopped the guest meanwhile, or continued it. Whether a stopped guest can
 * be saved was a preflight check of the state at that time.
 */
static int send_save_check_unchanged(struct sender *s, struct err *e)
{
	bool running;
	int r = migration_running(s->qmp, &running, e);

	if (r || running == s->migration.was_running)
		return r;
	return err_set(e, GW_VM_STATE, EBUSY,
		       "the source VM was %s during the migration: try again",
		       running ? "continued" : "stopped");
}

/*
 * A loss of the link before anything shows that it has come may have taken some of it, so all of it
 * goes again: the receiver takes it until the first ROUND.
 */
int send_save_ahead(struct sender *s, struct err *e)
{
	const struct frame_out to = { .send = frame_out_to_channel, .arg = s->ch };

	if (s->devstate != &devstate_save || s->state_there)
		return 0;
	s->private_copy.whole = false;
	return private_ram_send(&s->private_copy, &to, &s->report->device_bytes, e);
}

static int send_save_stand_still(struct sender *s, struct err *e)
{
	const struct frame_out to = sender_first_stream(s);
	struct migration_status now;
	int r = private_ram_send(&s->private_copy, &to, &s->report->device_bytes, e);

	if (!r)
		r = sender_flush(s, e);
	if (!r)
		r = send_save_check_unchanged(s, e);
	if (!r)
		r = sender_renew_lease(s, e);
	/* Drops the events from before; from here on no other client may continue the guest. */
	if (!r)
		r = sender_events(s, NULL, 0, e);
	s->resumed = false;
	s->stop_realtime_ns = 0;
	if (!r && s->migration.was_running) {
		r = journal_stop(&s->journal, &s->last, e);
		if (!r)
			r = qmp_begin(s->qmp, "stop", NULL, e);
		if (!r)
			r = send_save_wait_answer(s, "stop", e);
	}
	/*
	 * QEMU's migration would check these itself: what began while RAM was sent. A job that has
	 * begun since the check before keeps QEMU from giving up its disks, and
	 * xen-save-devices-state of 11.1 does not report that.
	 */
	if (!r)
		r = migration_check_idle(s->qmp, &now, e);
	if (!r)
		r = sender_check_same(s, e);
	if (!r && !s->o->pause)
		r = vm_check_balloon(s->qmp, e);
	return r ? r : jobs_check_again(s->qmp, e);
}

static int send_save_rest(struct sender *s, struct err *e)
{
	const struct frame_out to = sender_first_stream(s);
	int r = private_ram_same(s->qmp, &s->private_copy.ram, e);

	return r ? r : private_ram_send(&s->private_copy, &to, &s->report->device_bytes, e);
}

static int send_save_state(struct sender *s, struct err *e)
{
	int r = save_begin(&s->save, s->qmp, e);

	s->held = true;
	if (!r)
		r = send_save_wait_answer(s, "xen-save-devices-state", e);
	if (!r)
		r = save_check_disks(s->qmp, e);
	/* What another client has saved since the guest stopped was not in the last harvest. */
	if (!r)
		r = sender_renew_lease(s, e);
	if (!r)
		r = save_finish(&s->save, s->migration.was_running, e);
	return r ? r : sender_device(s, s->save.state, s->save.len, e);
}

const struct devstate_ops devstate_save = {
	.stand_still = send_save_stand_still, .rest = send_save_rest, .state = send_save_state,
};
