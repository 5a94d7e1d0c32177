// SPDX-License-Identifier: GPL-2.0-only
/*
 * The blackout. From the stop to RESUMED the sender waits for QEMU and for its own sockets, never
 * for an answer of the receiver:
 *
 *	SWITCHOVER		the guest still runs; the receiver's answer has come
 *	stop			the guest is stopped, disk I/O is drained: nothing writes RAM
 *	last harvest		nothing to undo in KVM
 *	last round		on its way, and meanwhile
 *	device state		follows the RAM on the streams, and the receiver keeps it
 *	verify			with --verify only
 *	serial rings		was a client of a port served all the same?
 *	ROUND, COMMIT		all of that is with the kernel
 *	commit point		DEVICE_END goes out: only the destination may run from
 *				here on (txn/commit.h)
 *	RESUMED
 *
 * The receiver itself finds out whether all has come: on each stream the end of the last round, and
 * then as many bytes of device state and hashes as DEVICE_END says. What if one stream
 *	- is slow: the receiver waits, for as long as frames come somewhere;
 *	- dies, or is silent: the receiver gives up before it has passed the device state to
 *	  QEMU, which is DEAD for the sender (txn/commit.h): its guest goes on here;
 *	- lies: that is a sender of ill will, which could as well have sent another guest.
 * The receiver keeps that verdict for the sender, whose link may be gone, from SWITCHOVER on.
 *
 * How QEMU stops, and yields its device state, is up to struct devstate_ops: send_migrate.c,
 * send_save.c.
 */
#include <errno.h>

#include "base/clock.h"
#include "base/stop.h"
#include "fit/host.h"
#include "fit/links.h"
#include "peer/verify.h"
#include "qmp/jobs.h"
#include "send/sender_internal.h"
#include "vmm/ram.h"

static uint64_t switchover_positive(int64_t ns)
{
	return ns > 0 ? (uint64_t)ns : 0;
}

/* RAM is at rest: the last harvest, and what must be known before the last round. */
static int switchover_harvest(struct sender *s, struct err *e)
{
	struct report *rep = s->report;
	uint64_t t = now_ns();
	int r;

	if (!s->o->pause) {
		r = s->source->ops->harvest(s->source, e);
	} else {
		r = sender_check_mapped(s, e);
		if (!r)
			r = s->source->ops->start(s->source, e);
	}
	rep->blackout.harvest_ns = now_ns() - t;
	/*
	 * The harvest has found which processes map RAM now. What a process wrote by a device that
	 * it opened since the check before was lost.
	 */
	if (!r && !s->o->pause)
		r = stop_check_begin(s, stop_check_mappers, e);
	/*
	 * This costs one QMP latency. It cannot come earlier: bits that a measurement of QEMU's
	 * takes from the log before the harvest are lost.
	 */
	if (!r)
		r = dirty_rate_check(s->qmp, &s->dirty_rate, true, e);
	return r;
}

/* The last round, and the device state beside it. QEMU writes no RAM while it saves its devices. */
static int switchover_send(struct sender *s, struct err *e)
{
	struct report *rep = s->report;
	int r = s->devstate->rest ? s->devstate->rest(s, e) : 0;

	/*
	 * Before the round begins, as it must come before the round's end: a stream that has no
	 * room takes no posted frame in a round, and ends it all the same.
	 */
	if (!r && s->owing.chosen)
		r = owing_collect(s, e);
	if (!r && s->owing.chosen)
		r = sender_flush(s, e);
	if (r)
		return r;
	sender_round_begin(s, ROUND_LAST);
	/* QEMU's files change hands with its device state: stop_checks.c. */
	r = stop_check_wait(s, stop_check_files, e);
	if (r)
		return r;
	rep->phase = "device state";
	r = s->devstate->state(s, e);
	return r ? r : sender_round_end(s, e);
}

/* --verify: the hashes go behind the last round. */
static int switchover_verify(struct sender *s, struct err *e)
{
	const struct frame_out to = sender_any_stream(s);
	uint64_t t = now_ns();
	int r = verify_send(&s->vm, s->source, &to, &s->verify_frames, e);

	if (!r)
		r = sender_flush(s, e);
	s->report->blackout.verify_ns = now_ns() - t;
	return r;
}

/*
 * Twice as long as the receiver waits for its QEMU (load.h), which in post-copy waits for pages of
 * ours meanwhile, each for a round trip.
 */
#define WAIT_TIMES	8u

/*
 * A guest that another client has continued (cont) since the stop makes writes that would be lost.
 */
