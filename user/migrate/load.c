// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "io/sock.h"
#include "io/stop.h"
#include "migrate/load.h"
#include "vmm/proc_io.h"

#define ALIVE_NS	1000000000ull	/* between two signs of life */
#define COMPLETED_MS	5000
#define CLOSING_MS	1000
#define FREEZE_MS	5000
#define KILL_MS		10000

/**
 * struct load - the state on its way into QEMU
 * @at, @len: so much of it has been written
 * @completed: QEMU has loaded it, and has not let the guest run
 * @lost: the connection to the sender
 * @deaf: QEMU may have said what we did not hear
 */
struct load {
	struct receiver *r;
	uint64_t at, len;
	uint64_t deadline, alive_ns;
	bool completed, lost, deaf;
};

static int keep(struct receiver *r, const uint8_t *buf, uint32_t len, struct err *e)
{
	if (r->state < 0)
		r->state = memfd_create("godwit-device-state", MFD_CLOEXEC);
	if (r->state_bytes + len > LOAD_STATE_MAX)
		return err_set(e, GW_BAD_PEER, EFBIG, "the sender's device state has more than %u MiB", LOAD_STATE_MAX >> 20);
	if (r->state < 0 || pwrite(r->state, buf, len, (off_t)r->state_bytes) != (ssize_t)len)
		return err_set(e, GW_INTERNAL, errno, "no memory for the device state: %s", strerror(errno));
	r->state_bytes += len;
	return 0;
}

int load_frame(struct receiver *r, const struct wire_header *h, struct err *e)
{
	static uint8_t buf[WIRE_DEVICE_MAX];
	int ret = channel_body(r->ch, buf, h->length, e);

	if (ret)
		return ret;
	if (r->committed)
		return keep(r, buf, h->length, e);
	/* QEMU's private RAM, while the guest runs at the source. */
	ret = sock_send(r->migration.stream, buf, h->length, deadline_ms(r->o->timeout_ms));
	if (ret == -ETIMEDOUT)
		return err_set(e, GW_TIMEOUT, ETIMEDOUT, "the destination QEMU takes no private RAM: does it hang?");
	return ret ? err_set(e, GW_DEVICE_STATE, -ret, "the destination QEMU refused the private RAM: it must have the same machine type and devices as the source (its log says what it did not like)")
		   : 0;
}

/* Writes as much as QEMU takes now. A stream that breaks says nothing: QEMU's events, or its death, will. */
static void feed(struct load *l)
{
	static uint8_t buf[WIRE_DEVICE_MAX];
	struct receiver *r = l->r;
	ssize_t n;

	while (l->at < l->len && r->migration.stream >= 0) {
		n = pread(r->state, buf, sizeof(buf), (off_t)l->at);
		if (n > 0)
			n = send(r->migration.stream, buf, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0)
			break;
		l->at += (uint64_t)n;
	}
	/* QEMU waits for the end of its stream, too. */
	migration_hang_up(&r->migration);
}

static void show_life(struct load *l)
{
	struct wire_header pong = { .type = WIRE_PONG, .length = 8 };
	struct err ignored = { 0 };
	uint8_t body[8];

	if (now_ns() < l->alive_ns)
		return;
	l->alive_ns = now_ns() + ALIVE_NS;
	wire_put_u64(body, realtime_ns());
	/* A sender that is gone changes nothing any more. */
	if (!l->lost && channel_send(l->r->ch, &pong, body, &ignored))
		l->lost = true;
}

static bool dead(const struct receiver *r)
{
	return proc_ended(r->vm.pidfd);
}

/* The guest is paused as it was, or waits for us, or for its disks. */
static enum commit_destination_event completed(struct load *l)
{
	struct receiver *r = l->r;

	if (!r->runs) {
		r->res->paused = true;
		return DESTINATION_SEES_RUN;
	}
	/*
	 * It says RESUME before "completed", unless it was started with -S, or does not get its disks. Then it refuses this, which
	 * is an error of qmp_event(), or (11.1) stays as it is, without a word: so it has no more than a moment from here on.
	 */
	if (l->deadline > deadline_ms(COMPLETED_MS))
		l->deadline = deadline_ms(COMPLETED_MS);
	l->completed = true;
	return qmp_begin(r->qmp, "cont", NULL, &(struct err) { 0 }) ? DESTINATION_SEES_NOTHING : DESTINATION_GIVES_UP;
}

/*
 * The next thing that QEMU says, if it has said something. DESTINATION_GIVES_UP: nothing of interest yet, which means
 * nothing to a destination that has handed over. Of a QEMU that has ended all that it said has been read by then.
 */
static enum commit_destination_event hear(struct load *l, struct err *e)
{
	bool was_dead = dead(l->r);	/* before its monitor is read */
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
			return completed(l);
		}
	}
	if (ret < 0 && !e->exit)
		*e = why;
	/* Refused: that was `cont`, and the monitor goes on. Closed: a process that ends closes it first. */
	l->deaf |= ret < 0 && why.exit != GW_QMP && why.exit != GW_VM_GONE;
	if (was_dead && !l->deaf)
		return DESTINATION_SEES_DEATH;
	if (ret == 0)
		return DESTINATION_GIVES_UP;
	poll(&(struct pollfd) { .fd = r->vm.pidfd, .events = POLLIN }, 1, CLOSING_MS);
	if (!dead(r))
		l->deaf |= why.exit == GW_VM_GONE;	/* closed, and it lives: what it says now nobody hears */
	return dead(r) && !l->deaf ? DESTINATION_SEES_DEATH : DESTINATION_SEES_NOTHING;
}

