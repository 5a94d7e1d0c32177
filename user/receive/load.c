// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "net/sock.h"
#include "proc/proc_io.h"
#include "receive/load.h"

#define RESUME_MS	5000	/* from "completed" to RESUME */
#define CLOSING_MS	1000	/* from the end of the monitor to that of the process */
#define FREEZE_MS	5000
#define KILL_MS		10000

/**
 * struct load - the device state on its way into QEMU
 * @at, @len: bytes that QEMU has got, of how many
 * @completed: QEMU has loaded all of it, and has not resumed the guest
 * @sender_lost: the connection to the sender broke
 * @events_missed: QEMU may have sent events that the receiver did not read
 */
struct load {
	struct receiver *r;
	uint64_t at, len;
	uint64_t deadline, next_alive_ns;
	bool completed, sender_lost, events_missed;
};

/*
 * Writes as much as QEMU takes now. A broken stream proves nothing: QEMU's events, or its death,
 * will.
 */
static void load_feed(struct load *l)
{
	static uint8_t buf[WIRE_DEVICE_MAX];
	struct receiver *r = l->r;
	ssize_t n;

	while (l->at < l->len && r->migration.stream >= 0) {
		n = pread(r->devstate.memfd, buf, sizeof(buf), (off_t)l->at);
		if (n > 0)
			n = send(r->migration.stream, buf, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0)
			break;
		l->at += (uint64_t)n;
	}
	/* QEMU also waits until its stream is closed. */
	migration_close_stream(&r->migration);
}

static void load_send_alive(struct load *l)
{
	struct err ignored = { 0 };

	if (now_ns() < l->next_alive_ns)
		return;
	l->next_alive_ns = now_ns() + ALIVE_NS;
	/* Whether the sender is still there changes nothing any more. */
	if (!l->sender_lost && receiver_alive(l->r, &ignored))
		l->sender_lost = true;
}

static bool load_qemu_ended(const struct receiver *r)
{
	return proc_ended(r->vm.pidfd);
}

/* QEMU has loaded all. The guest is paused as it was, or waits for `cont`, or for its disks. */
static enum commit_destination_event load_on_completed(struct load *l)
{
	struct receiver *r = l->r;

	if (!r->runs) {
		r->res->paused = true;
		return DESTINATION_SEES_RUN;
	}
	/*
	 * QEMU sends RESUME before "completed", unless it was started with -S, or does not get its
	 * disks. Without its disks it refuses `cont`, which is an error of qmp_event(), or (11.1)
	 * does nothing and says nothing: so it has no more than RESUME_MS from here on.
	 */
	if (l->deadline > deadline_ms(RESUME_MS))
		l->deadline = deadline_ms(RESUME_MS);
	l->completed = true;
	return qmp_begin(r->qmp, "cont", NULL, &(struct err) { 0 }) ? DESTINATION_SEES_NOTHING : DESTINATION_GIVES_UP;
}

/*
 * The next event of QEMU's that matters, if there is one. DESTINATION_GIVES_UP: none yet, which
 * means nothing to a destination that has passed the device state to QEMU. DESTINATION_SEES_DEATH:
 * QEMU has ended, and all that it wrote to its monitor has been read.
 */
static enum commit_destination_event load_read_events(struct load *l, struct err *e)
{
	bool had_ended = load_qemu_ended(l->r);	/* before its monitor is read */
	struct receiver *r = l->r;
	struct err why = { 0 };
	struct qmp_event ev;
	int ret;

	while ((ret = qmp_event(r->qmp, 0, &ev, &why)) > 0) {
		const char *st = json_string_value(json_object_get(ev.data, "status"));

		if (!strcmp(ev.name, "RESUME")) {
			r->resumed_ns = ev.realtime_ns;
			return DESTINATION_SEES_RUN;
		}
		if (strcmp(ev.name, "MIGRATION") || !st)
			continue;
		if (!strcmp(st, "failed"))
			return DESTINATION_SEES_FAILED;
		if (!strcmp(st, "completed")) {
			r->resumed_ns = ev.realtime_ns;
			return load_on_completed(l);
		}
	}
	if (ret < 0 && !e->exit)
		*e = why;
	/*
	 * GW_QMP: QEMU refused `cont`, and the monitor goes on. GW_VM_GONE: the monitor was closed,
	 * which a process that ends does first.
	 */
	l->events_missed |= ret < 0 && why.exit != GW_QMP && why.exit != GW_VM_GONE;
	if (had_ended && !l->events_missed)
		return DESTINATION_SEES_DEATH;
	if (ret == 0)
		return DESTINATION_GIVES_UP;
	poll(&(struct pollfd) { .fd = r->vm.pidfd, .events = POLLIN }, 1, CLOSING_MS);
	if (!load_qemu_ended(r))
		l->events_missed |= why.exit == GW_VM_GONE; /* closed, and QEMU lives */
	return load_qemu_ended(r) && !l->events_missed ? DESTINATION_SEES_DEATH
						       : DESTINATION_SEES_NOTHING;
}

