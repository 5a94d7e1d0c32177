// SPDX-License-Identifier: GPL-2.0-only
/*
 * The receiver: a loop over frames. wire.h says which frame may come when.
 *
 * The destination QEMU waits with an empty guest. The receiver passes the device state to QEMU when
 * all of it has come (load.h). If the migration breaks before that the receiver closes QEMU's
 * stream, and QEMU gives up by itself.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/say.h"
#include "base/stop.h"
#include "claim/owners.h"
#include "fit/fit.h"
#include "net/address.h"
#include "plan/link.h"
#include "receive/load.h"
#include "receive/receiver_internal.h"

/* A stream has failed. If its connection broke, the sender's ABORT may say why. */
static int receiver_stream_failed(struct receiver *r, struct err *e)
{
	struct err said = { 0 };

	receive_streams_error(r->streams, e);
	if (e->exit != GW_LINK_LOST)
		return -EIO;
	/* After DEVICE_END the sender has nothing more to say, and its guest stands still. */
	if (r->state != RECEIVER_COMMITTED)
		channel_last_words(r->ch, 1000, &said);
	if (said.exit)
		*e = said;
	return -EIO;
}

/* Waits for DONE: the sender knows that the guest runs here. */
static bool receiver_wait_done(struct receiver *r)
{
	uint64_t deadline = deadline_ms(receiver_patience_ms(r));
	struct err ignored = { 0 };
	struct wire_header h;

	while (now_ns() < deadline && !channel_recv(r->ch, &h, false, &ignored)) {
		uint8_t clock[8];

		if (h.type == WIRE_DONE)
			return true;
		if (h.type != WIRE_PING || channel_body(r->ch, clock, sizeof(clock), &ignored))
			return false;
	}
	return false;
}

/* All of the device state has come: neither the sender nor the receiver can roll back any more. */
static int receiver_finish(struct receiver *r, struct err *e)
{
	struct wire_header h = { .type = WIRE_RESUMED, .length = 8 };
	struct err lost = { 0 };
	uint8_t body[8];
	int ret = postcopy_check(r, e);

	if (!ret && r->postcopy.begun)
		ret = postcopy_mark(r, e);
	if (ret)
		return ret;
	stop_ignore();
	commit_destination(&r->commit, DESTINATION_GETS_END);
	/*
	 * Before QEMU gets any of it: the record "prepared" of a receiver that was killed proves
	 * that the guest does not run here.
	 */
	verdict_write(r);
	ret = load_run(r, e);
	/*
	 * Before the verdict: as long as the record says "sent", the receiver that answers for one
	 * that was killed restores QEMU's settings (verdict.c). In post-copy the verdict is first:
	 * QEMU's main loop may wait for a page by now. If this receiver were killed while it asks
	 * QEMU for anything, the record "sent" would leave the sender in doubt, and the page there
	 * for good. postcopy_finish() waits until it has its settings back, from this receiver
	 * or from one that takes over.
	 */
	if (!ret && !r->postcopy.begun)
		migration_restore(&r->migration);
	verdict_write(r);
	if (ret)
		return ret;
	/* QEMU's own migrations leave RAM out until it has its capabilities back. */
	if (r->postcopy.begun) {
		kept_ram_note(r);
		migration_restore_begin(&r->migration);
	}
	/* The guest runs, and if all of it is here another migration may move it on. */
	if (!r->postcopy.begun)
		claim_drop(&r->claim, &r->vm);
	wire_put_u64(body, r->resumed_ns);
	ret = channel_send(r->ch, &h, body, &lost);
	if (ret && !r->verdicts)
		say("the guest runs here, but RESUMED did not reach the sender: %s",
			lost.text);
	if (!ret && (!r->verdicts || receiver_wait_done(r)))
		r->sender = SENDER_KNOWS;
	return r->postcopy.begun ? postcopy_finish(r, e) : 0;
}

