// SPDX-License-Identifier: GPL-2.0-only
/*
 * The link is lost in post-copy: the guest runs at the destination, and lacks RAM that is here. The
 * sender connects again, for --recover-timeout, as receive/recover.c expects it. What the receiver
 * names then is all that is owed from there on, whatever this end believes: RAM is at rest here.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/say.h"
#include "base/stop.h"
#include "net/sock.h"
#include "peer/hello.h"
#include "peer/owed_frames.h"
#include "plan/link.h"
#include "proc/proc_io.h"
#include "send/sender_internal.h"
#include "vmm/mtree.h"
#include "wire/owed.h"

#define LEAST_MS	1000u	/* for the last try */

/* The units that the receiver makes at once, and nothing is owed yet. */
static int recover_units(struct sender *s, const struct wire_header *h, struct err *e)
{
	uint8_t body[WIRE_BLOCKS_MAX * WIRE_UNIT];
	uint64_t pages[WIRE_BLOCKS_MAX];
	int r = h->arg == s->vm.nblocks ? channel_body(s->ch, body, h->length, e) :
		err_set(e, GW_BAD_PEER, EPROTO, "the receiver has %u RAM blocks", h->arg);

	if (!r && wire_get_units(h, body, s->owing.unit, s->vm.nblocks))
		r = err_set(e, GW_BAD_PEER, EPROTO, "the receiver sent a malformed POSTCOPY frame");
	if (r)
		return r;
	for (unsigned int i = 0; i < s->vm.nblocks; i++)
		pages[i] = s->vm.blocks[i].pages;
	owing_reset(&s->owing);
	r = owed_init(&s->owing.owed, pages, s->owing.unit, s->vm.nblocks, e);
	push_init(&s->owing.push, &s->owing.owed);
	s->owing.collected = true;
	/* Whoever names what it lacks has the guest. */
	s->owing.lost = false;
	return r;
}

/*
 * The receiver has answered RECOVER as none does whose guest never ran. A sender that takes over
 * has the note of the one before, which may not know that: it is to know it before anything else
 * can fail, or `godwit resolve` could have the source run by a later answer.
 */
static void recover_note_ran(struct sender *s)
{
	if (s->note_before)
		doubt_note_ran(s->vm.pid, s->note_before);
}

/* What is owed; *secret: for the streams. s->owing.complete: nothing. */
static int recover_listen(struct sender *s, struct wire_header *h, uint8_t *secret, struct err *e)
{
	int r = channel_recv_asked(s->ch, h, e);

	if (!r && h->type == WIRE_COMPLETE) {
		s->owing.complete = true;
		sender_note_doubt(s);
		return 0;
	}
	if (!r && h->type == WIRE_POSTCOPY_ASK)
		recover_note_ran(s);
	if (!r && h->type != WIRE_POSTCOPY_ASK)
		r = err_set(e, GW_BAD_PEER, EPROTO, "the receiver sent %s after RECOVER",
			    wire_type_name(h->type));
	if (!r)
		r = recover_units(s, h, e);
	while (!r) {
		r = channel_recv_asked(s->ch, h, e);
		if (r)
			break;
		if (h->type == WIRE_RECOVER)
			return channel_body(s->ch, secret, WIRE_SECRET, e);
		r = h->type == WIRE_OWED ? owed_frame_receive(&s->owing.owed, s->ch, h, e) :
		    err_set(e, GW_BAD_PEER, EPROTO, "the receiver sent %s where OWED was due",
			    wire_type_name(h->type));
	}
	return r;
}

/* The receiver allows so many, and the request connection is one of WIRE_STREAMS_MAX. */
static unsigned int recover_streams(const struct sender *s, uint32_t most)
{
	unsigned int n = s->o->streams;

	if (!n)
		n = link_streams(s->o->cpus, sock_least_rtt_ns(channel_fd(s->ch)),
				 WIRE_STREAMS_MAX);
	if (n > most)
		n = most;
	if (n > WIRE_STREAMS_MAX - 1)
		n = WIRE_STREAMS_MAX - 1;
	return n ? n : 1;
}

/* Connects, and lets the streams join. s->owing.complete: nothing is missing. */
static int recover_ask(struct sender *s, unsigned int ms, struct err *e)
{
	const struct hello_peer peer = {
		.addr = s->o->addr, .tls = s->o->tls, .engine = s->o->engine, .timeout_ms = ms,
	};
	struct wire_header h = { .type = WIRE_RECOVER, .arg = s->number, .length = WIRE_SECRET };
	const struct private_ram none = { .n = 0 };
	uint8_t secret[WIRE_SECRET];
	uint64_t features = 0;
	int r = hello(&peer, &s->ch, &features, e);

	if (!r && !(features & WIRE_POSTCOPY))
		r = err_set(e, GW_VERSION, EPROTO, "another receiver listens there now, of an older version");
	if (!r)
		r = codec_check(&s->limits.compress, features, e);
	if (r)
		return r;
	s->features = features;
	/* A sender that takes over has not connected before. */
	connect_report_tls(s);
	r = channel_send(s->ch, &h, s->token, e);
	if (!r)
		r = hello_blocks(s->ch, WIRE_BLOCKS, 0, &s->vm, &none, e);
	if (!r)
		r = recover_listen(s, &h, secret, e);
	if (r || s->owing.complete)
		return r;
	/* As before, unless the receiver is another one now, which allows fewer. */
	if (!s->report->streams || s->report->streams > h.arg)
		s->report->streams = recover_streams(s, h.arg);
	return connect_open_streams(s, secret, s->report->streams, e);
}

