// SPDX-License-Identifier: GPL-2.0-only
/*
 * The link is lost in post-copy: the guest runs here, and lacks RAM that the source has. Its faults
 * wait, and the receiver waits for RECOVER.
 *
 * No page is lost, as what is missing is known here, and only here: the receiver names it once all
 * threads of the old connections have ended, so no page is on its way into place then; whatever one
 * had taken is in place and not owed, or owed still (owed_again()). No page is old, as the source's
 * RAM is at rest. A fault that was asked for is asked for again: all that wait are woken, and come
 * again if their pages are missing.
 *
 * Who may connect is who knows the token; and the pages that it sends are checked as ever.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/say.h"
#include "base/stop.h"
#include "peer/frame_out.h"
#include "peer/owed_frames.h"
#include "receive/receiver_internal.h"
#include "receive/postcopy_internal.h"
#include "wire/owed.h"

#define MONITOR_MS	1000u	/* the sender is not answered meanwhile */

/* Under the same numbers as before? */
static int recover_same_ram(struct receiver *r, struct err *e)
{
	struct ram_block before[WIRE_BLOCKS_MAX];
	struct wire_header h;
	int ret = channel_recv(r->ch, &h, false, e);

	if (!ret && h.type != WIRE_BLOCKS)
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s where BLOCKS was due",
			      wire_type_name(h.type));
	if (ret)
		return ret;
	memcpy(before, r->vm.blocks, sizeof(before));
	ret = agree_ram(r, &h, e);
	/* A receiver that takes over without a note numbers them now. */
	if (!ret && r->postcopy.taken && !atomic_load(&r->postcopy.ready) && !r->numbered)
		return 0;
	if (!ret && memcmp(before, r->vm.blocks, sizeof(before)))
		ret = err_set(e, GW_RAM_DIFFERS, EINVAL, "the sender numbers its RAM in another way than before");
	memcpy(r->vm.blocks, before, sizeof(before));
	return ret;
}

/* What is missing, in front of the answer. */
static int recover_name(struct receiver *r, struct err *e)
{
	const struct frame_out to = { .send = frame_out_to_channel, .arg = r->ch };
	struct wire_header h = {
		.type = WIRE_POSTCOPY_ASK, .arg = r->vm.nblocks,
		.length = r->vm.nblocks * WIRE_UNIT,
	};
	uint8_t body[WIRE_BLOCKS_MAX * WIRE_UNIT];
	uint64_t pages;
	int ret;

	wire_put_units(body, r->postcopy.unit, r->vm.nblocks);
	ret = channel_send(r->ch, &h, body, e);
	return ret ? ret : owed_frames_send(&r->postcopy.lazy.owed, &to, &pages, e);
}

static int recover_lost(struct err *e)
{
	return err_set(e, GW_GUEST_LOST, ESRCH, "the QEMU that had the guest has exited before all of its RAM was there");
}

/* No thread of the old connections is left, and none has a page. */
static void recover_disconnect(struct receiver *r)
{
	postcopy_interrupt(r);
	receiver_disconnect(r);
	owed_again(&r->postcopy.lazy.owed);
}

/*
 * Another guest's sender has come, and that guest waits for RAM: its own receiver may be started at
 * this address while the sender tries, and any word would end that. 1: it is left alone.
 */
static int recover_leave_alone(struct receiver *r)
{
	recover_disconnect(r);
	postcopy_release(r);
	if (!r->stranger_told)
		say("this receiver waits for the sender of another migration than the one that has come, whose guest lacks RAM in another QEMU: start \"godwit receive --recover\" for that QEMU as well");
	r->stranger_told = true;
	return 1;
}

/*
 * The module drops what it keeps when QEMU's memory goes, which is before QEMU has exited. If the
 * record says that our QEMU's guest lacks RAM it is soon seen to be lost: the sender comes again,
 * and hears that then. "No migration" would end it.
 */
static int recover_take(struct receiver *r, const uint8_t token[WIRE_SECRET], struct err *e)
{
	int ret;

	/* What is kept of another QEMU's is not even touched. */
	if (verdict_is_of_another(r, token))
		return recover_leave_alone(r);
	ret = postcopy_take(r, token, e);
	if (ret && e->exit == GW_NO_MIGRATION) {
		json_auto_t *record = verdict_ours(r, token);

		if (json_is_true(json_object_get(record, "owing"))) {
			e->exit = GW_OK;
			ret = err_set(e, GW_VM_GONE, ESRCH, "the QEMU that has the guest is about to exit");
		}
	}
	return ret;
}

/* A guest whose receiver has ended: its sender may come here, too. r->ch is closed then: 1. */
static int recover_tell_whole(struct receiver *r, const uint8_t token[WIRE_SECRET], struct err *e)
{
	const struct wire_header done = { .type = WIRE_COMPLETE };
	json_auto_t *whole = verdict_whole(token);
	struct err ignored = { 0 };
	int ret;

	if (!whole)
		return 0;
	/* Else its note stays, and who is started for its QEMU tries again. */
	kept_ram_end(token, whole, &ignored);
	ret = channel_send(r->ch, &done, NULL, e);
	if (ret)
		return ret;
	receiver_was_read(r);
	channel_free(r->ch);
	r->ch = NULL;
	say_out("told the sender of another guest that its guest has all of its RAM");
	return 1;
}