/* All threads of it stand still, or it has ended. */
static bool freeze(const struct receiver *r)
{
	uint64_t deadline = deadline_ms(FREEZE_MS);

	syscall(SYS_pidfd_send_signal, r->vm.pidfd, SIGSTOP, NULL, 0);
	while (!dead(r) && !proc_stopped(r->vm.pid)) {
		if (now_ns() > deadline)
			return false;
		poll(NULL, 0, 10);
	}
	return true;
}

/*
 * QEMU is silent. What it said before it stood still is heard; if that is not RESUME no vCPU has run (txn/commit.h), and none
 * ever will, as the process ends without having gone on. A monitor that failed, or that is not QEMU's own, proves nothing:
 * then QEMU is left to go on.
 */
static enum commit_destination_event freeze_and_hear(struct load *l)
{
	struct receiver *r = l->r;
	bool stood_still = proc_stopped(r->vm.pid);	/* by somebody else */
	uint64_t deadline = deadline_ms(KILL_MS);
	struct err ignored = { 0 };
	bool frozen = freeze(r);
	enum commit_destination_event heard = hear(l, &ignored);

	if (heard == DESTINATION_SEES_FAILED || heard == DESTINATION_SEES_DEATH)
		return heard;
	if (heard == DESTINATION_SEES_RUN || !frozen || l->deaf) {
		if (!stood_still)
			syscall(SYS_pidfd_send_signal, r->vm.pidfd, SIGCONT, NULL, 0);
		return heard == DESTINATION_SEES_RUN ? heard : DESTINATION_SEES_NOTHING;
	}
	syscall(SYS_pidfd_send_signal, r->vm.pidfd, SIGKILL, NULL, 0);
	while (!dead(r) && now_ns() < deadline)
		poll(NULL, 0, 10);
	heard = hear(l, &ignored);
	return heard == DESTINATION_GIVES_UP ? DESTINATION_SEES_NOTHING : heard;
}

static void wait_for_something(struct load *l)
{
	struct receiver *r = l->r;
	struct pollfd p[] = {
		{ .fd = qmp_fd(r->qmp), .events = POLLIN },
		{ .fd = r->vm.pidfd, .events = POLLIN },
		{ .fd = r->migration.stream, .events = POLLOUT },
	};

	poll(p, sizeof(p) / sizeof(p[0]), STOP_SLICE_NS / 1000000);
}

static int watch(struct load *l, struct err *e)
{
	struct receiver *r = l->r;
	struct err why = { 0 };

	for (;;) {
		enum commit_destination_event event;

		feed(l);
		show_life(l);
		event = hear(l, &why);
		if (event == DESTINATION_GIVES_UP && now_ns() > l->deadline)
			event = DESTINATION_SEES_NOTHING;
		switch (commit_destination(&r->commit, event)) {
		case DESTINATION_SAYS_RUNS:
			return 0;
		case DESTINATION_SAYS_DEAD:
			return event == DESTINATION_SEES_FAILED
				? err_set(e, GW_DEVICE_STATE, EINVAL, "the destination QEMU refused the device state: it must have the same machine type and devices as the source (its log says what it did not like)")
				: err_set(e, GW_DEVICE_STATE, ESRCH, "the destination QEMU ended while it loaded the device state: its log may say why");
		case DESTINATION_FREEZES:
			event = freeze_and_hear(l);
			break;
		default:
			wait_for_something(l);
			continue;
		}
		if (commit_destination(&r->commit, event) == DESTINATION_SAYS_RUNS)
			return 0;
		if (r->commit != COMMIT_DEAD)
			return err_set(e, GW_UNKNOWN, ETIMEDOUT, "the destination QEMU has all of the device state, and does not say, or cannot say, whether the guest runs (%.500s): look at both ends", *why.text ? why.text : "silent");
		if (why.exit)
			return err_set(e, GW_DEVICE_STATE, ETIMEDOUT, "the destination QEMU did not let the guest run (%.500s), and was ended", why.text);
		if (l->completed)
			return err_set(e, GW_DEVICE_STATE, ETIMEDOUT, "the destination QEMU loaded the device state and did not let the guest run, and was ended: has somebody else a disk of its locked? (its log may say)");
		return err_set(e, GW_DEVICE_STATE, ETIMEDOUT, "the destination QEMU did not load the device state within %u s, and was ended",
			       LOAD_TIMES * r->o->timeout_ms / 1000);
	}
}

int load_run(struct receiver *r, struct err *e)
{
	struct load l = {
		.r = r, .len = r->state_bytes, .deadline = deadline_ms(LOAD_TIMES * r->o->timeout_ms),
		.deaf = qmp_peer_pid(r->qmp) != r->vm.pid,	/* something between us may go while QEMU stays */
	};

	return watch(&l, e);
}