/* What the receiver names now tells whether the connections before have brought it any. */
static int recover_stalls(struct sender *s, struct err *e)
{
	uint64_t left = atomic_load(&s->owing.owed.left);
	uint64_t since = stalled_since(&s->owing.stall, left, s->owing.lost_ns);

	/* This one came back in time, if only just. */
	if (since == s->owing.lost_ns || now_ns() < since + s->o->recover_s * 1000000000ull)
		return 0;
	return err_set(e, GW_INCOMPLETE, ETIMEDOUT, "the link comes back, but for %u s it has brought the receiver no RAM: look whether its path lets large packets through (MTU)",
		       s->o->recover_s);
}

static int recover_once(struct sender *s, unsigned int ms, struct err *e)
{
	int r = recover_ask(s, ms, e);

	if (r)
		return r;
	s->report->reconnects++;
	if (s->owing.complete)
		return 0;
	r = recover_stalls(s, e);
	if (!r)
		r = owing_check_source(s, e);
	if (r)
		return r;
	channel_unasked(s->ch, sender_take, s);
	return owing_begin(s, e);
}

/* Is this what another try to connect may help with? */
static bool recover_may_help(struct sender *s, const struct err *e)
{
	return (e->exit == GW_UNREACHABLE || err_is_link(e)) && !sender_was_continued(s);
}

/* RAM in files stays for as long as they are open here, also when QEMU has exited. */
static bool recover_needs_qemu(const struct sender *s)
{
	for (unsigned int i = 0; i < s->vm.nblocks; i++)
		if (s->vm.blocks[i].hva)
			return true;
	return false;
}

/* Tries until it is connected again: 0. */
static int recover_try(struct sender *s, struct err *e)
{
	uint64_t deadline = deadline_ms(s->o->recover_s * 1000ull);
	int r;

	do {
		uint64_t now = now_ns();
		unsigned int ms = s->o->timeout_ms;

		sender_disconnect(s);
		if (now + ms * 1000000ull > deadline)
			ms = now < deadline ? (unsigned int)((deadline - now) / 1000000) : 0;
		*e = (struct err) { 0 };
		r = recover_once(s, ms > LEAST_MS ? ms : LEAST_MS, e);
		if (!r)
			return 0;
		/* By the verdict: only a receiver that has the guest says otherwise. */
		if (s->owing.lost)
			break;
	} while (recover_may_help(s, e) && connect_nap(s, recover_needs_qemu(s), deadline));
	if (s->ch && channel_abort_status(s->ch) == GW_GUEST_LOST) {
		recover_note_ran(s);
		e->exit = GW_GUEST_LOST;
	}
	sender_disconnect(s);
	return r;
}

int owing_recover(struct sender *s, int r, struct err *e)
{
	struct err lost = *e, why = { 0 };

	if (!s->o->recover_s || !err_is_link(e))
		return r;
	say("%s: the guest %s at the destination and may lack RAM that is only here: trying to connect again for %u s",
		lost.text, owing_in_doubt(s) ? "may run" : "runs", s->o->recover_s);
	if (proc_ended(s->vm.pidfd) && !recover_needs_qemu(s))
		say("the source QEMU has exited: its RAM is there for as long as this godwit runs, which has it open");
	*e = (struct err) { 0 };
	s->owing.lost_ns = now_ns();
	/* A signal may end the wait: nothing changes by that. */
	stop_heed();
	r = recover_try(s, &why);
	if (why.exit == GW_GUEST_LOST)
		*e = why;
	if (r)
		return err_set(e, lost.exit, ENOTCONN, "%.400s; %.500s", lost.text, why.text);
	if (!stop_commit())
		return stop_err(e);
	say("connected again");
	return 0;
}

static enum doubt_guest owing_guest(const struct sender *s)
{
	if (s->note_before)
		return doubt_guest(s->note_before);
	return s->report->guest_was_paused ? DOUBT_GUEST_PAUSED : DOUBT_GUEST_RAN;
}

/*
 * A sender that takes over, and hears of no receiver, knows no more than the note: in doubt, the
 * guest may never have run there.
 */
bool owing_in_doubt(const struct sender *s)
{
	return s->note_before && !doubt_ran(s->note_before);
}

