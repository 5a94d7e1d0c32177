// SPDX-License-Identifier: GPL-2.0-only
/*
 * The blackout.
 *
 *	stop                 the guest stands still, disk I/O is drained: nobody writes RAM any more
 *	last harvest         nothing to undo in KVM
 *	last round, ACK      all RAM is in place at the destination
 *	verify               with --verify only
 *	COMMIT               the receiver writes no more RAM: loading device state does (pvclock)
 *	device state         QEMU writes it, the receiver keeps it
 *	commit point         DEVICE_END goes out: from here on only the destination may run (txn/commit.h)
 *	RESUMED
 *
 * How QEMU is brought to stop, and to write, is a matter of struct device_way: way_migrate.c, way_save.c.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "io/sock.h"
#include "io/stop.h"
#include "migrate/sender_internal.h"
#include "migrate/verify.h"
#include "vmm/jobs.h"
#include "vmm/ram.h"

int sender_device(struct sender *s, const uint8_t *p, size_t len, struct err *e)
{
	int r = 0;

	s->report->device_bytes += len;
	while (len && !r) {
		struct wire_header h = { .type = WIRE_DEVICE, .length = (uint32_t)(len < WIRE_DEVICE_MAX ? len : WIRE_DEVICE_MAX) };

		r = channel_send(s->ch, &h, p, e);
		p += h.length;
		len -= h.length;
	}
	return r;
}

int sender_events(struct sender *s, char *status, size_t len, struct err *e)
{
	struct qmp_event ev;
	int r;

	while ((r = qmp_event(s->qmp, 0, &ev, e)) > 0) {
		const char *st = json_string_value(json_object_get(ev.data, "status"));

		if (!strcmp(ev.name, "STOP"))
			s->stop_realtime_ns = ev.realtime_ns;
		s->resumed |= !strcmp(ev.name, "RESUME");
		if (status && !strcmp(ev.name, "MIGRATION") && st) {
			strncpy(status, st, len - 1);
			status[len - 1] = '\0';
		}
	}
	return r;
}

int sender_wait_qemu(struct sender *s, int stream, bool keep_alive, struct err *e)
{
	struct pollfd p[] = {
		{ .fd = stream, .events = POLLIN },
		{ .fd = qmp_fd(s->qmp), .events = POLLIN },
		{ .fd = channel_fd(s->ch), .events = POLLIN },
		{ .fd = s->vm.pidfd, .events = POLLIN },
	};

	poll(p, sizeof(p) / sizeof(p[0]), STOP_SLICE_NS / 1000000);
	if (stop_requested())
		return stop_err(e);
	if (p[3].revents)
		return err_set(e, GW_VM_GONE, ESRCH, "the source QEMU has exited");
	if (p[2].revents)
		return sender_listen(s, e);
	/* QEMU may be silent for long; the receiver must not take that for a dead link. */
	return keep_alive ? sender_keep_alive(s, e) : 0;
}

/* RAM at rest: the last harvest, the last round, its ACK, and the proof. */
static int last_round(struct sender *s, struct err *e)
{
	struct report *rep = s->report;
	uint64_t t = now_ns();
	int r;

	if (s->o->pause)
		r = s->source->ops->start(s->source, e);
	else
		r = s->source->ops->harvest(s->source, e);
	rep->blackout.harvest_ns = now_ns() - t;
	t = now_ns();
	/* It has found who maps RAM now. What a process opened since the look before, and wrote by, was lost. */
	if (!r)
		r = source_check_mappers(s->source, "/proc", e);
	/* A turn of QEMU's main loop. Earlier would be too early: bits that are taken before the harvest are lost. */
	if (!r)
		r = dirty_rate_check(s->qmp, &s->dirty_rate, true, e);
	if (!r && s->way->rest)
		r = s->way->rest(s, e);
	if (!r)
		r = sender_round(s, ROUND_LAST, e);
	rep->blackout.ram_ns = now_ns() - t;
	if (r || !s->o->verify)
		return r;
	t = now_ns();
	r = verify_send(&s->vm, s->source, s->ch, e);
	rep->blackout.verify_ns = now_ns() - t;
	rep->verified = !r;
	return r;
}

#define WAIT_TIMES	8u	/* twice as long as the receiver waits for its QEMU, see load.h */

static void note_doubt(struct sender *s)
{
	struct doubt d = { .addr = s->o->addr };

	memcpy(d.token, s->token, sizeof(d.token));
	doubt_write(&s->note, s->vm.pid, &d, s->journal.records);
}

/* A guest that somebody has let run (cont) since it was stopped writes what nobody will ever see. */
static int still_stopped(struct sender *s, struct err *e)
{
	int r = sender_events(s, NULL, 0, e);

	if (!r && s->resumed)
		r = err_set(e, GW_VM_STATE, EBUSY, "somebody has let the source VM run on in the switchover (cont): leave it alone and try again");
	return r;
}

/*
 * The commit point: requests to stop are refused from here on, and the guardian keeps its hands off the guest. The last look at
 * the source comes behind all that takes time: QEMU says RESUME before it obeys a `cont`.
 */