static int receiver_serve(struct receiver *r, struct err *e)
{
	struct wire_header h;
	int ret = join_streams(r, e);

	while (!ret) {
		ret = channel_recv(r->ch, &h, false, e);
		if (!ret)
			ret = receiver_on_frame(r, &h, e);
		if (ret < 0 && r->streams && atomic_load(receive_streams_failed(r->streams)) &&
		    (!e->exit || e->exit == GW_LINK_LOST))
			ret = receiver_stream_failed(r, e);
		if (ret < 0)
			ret = reconnect(r, ret, e);
	}
	return ret == 1 ? receiver_finish(r, e) : ret;
}

/*
 * After a failure: settles what the record and the sender may say of it. Once the receiver has
 * answered SWITCHOVER the sender may be in SENT: the last round, the device state and DEVICE_END
 * may all be in the buffers of its sockets, and if the link has gone silent in between the receiver
 * sees none of them. So from then on the receiver keeps the verdict, whatever has come. A sender
 * that said ABORT has given up, as all that it sent before has come: it will not ask. It may have
 * recorded a doubt only if COMMIT came before.
 */
static void receiver_give_up(struct receiver *r, int ret, const struct err *e)
{
	if (!ret || commit_destination(&r->commit, DESTINATION_GIVES_UP) != DESTINATION_SAYS_DEAD)
		return;
	if (r->state >= RECEIVER_SWITCHES)
		verdict_write(r);
	if (!r->ch)
		return;
	if (channel_abort(r->ch, e) || channel_aborted(r->ch))
		r->sender = SENDER_TOLD;
	if (channel_aborted(r->ch) && r->state != RECEIVER_COMMITTED)
		r->sender = SENDER_KNOWS;
}

/* The sender may not know how the migration ended: waits for its question. */
static void receiver_linger(struct receiver *r)
{
	/* The sender may notice a lost link by its patience later than we do: doubt.h. */
	unsigned int ms = link_patience_ms(r->o->resolve_s * 1000u, r->rtt_ns);
	struct wire_header h;
	struct err e = { 0 };
	uint64_t until;

	/* It tries as long for the RAM of its guest, which it believes to lack some. */
	if ((r->lost || r->whole) && ms < r->o->recover_s * 1000u)
		ms = r->o->recover_s * 1000u;
	until = deadline_ms(ms);
	if (!receiver_listen_again(r))
		return;
	/* A signal may end this wait: the verdict stays in its file. */
	stop_heed();
	say("the sender may not know how the migration ended (%s): waiting %u s for its question",
		r->lost ? postcopy_loss(r) : commit_state_name(r->commit), ms / 1000);
	while (r->sender == SENDER_MAY_NOT_KNOW && !receiver_greet(r, &h, until, until, &e)) {
		struct err busy = { 0 };

		if (h.type == WIRE_ASK) {
			enum sender_knowledge heard = verdict_reply(r);

			/* Else that it ran. A sender sends RECOVER next, and hears the rest. */
			if (!r->lost)
				r->sender = heard;
			continue;
		}
		if (h.type == WIRE_RECOVER && r->commit == COMMIT_RUNS) {
			recover_tell(r, &h);
			continue;
		}
		err_set(&busy, GW_BUSY, EBUSY, "this receiver has served its migration: start another receiver");
		channel_abort(r->ch, &busy);
		channel_free(r->ch);
		r->ch = NULL;
	}
}

/*
 * Keeps the record if the sender may ask for the verdict later, or has RAM that is missing. The
 * receiver from which this one took over may have had another directory for its own.
 */
static void receiver_end_record(struct receiver *r)
{
	char name[RECORD_NAME];

	if (r->state >= RECEIVER_SWITCHES && (r->sender != SENDER_KNOWS || r->lacks_ram)) {
		record_close(&r->record);
		return;
	}
	record_remove(&r->record);
	if (!r->o->recover || !r->verdicts)
		return;
	record_name_verdict(name, r->token, sizeof(r->token));
	record_forget(name);
}

int receiver_find(struct receiver *r, struct err *e)
{
	int ret = qmp_open(r->o->qmp_path, r->o->timeout_ms, &r->qmp, e);

	if (!ret)
		ret = vm_find(r->qmp, r->o->pid, VM_WRITE, &r->vm, e);
	if (!ret)
		r->at = qmp_place(r->qmp, r->o->qmp_path, r->vm.pid);
	if (!ret && record_name_vm(r->vmm, "doubt", r->vm.pid))
		r->vmm[0] = '\0';
	return ret ? ret : claim_take(&r->claim, &r->vm, e);
}