/* Of a guest that has run here since, RAM is of another history than the one that runs there. */
int owing_check_source(struct sender *s, struct err *e)
{
	const bool doubt = owing_in_doubt(s);

	if (!sender_was_continued(s))
		return 0;
	push_stop(&s->owing.push);
	return err_set(e, doubt ? GW_VM_STATE : GW_RAN_TWICE, EEXIST,
		       "another client has continued the guest here (cont), though it %s at the destination and may lack RAM that is only here: that RAM may have changed since, and no more of it is sent. Stop the guest here if it runs (stop). %s",
		       doubt ? "may run" : "runs",
		       doubt ? "\"godwit resolve\" finds out whether it has run there" :
			       "The one at the destination waits where it lacks RAM: end both QEMUs, look at the guest's disks, and start it anew from them");
}

int owing_give_up(struct sender *s, int r, bool lost, struct err *e)
{
	const struct err cause = *e;

	e->exit = GW_OK;
	if (lost)
		return err_set(e, GW_GUEST_LOST, ESRCH, "the guest is lost there, unless it had ended of its own accord (%.500s). %s",
			       cause.text, doubt_lost_words(owing_guest(s)));
	if (sender_was_continued(s)) {
		sender_disconnect(s);
		return owing_check_source(s, e);
	}
	if (owing_in_doubt(s))
		return err_set(e, GW_UNKNOWN, r ? -r : EIO,
			       "it is not known whether the guest has run at the destination (%.600s): \"godwit resolve\" finds that out first. Leave this QEMU as it is until then",
			       cause.text);
	return err_set(e, GW_INCOMPLETE, r ? -r : EIO,
		       "the guest runs at the destination and may lack RAM that is only here (%.600s): it waits where it touches that RAM. %s",
		       *cause.text ? cause.text : "the link was lost",
		       proc_ended(s->vm.pidfd) ?
		       "The source QEMU has exited, so no other godwit can send that RAM: end the QEMU there, and start the guest anew from its disks" :
		       "Leave this QEMU as it is, and do not continue it");
}

/* It may be stopped again before the next try: the note, if there is one, says that it has run. */
static int recover_refuse_running(struct sender *s, struct err *e)
{
	struct doubt d = { .addr = NULL };
	struct err none = { 0 };

	if (!doubt_read(s->vm.pid, &d, &s->note_before, &none))
		doubt_note_continued(s->vm.pid, s->note_before);
	return err_set(e, d.ran ? GW_RAN_TWICE : GW_VM_STATE, EEXIST, "the guest runs here: if it runs at the destination as well, another client has continued it here (cont)");
}

/* The source VM, and the note of the sender that sent it. Changes nothing but that. */
static int recover_find(struct sender *s, struct err *e)
{
	struct doubt d = { .addr = NULL };
	bool running = false;
	int r = qmp_open(s->o->qmp_path, s->o->timeout_ms, &s->qmp, e);

	if (!r)
		r = vm_find(s->qmp, s->o->pid, 0, &s->vm, e);
	if (!r)
		r = claim_take(&s->claim, &s->vm, e);
	if (!r)
		r = migration_running(s->qmp, &running, e);
	if (!r && running)
		r = recover_refuse_running(s, e);
	/* In save mode the receiver matches RAM by its place in the guest. */
	if (!r)
		r = mtree_query(s->qmp, &s->vm, e);
	if (!r)
		r = doubt_read(s->vm.pid, &d, &s->note_before, e);
	if (!r && d.dead && !d.ran)
		r = err_set(e, GW_NO_MIGRATION, ENOENT,
			    "the guest never ran at the destination: \"godwit resolve\" has it run here");
	if (!r)
		r = doubt_check_source(s->qmp, &d, e);
	memcpy(s->token, d.token, sizeof(s->token));
	/* The sender before had heard it, and its receiver may have forgotten: no answer counts. */
	s->owing.complete = !r && d.ran && d.complete;
	if (s->owing.complete)
		say("all of the guest's RAM is at the destination: the sender before has noted it");
	return r;
}

int owing_take_over(struct sender *s, struct err *e)
{
	int r = recover_find(s, e);
	const bool known = s->owing.complete;

	if (!r)
		r = source_none(&s->vm, &s->source, e);
	if (r)
		return r;
	for (unsigned int i = 0; i < s->vm.nblocks; i++)
		s->report->total_pages += s->vm.blocks[i].pages;
	/* What the note is of has been decided: all that is left is RAM to send. */
	s->commit = COMMIT_RUNS;
	s->owing.agreed = s->owing.collected = true;
	push_init(&s->owing.push, &s->owing.owed);
	s->report->phase = "post-copy";
	report_round_begin(s->report, false, now_ns() - s->started_ns);
	err_set(e, GW_LINK_LOST, ENOTCONN, "another sender has ended");
	r = owing_settle(s, -ENOTCONN, e);
	if (!r)
		*e = (struct err) { 0 };
	if (r)
		return r;
	/* By the note: the receiver may be there, and wait for a sender that it can tell so. */
	if (known)
		sender_tell(s, s->o->addr);
	doubt_forget(s->vm.pid);
	return sender_check_source(s, e);
}
