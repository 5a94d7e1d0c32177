// SPDX-License-Identifier: GPL-2.0-only
/* The guest runs, and its RAM comes. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/say.h"
#include "base/stop.h"
#include "kernel/device.h"
#include "proc/proc_io.h"
#include "receive/postcopy_internal.h"
#include "receive/receiver_internal.h"
#include "wire/owed.h"

#define GONE_MS		2000u		/* the module looks once a second */
#define ATTEND_MS	100u		/* nothing else is served meanwhile */

/* 1: DONE. */
static int postcopy_frame(struct receiver *r, struct err *e)
{
	struct wire_header h;
	int ret = channel_recv(r->ch, &h, false, e);

	if (ret)
		return ret;
	/* The first one was for RESUMED, and may be late. */
	if (h.type == WIRE_DONE && r->verdicts && r->sender != SENDER_KNOWS) {
		r->sender = SENDER_KNOWS;
		return 0;
	}
	if (h.type == WIRE_DONE && (r->whole || !atomic_load(&r->postcopy.lazy.owed.left)))
		return 1;
	if (h.type != WIRE_PING)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s while it owes pages",
			       wire_type_name(h.type));
	return receiver_pong(r, &h, e);
}

/* A process that is killed may wait for a fault: the module says that it is about to go. */
bool postcopy_vm_gone(const struct receiver *r, unsigned int ms, struct err *e)
{
	struct pollfd p[] = {
		{ .fd = r->postcopy.dev, .events = POLLIN },
		{ .fd = r->vm.pidfd, .events = POLLIN },
	};

	if (poll(p, 2, (int)ms) <= 0 || !((p[0].revents & (POLLHUP | POLLERR)) || p[1].revents))
		return false;
	err_set(e, GW_VM_GONE, ESRCH, "the destination QEMU has exited before all of its RAM was there");
	return true;
}

/* 1: nothing is owed any more. */
static int postcopy_step(struct receiver *r, uint64_t *heard_ns, struct err *e)
{
	struct postcopy *p = &r->postcopy;
	struct pollfd wait = { .events = POLLIN };

	/* Of a guest that is whole there may be no connection (kept_ram_whole()). */
	if (!atomic_load(&p->lazy.owed.left))
		return 1;
	if (postcopy_vm_gone(r, 0, e))
		return -ESRCH;
	if (requests_failed(p->requests, e))
		return -EIO;
	if (atomic_load(receive_streams_failed(r->streams))) {
		receive_streams_error(r->streams, e);
		return -EIO;
	}
	if (now_ns() - *heard_ns > receiver_patience_ms(r) * 1000000ull)
		return err_set_silent(e, "the sender says nothing any more");
	wait.fd = channel_fd(r->ch);
	poll(&wait, 1, channel_readable(r->ch) ? 0 : STOP_SLICE_NS / 10000000);
	if (!channel_readable(r->ch))
		return 0;
	*heard_ns = now_ns();
	return postcopy_frame(r, e);
}

static struct requests_count postcopy_count(const struct postcopy *p)
{
	struct requests_count c = p->before;

	if (p->requests)
		requests_count(p->requests, &c);
	return c;
}

/* For the sender's report. */
static int postcopy_tell(struct receiver *r, const struct requests_count *c, struct err *e)
{
	struct wire_header h = { .type = WIRE_FAULTS, .length = WIRE_FAULTS_BYTES };
	uint8_t body[WIRE_FAULTS_BYTES];

	wire_put_faults(body, &(struct wire_faults) {
		.seen = c->seen, .zeros = c->zeros, .asked = c->asked,
		.mean_ns = latency_mean(&c->waited), .p99_ns = latency_quantile(&c->waited, 990),
		.worst_ns = c->waited.worst_ns,
	});
	return channel_send(r->ch, &h, body, e);
}

static int postcopy_wait(struct receiver *r, struct err *e)
{
	uint64_t heard_ns = now_ns(), next_alive_ns = 0;
	struct requests_count count;
	int ret = 0;

	while (!ret) {
		ret = postcopy_step(r, &heard_ns, e);
		if (ret || now_ns() < next_alive_ns)
			continue;
		next_alive_ns = now_ns() + ALIVE_NS;
		postcopy_attend(r);
		ret = receiver_alive(r, e);
		count = postcopy_count(&r->postcopy);
		if (!ret)
			ret = postcopy_tell(r, &count, e);
	}
	/* A stream that fails interrupts this connection: what has failed is the stream. */
	if (ret == -ECANCELED && atomic_load(receive_streams_failed(r->streams)))
		receive_streams_error(r->streams, e);
	return ret < 0 ? ret : 0;
}