/* 1: it was another guest's sender, which knows that its guest is whole, or tries on. */
static int recover_token(struct receiver *r, const struct wire_header *h,
			 uint8_t token[WIRE_SECRET], struct err *e)
{
	int ret;

	if (h->type != WIRE_RECOVER)
		return err_set(e, GW_BUSY, EBUSY, "this receiver waits for the sender of a guest that lacks RAM: start another receiver");
	ret = channel_body(r->ch, token, WIRE_SECRET, e);
	/* Also of another receiver's guest: no other word would come of that. */
	if (!ret && verdict_lost(r, token)) {
		verdict_adopt(r, token);
		return recover_lost(e);
	}
	if (!ret && r->whole)
		verdict_adopt(r, token);
	if (!ret && !(r->verdicts && join_secret_ok(token, r->token)))
		ret = recover_tell_whole(r, token, e);
	/* Who knows it is known to the module only, if this receiver has taken the guest over. */
	if (!ret && r->o->recover && r->postcopy.dev < 0 && !r->verdicts && !r->lost && !r->whole)
		return recover_take(r, token, e);
	/* In the last case no sender has told this receiver which migration it is for. */
	if (!ret && (!join_secret_ok(token, r->token) || ((r->lost || r->whole) && !r->verdicts)))
		ret = err_set(e, GW_NO_MIGRATION, ESRCH, "this receiver waits for the sender of another migration");
	if (!ret && !(r->features & WIRE_POSTCOPY))
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent RECOVER, which it does not offer");
	return ret;
}

/* Without a record only the module knows whose page faults it keeps. */
static int recover_taken(struct receiver *r, struct err *e)
{
	int ret = postcopy_taken(r, e);

	return ret && e->exit == GW_NO_MIGRATION ? recover_leave_alone(r) : ret;
}

/* A peer has said HELLO. 0: it is the sender, its streams have joined; 1: as recover_token(). */
static int recover_join(struct receiver *r, const struct wire_header *h, struct err *e)
{
	uint8_t token[WIRE_SECRET];
	int ret = recover_token(r, h, token, e);

	if (ret)
		return ret;
	channel_set_timeout(r->ch, receiver_patience_ms(r));
	/* Of an earlier answer some faults may have been woken: they are asked for anew. */
	r->base = h->arg;
	ret = recover_same_ram(r, e);
	if (!ret && r->postcopy.taken)
		ret = recover_taken(r, e);
	if (!ret)
		ret = recover_name(r, e);
	return ret ? ret : join_streams_again(r, WIRE_RECOVER, e);
}

static void recover_reject(struct receiver *r, const struct err *why)
{
	if (r->ch && !err_is_link(why))
		channel_abort(r->ch, why);
	recover_disconnect(r);
	say_out("still waiting for the sender; rejected a connection: %s", why->text);
}

/* Serves a peer that has said HELLO. 1: the sender is back; 0: it waits on; -errno: a signal. */
static int recover_serve(struct receiver *r, const struct wire_header *h, struct err *e)
{
	struct err why = { 0 };
	int ret;

	if (h->type == WIRE_ASK) {
		verdict_reply(r);
		return 0;
	}
	ret = recover_join(r, h, &why);
	if (ret > 0)
		return 0;
	if (!ret && !postcopy_resume(r, &why)) {
		/* Whoever says RECOVER: the one DONE to come is for COMPLETE. */
		r->sender = SENDER_KNOWS;
		return 1;
	}
	if (stop_requested())
		return stop_err(e);
	/* It comes again, and hears that its guest is lost, and no other reason. */
	if (why.exit == GW_VM_GONE)
		recover_disconnect(r);
	else
		recover_reject(r, &why);
	postcopy_release(r);
	return 0;
}

/* The operator's time, for all tries: the round trip does not count. */
static uint64_t recover_until(const struct receiver *r, uint64_t since_ns)
{
	return since_ns + r->o->recover_s * 1000000000ull;
}

int recover(struct receiver *r, int ret, struct err *e)
{
	struct err lost = *e;
	uint64_t left, until, now;
	int back;

	if (!err_is_link(e) || !r->o->recover_s || (r->ch && channel_aborted(r->ch)))
		return ret;
	recover_disconnect(r);
	/* What was read meanwhile may have been the last of it. */
	left = atomic_load(&r->postcopy.lazy.owed.left);
	if (!left)
		return ret;
	now = now_ns();
	until = recover_until(r, stalled_since(&r->postcopy.stall, left, now));
	say_out("%s: the guest runs here and lacks RAM: waiting %llu s for the sender to connect again",
	       lost.text, until > now ? (unsigned long long)(until - now) / 1000000000 : 0);
	*e = (struct err) { 0 };
	/* A signal may end the wait: the module keeps the guest's faults waiting. */
	stop_heed();
	back = receiver_wait_again(r, until, recover_serve, e);
	if (back > 0) {
		stop_ignore();
		say_out("the sender has connected again");
		return 0;
	}
	/* A peer may have been under way. */
	recover_disconnect(r);
	return back ? back : err_set(e, lost.exit, ENOTCONN, "%.400s; for %u s the sender has brought no RAM", lost.text, r->o->recover_s);
}