/* Stops QEMU with SIGSTOP. True: all its threads have stopped, or it has ended. */
static bool load_freeze(const struct receiver *r)
{
	uint64_t deadline = deadline_ms(FREEZE_MS);

	syscall(SYS_pidfd_send_signal, r->vm.pidfd, SIGSTOP, NULL, 0);
	while (!load_qemu_ended(r) && !proc_stopped(r->vm.pid)) {
		if (now_ns() > deadline)
			return false;
		poll(NULL, 0, 10);
	}
	return true;
}

/*
 * QEMU is silent. The receiver stops it and reads what it wrote to the monitor before. If RESUME is
 * not there no vCPU has run (txn/commit.h), and none ever will, as the receiver kills the stopped
 * process. A monitor that failed, or that is not QEMU's own, proves nothing: then QEMU may go on.
 */
static enum commit_destination_event load_freeze_and_decide(struct load *l)
{
	struct receiver *r = l->r;
	bool was_stopped = proc_stopped(r->vm.pid);	/* by another process */
	uint64_t deadline = deadline_ms(KILL_MS);
	struct err ignored = { 0 };
	bool frozen = load_freeze(r);
	enum commit_destination_event seen = load_read_events(l, &ignored);

	if (seen == DESTINATION_SEES_FAILED || seen == DESTINATION_SEES_DEATH)
		return seen;
	if (seen == DESTINATION_SEES_RUN || !frozen || l->events_missed) {
		if (!was_stopped)
			syscall(SYS_pidfd_send_signal, r->vm.pidfd, SIGCONT, NULL, 0);
		return seen == DESTINATION_SEES_RUN ? seen : DESTINATION_SEES_NOTHING;
	}
	syscall(SYS_pidfd_send_signal, r->vm.pidfd, SIGKILL, NULL, 0);
	while (!load_qemu_ended(r) && now_ns() < deadline)
		poll(NULL, 0, 10);
	seen = load_read_events(l, &ignored);
	return seen == DESTINATION_GIVES_UP ? DESTINATION_SEES_NOTHING : seen;
}

static void load_poll(struct load *l)
{
	struct receiver *r = l->r;
	struct pollfd p[] = {
		{ .fd = qmp_fd(r->qmp), .events = POLLIN },
		{ .fd = r->vm.pidfd, .events = POLLIN },
		{ .fd = r->migration.stream, .events = POLLOUT },
	};

	poll(p, sizeof(p) / sizeof(p[0]), STOP_SLICE_NS / 1000000);
}

static int load_watch(struct load *l, struct err *e)
{
	struct receiver *r = l->r;
	struct err why = { 0 };

	for (;;) {
		enum commit_destination_event event;

		load_feed(l);
		load_send_alive(l);
		event = load_read_events(l, &why);
		if (event == DESTINATION_GIVES_UP && now_ns() > l->deadline)
			event = DESTINATION_SEES_NOTHING;
		switch (commit_destination(&r->commit, event)) {
		case DESTINATION_SAYS_RUNS:
			return 0;
		case DESTINATION_SAYS_DEAD:
			return event == DESTINATION_SEES_FAILED
				? err_set(e, GW_DEVICE_STATE, EINVAL, "the destination QEMU refused the device state: give it the same machine type and devices as the source (its log may name the difference)")
				: err_set(e, GW_DEVICE_STATE, ESRCH, "the destination QEMU exited while it loaded the device state: its log may say why");
		case DESTINATION_FREEZES:
			event = load_freeze_and_decide(l);
			break;
		default:
			load_poll(l);
			continue;
		}
		if (commit_destination(&r->commit, event) == DESTINATION_SAYS_RUNS)
			return 0;
		if (r->commit != COMMIT_DEAD)
			return err_set(e, GW_UNKNOWN, ETIMEDOUT, "the destination QEMU has all of the device state, and does not report whether the guest runs (%.500s): look at both ends",
				       *why.text ? why.text : "no answer");
		if (why.exit)
			return err_set(e, GW_DEVICE_STATE, ETIMEDOUT, "the destination QEMU did not resume the guest (%.500s), and the receiver killed it",
				       why.text);
		if (l->completed)
			return err_set(e, GW_DEVICE_STATE, ETIMEDOUT, "the destination QEMU loaded the device state and did not resume the guest, and the receiver killed it: look for another process that locks one of its disks (its log may name the disk)");
		return err_set(e, GW_DEVICE_STATE, ETIMEDOUT, "the destination QEMU did not load the device state within %u s, and the receiver killed it",
			       LOAD_TIMES * receiver_patience_ms(r) / 1000);
	}
}

int load_run(struct receiver *r, struct err *e)
{
	const struct device_state *d = &r->devstate;
	struct load l = {
		.r = r,
		.at = d->fed,
		.len = d->parts[0].to,	/* all of it: device_state_complete() */
		.deadline = deadline_ms(LOAD_TIMES * receiver_patience_ms(r)),
		/* A process between the receiver and QEMU may end while QEMU lives on. */
		.events_missed = qmp_peer_pid(r->qmp) != r->vm.pid,
	};

	return load_watch(&l, e);
}