static void postcopy_print(const struct postcopy *p, const struct requests_count *c)
{
	say_out("all RAM is here: %llu units came after the guest, %llu faults, %llu of them asked for, %llu zero",
	       (unsigned long long)atomic_load(&p->lazy.units), (unsigned long long)c->seen,
	       (unsigned long long)c->asked, (unsigned long long)c->zeros);
}

/* A thread that puts pages in place may notice first that there is no QEMU any more. */
static void postcopy_look_for_loss(const struct receiver *r, struct err *e)
{
	struct err gone = { 0 };

	if (e->exit != GW_VM_GONE && postcopy_vm_gone(r, err_is_link(e) ? 0 : GONE_MS, &gone))
		*e = gone;
}

/*
 * So that the sender does not look for us, or for another receiver, in vain. If it cannot be told
 * now the record has it, and this receiver waits for its question: RECOVER, or ASK.
 */
static void postcopy_tell_loss(struct receiver *r, const struct err *why)
{
	struct err lost = { 0 };

	r->lost = true;
	verdict_write(r);
	kept_ram_forget(r);
	r->sender = SENDER_MAY_NOT_KNOW;
	err_set(&lost, GW_GUEST_LOST, ESRCH, "%.500s", why->text);
	if (r->ch && r->features & WIRE_LOSSES &&
	    channel_abort_within(r->ch, receiver_patience_ms(r), &lost))
		r->sender = SENDER_KNOWS;
}

static void postcopy_on_event(struct receiver *r, const struct qmp_event *ev)
{
	const char *why = json_string_value(json_object_get(ev->data, "reason"));

	if (!strcmp(ev->name, "SHUTDOWN")) {
		r->off |= why && (!strcmp(why, "guest-shutdown") || !strcmp(why, "guest-reset"));
	} else if (!strcmp(ev->name, "RESUME")) {
		r->off = false;
		postcopy_started(r);
	}
}

/*
 * By what QEMU has said until now: has its guest ended of its own accord, and not begun anew since?
 * Such a guest has lost nothing, whatever RAM it lacks. Who ended QEMU then is of no interest.
 */
bool postcopy_hear(struct receiver *r)
{
	struct err why = { 0 };
	struct qmp_event ev;
	int ret = r->qmp ? 1 : 0;

	/* That QEMU refuses the command of migration_restore_begin() does not end what it says. */
	while (ret > 0 || (ret < 0 && why.exit == GW_QMP)) {
		r->migration.given &= why.exit != GW_QMP;
		why = (struct err) { 0 };
		ret = qmp_event(r->qmp, 0, &ev, &why);
		if (ret > 0)
			postcopy_on_event(r, &ev);
	}
	return r->off;
}

/*
 * QEMU has exited. A receiver that took over, and has not seen the guest run since, has not heard
 * what QEMU said before: nothing else tells a guest that has ended itself from one that was killed
 * (QEMU's exit status is for its parent only, and is 0 after SIGTERM, too).
 */
const char *postcopy_loss(const struct receiver *r)
{
	if (!r->o->recover || r->ran)
		return "the guest is lost";
	return "whether the guest is lost, or had ended of its own accord, cannot be known: "
	       "this receiver has not seen it run since it took over";
}

bool postcopy_has_ended(struct receiver *r, struct err *e)
{
	if (!postcopy_hear(r))
		return false;
	*e = (struct err) { 0 };
	r->ended = true;
	say_out("the guest has ended here of its own accord");
	return true;
}

void postcopy_attend(struct receiver *r)
{
	/* Any other has been connected since before the guest came. */
	if (!r->qmp && r->o->recover)
		postcopy_monitor(r, ATTEND_MS);
	postcopy_hear(r);
}

static void postcopy_sign_of_life(struct receiver *r)
{
	struct err lost = { 0 };

	if (r->ch)
		receiver_alive(r, &lost);
}

/*
 * Nothing is owed. But pages come into place without QEMU as well: one that was killed before the
 * last of them has lost the guest. If it has closed its monitor the kernel tells of its end soon.
 */