static int commit(struct sender *s, struct err *e)
{
	int r;

	if (!stop_commit())
		return stop_err(e);
	if (s->verdicts)
		note_doubt(s);
	guardian_stand_down(&s->guardian);
	r = still_stopped(s, e);
	if (r) {
		guardian_stand_up(&s->guardian);
		return r;
	}
	s->handed_over_realtime_ns = realtime_ns();
	commit_source(&s->commit, SOURCE_SENDS_END);
	return 0;
}

/* COMMIT, the device state, DEVICE_END. */
static int hand_over(struct sender *s, struct err *e)
{
	struct wire_header before = { .type = WIRE_COMMIT }, end = { .type = WIRE_DEVICE_END };
	int r;

	r = channel_send(s->ch, &before, NULL, e);
	if (!r)
		r = s->way->state(s, e);
	if (!r)
		r = commit(s, e);
	if (r)
		return r;
	end.flags = s->migration.was_running ? WIRE_RUNS : 0;
	return channel_send(s->ch, &end, NULL, e);
}

static int wait_resumed(struct sender *s, struct err *e)
{
	struct wire_header h, done = { .type = WIRE_DONE };
	uint64_t deadline = deadline_ms(WAIT_TIMES * s->o->timeout_ms);
	struct err ignored = { 0 };
	uint8_t body[8];
	int r;

	/* Signs of life hold us, but not for ever. */
	while (!(r = channel_recv(s->ch, &h, false, e)) && h.type == WIRE_PONG && now_ns() < deadline) {
		r = channel_body(s->ch, body, sizeof(body), e);
		if (r)
			break;
	}
	if (!r && h.type == WIRE_PONG)
		r = err_set(e, GW_TIMEOUT, ETIMEDOUT, "the other side lives, but does not say how the device state was taken");
	if (!r && h.type != WIRE_RESUMED)
		r = err_set(e, GW_BAD_PEER, EPROTO, "the other side sent %s where RESUMED was due", wire_type_name(h.type));
	if (!r)
		r = channel_body(s->ch, body, sizeof(body), e);
	if (r)
		return r;
	s->resumed_realtime_ns = wire_get_u64(body);
	if (s->verdicts)
		channel_send(s->ch, &done, NULL, &ignored);
	return 0;
}

static uint64_t positive(int64_t ns)
{
	return ns > 0 ? (uint64_t)ns : 0;
}

void switchover_times(struct sender *s)
{
	struct report *rep = s->report;
	uint64_t resumed = s->resumed_realtime_ns;

	rep->blackout.load_ns = positive((int64_t)(resumed - s->handed_over_realtime_ns) - s->clock_offset_ns);
	rep->clock_error_ns = s->rtt_ns / 2;
	if (s->stop_realtime_ns)
		rep->downtime_ns = positive((int64_t)(resumed - s->stop_realtime_ns) - s->clock_offset_ns);
}

/*
 * What was plugged, or opened, since the migration began and writes RAM where the module cannot see it: what it wrote was
 * lost. A migration of QEMU's lets nothing be plugged any more; in save mode the guest stands still, and cannot use it.
 */
int sender_check_writers(struct sender *s, struct err *e)
{
	int r = vm_check_devices(s->qmp, s->vm.pid, e);

	return r ? r : vm_check_direct_io(s->vm.pid, e);
}

int switchover(struct sender *s, struct err *e)
{
	struct report *rep = s->report;
	bool changed;
	uint64_t t;
	int r;

	rep->phase = "switchover";
	sender_progress(s);
	/* Nobody else's may be under way: we would stop its guest, and it takes no settings. */
	r = migration_check_idle(s->qmp, e);
	if (!r)
		r = sender_fits_still(s, &changed, e);
	/* RAM that is plugged at both ends fits, and was in no round. QEMU's migration is asked again when nothing can be plugged. */
	if (!r)
		r = backends_same(s->qmp, &s->vm, e);
	if (!r)
		r = jobs_check_again(s->qmp, e);
	if (!r)
		r = s->way->stand_still(s, e);
	if (!r && !s->o->pause)
		r = sender_check_writers(s, e);
	if (r)
		return r;
	if (s->stop_realtime_ns)
		rep->blackout.stop_ns = positive((int64_t)(realtime_ns() - s->stop_realtime_ns));
	else if (s->migration.was_running)
		return err_set(e, GW_INTERNAL, EPROTO, "QEMU has stopped the guest without saying STOP");
	/* Before the last harvest: RAM that devices write on that is found by it. */
	r = migration_take_writes(s->qmp, e);
	if (!r)
		r = last_round(s, e);
	if (r)
		return r;
	t = realtime_ns();
	rep->phase = "device state";
	r = hand_over(s, e);
	rep->guest_was_paused = !s->migration.was_running;
	if (s->handed_over_realtime_ns)
		rep->blackout.save_ns = positive((int64_t)(s->handed_over_realtime_ns - t));
	return r ? r : wait_resumed(s, e);
}