/*
 * The receiver before may have been killed before it gave QEMU its capabilities back, with which
 * QEMU's own migrations leave RAM out, or before it had the guest run. Now its record can be found,
 * and postcopy_finish() does both.
 */
static void recover_settings(struct receiver *r)
{
	json_auto_t *record = verdict_ours(r, r->token);
	json_t *capabilities = json_object_get(record, "capabilities");

	if (json_is_array(capabilities))
		r->migration.old_caps = json_incref(capabilities);
	r->unstarted &= verdict_unstarted(record);
}

static int recover_finish(struct receiver *r, struct err *e)
{
	int ret;

	stop_ignore();
	postcopy_monitor(r, MONITOR_MS);
	recover_settings(r);
	r->verdicts = true;
	verdict_open(r);
	ret = postcopy_finish(r, e);
	/* It may have taken QEMU longer than it had to answer `cont`. */
	if (!ret && r->unstarted)
		postcopy_hear(r);
	if (ret || !r->unstarted || r->ended)
		return ret;
	return err_set(e, GW_UNKNOWN, EAGAIN, "all of the guest's RAM is here, and QEMU has not started the guest: if it stays paused, look whether another process locks one of its disks (QEMU's log may name it), and `cont` it here; do not continue it at the source");
}

/* QEMU has exited before its sender has come. */
static int recover_gone(struct receiver *r, int ret, struct err *e)
{
	uint8_t token[WIRE_SECRET];
	struct err gone = *e;

	r->whole = postcopy_has_ended(r, e);
	r->lost = !r->whole;
	/* For receivers that are started later, should the sender not come while this one waits. */
	if (verdict_search(r, token))
		verdict_adopt(r, token);
	kept_ram_forget(r);
	if (r->whole)
		return 0;
	e->exit = GW_OK;
	return err_set(e, GW_VM_GONE, -ret, "%.300s: %s", gone.text, postcopy_loss(r));
}

int recover_take_over(struct receiver *r, struct err *e)
{
	int ret = kept_ram_claim(r, e);

	if (!ret)
		ret = receiver_listen(r, e);
	if (ret)
		return ret;
	ret = kept_ram_whole(r, e);
	if (ret < 0)
		return ret;
	/* It runs, or is about to: nothing that happens here says otherwise. */
	r->commit = COMMIT_RUNS;
	r->state = RECEIVER_COMMITTED;
	if (ret) {
		r->whole = true;
		return recover_finish(r, e);
	}
	memset(r->token, 0, sizeof(r->token));
	ret = receiver_wait_again(r, recover_until(r, now_ns()), recover_serve, e);
	if (!ret)
		ret = err_set(e, GW_INCOMPLETE, ENOTCONN, "the sender did not connect within %u s: the guest still lacks RAM", r->o->recover_s);
	if (ret < 0)
		return e->exit == GW_VM_GONE ? recover_gone(r, ret, e) : ret;
	return recover_finish(r, e);
}

void recover_tell(struct receiver *r, const struct wire_header *h)
{
	struct wire_header done = { .type = WIRE_COMPLETE };
	uint8_t token[WIRE_SECRET] = { 0 };
	struct err why = { 0 };
	int ret = recover_token(r, h, token, &why);

	/*
	 * RAM is still missing, and what page faults wait for is the module's by now. To say so
	 * would end the sender: it hears nothing, and tries again until a receiver takes over.
	 */
	if (!ret && r->lacks_ram) {
		r->sender = SENDER_KNOWS;
	} else if (ret > 0) {
		return;
	} else if (!ret && !channel_send(r->ch, &done, NULL, &why)) {
		r->sender = receiver_was_read(r);
	} else if (!err_is_link(&why) && channel_abort(r->ch, &why) && why.exit == GW_GUEST_LOST &&
		   r->verdicts && join_secret_ok(token, r->token)) {
		/* Not of another receiver's guest: its sender may come to this address, too. */
		r->sender = SENDER_KNOWS;
	}
	channel_free(r->ch);
	r->ch = NULL;
}

int recover_refuse(struct receiver *r, struct err *e)
{
	uint8_t token[WIRE_SECRET];
	int ret = channel_body(r->ch, token, sizeof(token), e);

	if (!ret)
		ret = recover_tell_whole(r, token, e);
	if (ret)
		return ret < 0 ? ret : 0;
	return verdict_lost(r, token) ? recover_lost(e) :
	       err_set(e, GW_NO_MIGRATION, ESRCH, "this receiver waits for a guest that is still to come: start \"godwit receive --recover\" for the QEMU whose guest lacks RAM");
}