static int switchover_check_stopped(struct sender *s, struct err *e)
{
	int r = sender_events(s, NULL, 0, e);

	if (!r && s->resumed)
		r = err_set(e, GW_VM_STATE, EBUSY,
			    "another client has continued the source VM in the switchover (cont): leave the VM alone and try again");
	return r;
}

/*
 * The commit point: from here on requests to stop are refused, and the guardian does not touch the
 * guest. The last check of the source comes after everything that takes time: QEMU says RESUME
 * before it obeys a `cont`.
 */
static int switchover_commit(struct sender *s, struct err *e)
{
	int r;

	if (!stop_commit())
		return stop_err(e);
	if (s->verdicts)
		sender_note_doubt(s);
	guardian_stand_down(&s->guardian);
	r = switchover_check_stopped(s, e);
	if (r) {
		guardian_stand_up(&s->guardian);
		return r;
	}
	now_both_ns(&s->commit_ns, &s->commit_realtime_ns);
	commit_source(&s->commit, SOURCE_SENDS_END);
	return 0;
}

/* All is with the kernel: ROUND, COMMIT, DEVICE_END. */
static int switchover_end(struct sender *s, struct err *e)
{
	struct wire_header round = {
		.type = WIRE_ROUND, .flags = WIRE_ROUND_LAST, .arg = s->number,
	};
	struct wire_header before = { .type = WIRE_COMMIT };
	struct wire_header end = {
		.type = WIRE_DEVICE_END, .arg = s->verify_frames, .length = WIRE_PLACE,
	};
	uint8_t body[WIRE_PLACE];
	int r;

	r = channel_send(s->ch, &round, NULL, e);
	if (!r)
		r = channel_send(s->ch, &before, NULL, e);
	if (!r)
		r = switchover_commit(s, e);
	if (r)
		return r;
	end.flags = s->migration.was_running ? WIRE_RUNS : 0;
	wire_put_u64(body, s->device_at);
	return channel_send(s->ch, &end, body, e);
}

static int switchover_wait_resumed(struct sender *s, struct err *e)
{
	struct wire_header h, done = { .type = WIRE_DONE };
	uint64_t deadline = deadline_ms(WAIT_TIMES * connect_patience_ms(s));
	struct err ignored = { 0 };
	uint8_t body[8];
	int r;

	/* The receiver's PONGs prolong the wait, up to the deadline. */
	while (!(r = channel_recv(s->ch, &h, false, e)) && (r = sender_take(s, &h, e)) > 0) {
		r = now_ns() > deadline;
		if (r)
			r = err_set(e, GW_TIMEOUT, ETIMEDOUT,
				    "the receiver answers, but does not report whether QEMU has loaded the device state");
		if (r)
			break;
	}
	if (!r && h.type != WIRE_RESUMED)
		r = err_set(e, GW_BAD_PEER, EPROTO, "the receiver sent %s where RESUMED was due",
			    wire_type_name(h.type));
	if (!r)
		r = channel_body(s->ch, body, sizeof(body), e);
	if (r)
		return r;
	s->resumed_realtime_ns = wire_get_u64(body);
	commit_source(&s->commit, SOURCE_LEARNS_RUNS);
	if (!s->verdicts)
		return 0;
	/* DONE has the receiver forget, and then our note is all that `godwit resolve` finds. */
	sender_note_doubt(s);
	channel_send(s->ch, &done, NULL, &ignored);
	return 0;
}

void switchover_times(struct sender *s)
{
	struct report *rep = s->report;
	uint64_t resumed = s->resumed_realtime_ns;

	rep->blackout.load_ns = switchover_positive((int64_t)(resumed - s->commit_realtime_ns) -
						    s->clock_offset_ns);
	rep->clock_error_ns = s->rtt_ns / 2;
	if (s->stop_realtime_ns)
		rep->downtime_ns = switchover_positive((int64_t)(resumed - s->stop_realtime_ns) -
						       s->clock_offset_ns);
}

static int switchover_find_lost_links(struct sender *s, struct err *e)
{
	json_auto_t *links = NULL;
	int r = host_lost_links(s->qmp, &s->vm, &links, e);

	s->links_lost = links;
	return r;
}

/* While the guest still runs: what has changed since the preflight checks? */
static int switchover_check(struct sender *s, struct err *e)
{
	bool changed;
	int r;

	/*
	 * No foreign migration may be under way: we would stop its guest, and QEMU takes no
	 * settings.
	 */
	r = sender_renew_lease(s, e);
	if (!r)
		r = migration_check_idle(s->qmp, &s->last, e);
	if (!r)
		r = sender_check_fit(s, &changed, e);
	/*
	 * RAM that was plugged at both ends fits, and was in no round. In migrate mode this is
	 * checked again when nothing can be plugged any more.
	 */
	if (!r)
		r = backends_same(s->qmp, &s->vm, e);
	if (!r)
		r = switchover_find_lost_links(s, e);
	return r ? r : jobs_check_again(s->qmp, e);
}