/* Also checks that it waits for a guest. Changes nothing else. */
static int receiver_prepare(struct receiver *r, struct err *e)
{
	int ret = receiver_find(r, e);

	if (!ret)
		ret = claim_check_mark(r->qmp, e);
	if (!ret)
		ret = migration_check(&r->migration, r->qmp, true, 0, e);
	if (!ret)
		ret = owners_check("/proc", &r->vm, OWNERS_DESTINATION, e);
	return ret;
}

static void receiver_release_ram(struct receiver *r)
{
	claim_drop(&r->claim, &r->vm);
	ram_writer_close(&r->writer);
	r->writer = (struct ram_writer) { .vm = NULL };
	vm_close(&r->vm);
}

/*
 * Tells the sender how the migration ended, or answers its question for that. ret, e: how it ended
 * here.
 */
static void receiver_settle(struct receiver *r, int ret, const struct err *e)
{
	/* Close QEMU's stream first, so that QEMU gives up; only then tell the sender so. */
	migration_close_stream(&r->migration);
	receiver_give_up(r, ret, e);
	/* Afterwards nothing tells: postcopy_end() leaves it all to the module. */
	r->lacks_ram = r->lost || postcopy_lacks_ram(r);
	receiver_disconnect(r);
	postcopy_end(r);
	/*
	 * While the sender is waited for the guest may be started anew, with the same files, or
	 * move on: QEMU, which serves one client, may be another migration's.
	 */
	if (r->lost || r->whole)
		receiver_release_ram(r);
	if (r->whole) {
		qmp_close(r->qmp);
		r->migration.qmp = r->qmp = NULL;
	}
	if (r->commit == COMMIT_DEAD)
		migration_restore(&r->migration);
	if ((r->verdicts || r->lost || (r->whole && r->o->recover)) &&
	    r->state >= RECEIVER_SWITCHES &&
	    r->sender == SENDER_MAY_NOT_KNOW)
		receiver_linger(r);
	receiver_end_record(r);
}

static void receiver_release(struct receiver *r)
{
	receiver_release_ram(r);
	/* A path that was passed in is its owner's to remove. */
	if (r->lfd >= 0)
		address_close(r->o->listen, r->lfd, r->o->listen_fd < 0 && !r->lfd_shut);
	device_state_free(&r->devstate);
	private_ram_free(&r->private);
	receiver_end_reuse(r);
	migration_free(&r->migration);
	qom_known_free(&r->known);
	qmp_close(r->qmp);
	qmp_place_forget(&r->at);
}

int receiver_run(const struct receiver_options *o, struct receiver_result *res, struct err *e)
{
	struct receiver r = {
		.o = o, .res = res, .lfd = -1, .vm = { .pidfd = -1, .vm_fd = -1 },
		.migration = { .stream = -1 }, .commit = COMMIT_PREPARED, .postcopy = POSTCOPY_NONE,
		.record = RECORD_NONE, .claim = CLAIM_NONE, .at = QMP_PLACE_NONE,
	};
	int ret;

	device_state_init(&r.devstate);
	thread_slots_init(&r.unpacking,
			  o->unpack_threads ? o->unpack_threads : thread_cpus_usable());
	pthread_mutex_init(&r.verify.lock, NULL);
	if (o->recover) {
		ret = recover_take_over(&r, e);
	} else {
		ret = receiver_prepare(&r, e);
		if (!ret)
			ret = receiver_open_reuse(&r, e);
		if (!ret)
			ret = accept_sender(&r, e);
		if (!ret)
			ret = receiver_serve(&r, e);
	}
	device_state_stop(&r.devstate);
	/* Streams that wait for memory would not end. */
	atomic_store(&r.postcopy.stop, true);
	if (r.streams)
		receive_streams_stop(r.streams);
	receiver_settle(&r, ret, e);
	res->data_pages = r.before.data_pages;
	res->zero_pages = r.before.zero_pages;
	res->reused_pages = r.before.reused_pages;
	res->ended = r.ended;
	receiver_release(&r);
	return ret;
}