static int postcopy_whole(struct receiver *r, struct err *e)
{
	bool answers;

	/*
	 * First, as QEMU is asked next: where the link was lost nobody serves faults any more, and
	 * QEMU itself may wait for a page that was never touched. What is not there now is zero,
	 * as the kernel makes it.
	 */
	lazy_unregister(&r->postcopy.lazy);
	/* QEMU may be slow, or its monitor another client's: the sender waits, and hears of us. */
	postcopy_sign_of_life(r);
	postcopy_monitor(r, r->o->timeout_ms / 3);
	postcopy_sign_of_life(r);
	postcopy_hear(r);
	if (r->qmp || !proc_ended(r->vm.pidfd))
		migration_restore(&r->migration);
	postcopy_sign_of_life(r);
	postcopy_start(r);
	postcopy_sign_of_life(r);
	answers = postcopy_unmark(r);
	postcopy_sign_of_life(r);
	return postcopy_vm_gone(r, answers ? 0 : GONE_MS, e) ? -ESRCH : 0;
}

/*
 * All is there, or is not needed any more. Whether the sender hears of it changes nothing here. One
 * that still pushes ends that, or is older: its pages have files to go to, also without QEMU.
 */
static void postcopy_complete(struct receiver *r)
{
	/* The guest touches new pages still: both ends tell of one moment. */
	const struct requests_count count = postcopy_count(&r->postcopy);
	struct err lost = { 0 }, ignored = { 0 };
	int ret;

	r->whole = true;
	if (!r->ended)
		postcopy_print(&r->postcopy, &count);
	/*
	 * Not only when the sender has confirmed: what the module keeps is in the way of the
	 * guest's next migration. Killed in between, in this order (kept_ram.c has the note, mark.h
	 * the mark, receiver_finish() and postcopy_whole() what is before):
	 *
	 *	before the waits end, or the mark goes: another receiver takes over, by the note,
	 *		or by the mark. It believes that what is a hole is missing, which the sender
	 *		has still, or has not to send: it has not heard COMPLETE.
	 *	with the mark gone: the same, by the note; without one (no file could be made) by
	 *		the record, which says "owing", and the keep (kept_ram_left()).
	 *	with the record "whole": nobody need send anything. Whoever is started for this
	 *		QEMU, or is asked by its sender, ends the keep and removes the note, in this
	 *		order again (kept_ram_whole(), kept_ram_end()).
	 *	with the keep ended: the same. All that is left is a note, which leads there.
	 *	with the note gone: nothing is left but the record, for the sender.
	 *
	 * The note goes last: the other way round a keep was left that no receiver looked for.
	 * If the record cannot be written there is none, and the note leads to the sender.
	 */
	verdict_write(r);
	device_keep_end(r->postcopy.dev, &ignored);
	kept_ram_forget(r);
	ret = r->ch ? postcopy_tell(r, &count, &lost) : -ENOTCONN;
	if (!ret)
		ret = receiver_send(r, WIRE_COMPLETE, 0, &lost);
	while (!ret)
		ret = postcopy_frame(r, &lost);
	/* Else it may have missed that. */
	r->sender = ret == 1 ? SENDER_KNOWS : SENDER_MAY_NOT_KNOW;
	/* Those that put pages in place wake faults, too: they end first. */
	if (r->streams)
		receive_streams_finish(r->streams);
	postcopy_end(r);
	claim_drop(&r->claim, &r->vm);
}

int postcopy_finish(struct receiver *r, struct err *e)
{
	struct postcopy *p = &r->postcopy;
	uint64_t left = atomic_load(&p->lazy.owed.left);
	struct err cause;
	int ret;

	say_out("the guest %s, and %llu units of its RAM are still to come",
	       r->unstarted ? "has not been started here" : "runs here",
	       (unsigned long long)left);
	do
		ret = postcopy_wait(r, e);
	while (ret && atomic_load(&p->lazy.owed.left) && !recover(r, ret, e));
	left = atomic_load(&p->lazy.owed.left);
	/* The link was lost with the last page, or just before: the sender has not heard of it. */
	if (!left) {
		*e = (struct err) { 0 };
		ret = postcopy_whole(r, e);
	}
	if (ret)
		postcopy_look_for_loss(r, e);
	if (ret && e->exit == GW_VM_GONE && (postcopy_has_ended(r, e) || r->whole)) {
		*e = (struct err) { 0 };
		ret = 0;
	}
	if (!ret) {
		postcopy_complete(r);
		return 0;
	}
	cause = *e;
	e->exit = GW_OK;
	if (cause.exit == GW_VM_GONE) {
		err_set(e, cause.exit, -ret, "%.300s: %s", cause.text, postcopy_loss(r));
		postcopy_tell_loss(r, e);
		return ret;
	}
	return err_set(e, GW_INCOMPLETE, -ret,
		       "%.500s. The guest runs here and waits when it touches one of %llu units of RAM that the source still has: end neither QEMU",
		       cause.text, (unsigned long long)left);
}