/*
 * --pause with --reconnect, or with a file to reuse: RAM is at rest, and goes as in pre-copy, so
 * that a loss of the link is survived, and pages may be refused. Nothing is left for the last round
 * then but these, and holes. After a loss the receiver is to say again that it may follow; one
 * while the ACK is waited for is survived as well, and what may have been lost goes again.
 */
static int switchover_send_at_rest(struct sender *s, struct err *e)
{
	bool again;
	int r;

	/* No limit slows down what the guest waits for. */
	pace_set(&s->pace, 0);
	do {
		again = false;
		r = sender_round(s, e);
		if (r)
			break;
		r = sender_ask_switchover(s, e);
		if (!r)
			r = sender_await_switchover(s, e);
		if (!r)
			r = sender_end_reuse(s, e);
		if (r) {
			r = connect_again(s, r, e);
			again = !r;
		}
	} while (again);
	return r;
}

/*
 * The guest stands still: the last harvest, until ended_ns. With what follows this leaves no moment
 * of the blackout without a name.
 */
static int switchover_at_rest(struct sender *s, uint64_t *ended_ns, struct err *e)
{
	struct report *rep = s->report;
	uint64_t begin, begin_real;
	int r;

	now_both_ns(&begin, &begin_real);
	if (s->stop_realtime_ns)
		rep->blackout.stop_ns =
			switchover_positive((int64_t)(begin_real - s->stop_realtime_ns));
	else if (s->migration.was_running)
		return err_set(e, GW_INTERNAL, EPROTO,
			       "QEMU has stopped the guest without the event STOP");
	/* Before the last harvest: it finds the RAM that devices write on that. */
	r = s->links_lost ? links_raise(s->qmp, &s->vm, &s->journal, e) : 0;
	if (!r)
		r = migration_take_writes(s->qmp, e);
	serial_rings_note(&s->serial);
	if (!r)
		r = switchover_harvest(s, e);
	*ended_ns = now_ns();
	rep->blackout.check_ns = *ended_ns - begin - rep->blackout.harvest_ns;
	return r;
}

int switchover(struct sender *s, struct err *e)
{
	struct report *rep = s->report;
	uint64_t t = 0, ended_ns, waited_ns;
	int r = 0;

	rep->phase = "switchover";
	sender_progress(s);
	if (owing_wanted(s))
		r = owing_choose(s, e);
	if (!r)
		r = sender_ask_switchover(s, e);
	if (!r)
		r = switchover_check(s, e);
	if (!r)
		r = sender_await_switchover(s, e);
	/* No answer that was asked for comes after the last round. */
	if (!r)
		r = sender_end_reuse(s, e);
	if (!r)
		r = owing_check(s, e);
	if (!r)
		r = s->devstate->stand_still(s, e);
	sender_brake_end(s);
	if (!r && !s->o->pause)
		r = stop_check_begin(s, stop_check_files, e);
	if (!r)
		r = switchover_at_rest(s, &t, e);
	if (r)
		return r;
	if (s->o->pause && (s->keeps || s->reuse.table) && !s->owing.chosen)
		r = switchover_send_at_rest(s, e);
	if (!r)
		r = switchover_send(s, e);
	if (!r)
		rep->blackout.ram_ns = send_streams_round_ns(s->streams) - t;
	if (!r && s->o->verify)
		r = switchover_verify(s, e);
	ended_ns = now_ns();
	if (!r)
		r = stop_checks_end(s, e);
	if (!r)
		r = serial_rings_check(&s->serial, e);
	waited_ns = now_ns() - ended_ns;
	rep->blackout.check_ns += waited_ns;
	if (!r)
		r = switchover_end(s, e);
	rep->guest_was_paused = !s->migration.was_running;
	/* What of it was not hidden behind the last round. */
	if (s->commit_ns)
		rep->blackout.save_ns = s->commit_ns - t - rep->blackout.ram_ns -
					rep->blackout.verify_ns - waited_ns;
	if (!r && s->owing.chosen)
		r = owing_begin(s, e);
	if (!r)
		r = switchover_wait_resumed(s, e);
	if (!r && s->owing.chosen)
		r = owing_finish(s, e);
	return r;
}
