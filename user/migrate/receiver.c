// SPDX-License-Identifier: GPL-2.0-only
/*
 * The destination: a loop over frames. What may come when is in wire.h.
 *
 * The destination QEMU waits with an empty guest. It gets the device state when all of it is here (load.h), so a migration
 * that breaks before that is ended by closing its stream: QEMU then gives up by itself.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "claim/owners.h"
#include "fit/fit.h"
#include "io/sock.h"
#include "io/stop.h"
#include "migrate/load.h"
#include "migrate/receiver_internal.h"

int receiver_send(struct receiver *r, enum wire_type type, uint32_t arg, struct err *e)
{
	struct wire_header h = { .type = (uint16_t)type, .arg = arg };

	return channel_send(r->ch, &h, NULL, e);
}

int receiver_pong(struct receiver *r, const struct wire_header *h, struct err *e)
{
	struct wire_header pong = { .type = WIRE_PONG, .arg = h->arg, .length = 8 };
	uint8_t body[8];
	int ret = channel_body(r->ch, body, sizeof(body), e);

	wire_put_u64(body, realtime_ns());
	return ret ? ret : channel_send(r->ch, &pong, body, e);
}

/* A PONG that nobody asked for. */
static int alive(void *arg, struct err *e)
{
	struct wire_header pong = { .type = WIRE_PONG, .length = 8 };
	struct receiver *r = arg;
	uint8_t body[8];

	wire_put_u64(body, realtime_ns());
	return channel_send(r->ch, &pong, body, e);
}

static int on_round(struct receiver *r, const struct wire_header *h, struct err *e)
{
	struct qmp_event ev;
	int ret;

	/* A QEMU that has exited is noticed here, not in the blackout. */
	while ((ret = qmp_event(r->qmp, 0, &ev, e)) > 0)
		;
	r->res->rounds = h->arg;
	if (!ret && r->last)
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent ROUND after the last one");
	if (!ret)
		ret = lanes_wait_round(r->lanes, h->arg, h->flags & WIRE_ROUND_LAST, alive, r, e);
	if (ret)
		return ret;
	/* Before the ACK leaves: on hearing it the sender may send all that it has, see give_up(). */
	r->last = h->flags & WIRE_ROUND_LAST;
	return receiver_send(r, WIRE_ACK, h->arg, e);
}

static int on_commit(struct receiver *r, struct err *e)
{
	if (!r->last)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent COMMIT before the last round");
	/* They have ended with that round; this makes sure of it. */
	lanes_stop(r->lanes);
	r->committed = true;
	return 0;
}

/* One frame. 1: that was DEVICE_END. */
static int on_frame(struct receiver *r, const struct wire_header *h, struct err *e)
{
	if (r->committed && h->type != WIRE_DEVICE && h->type != WIRE_DEVICE_END && h->type != WIRE_PING)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s after COMMIT", wire_type_name(h->type));
	switch (h->type) {
	case WIRE_ROUND:
		return on_round(r, h, e);
	case WIRE_PING:
		return receiver_pong(r, h, e);
	case WIRE_ASK_VIEW:
		return fit_answer(r->ch, r->qmp, &r->vm, h->flags, e);
	case WIRE_DEVICE:
		return load_frame(r, h, e);
	case WIRE_PRIVATE:
		if (!r->saved)
			return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent PRIVATE, which was not agreed on");
		return devram_frame(r->ch, h, &r->private, e);
	case WIRE_VERIFY:
		return verify_frame(&r->vm, r->ch, h, r->place.pages, &r->verify, e);
	case WIRE_VERIFY_END:
		return verify_answer(r->ch, &r->verify, e);
	case WIRE_COMMIT:
		return on_commit(r, e);
	case WIRE_DEVICE_END:
		if (!r->committed)
			return err_set(e, GW_BAD_PEER, EPROTO, "the sender ended the device state without COMMIT");
		r->runs = h->flags & WIRE_RUNS;
		return 1;
	default:
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s out of turn", wire_type_name(h->type));
	}
}

/* A stream has failed. When it just broke, the sender may have said more. */
static int stream_failed(struct receiver *r, struct err *e)
{
	struct err said = { 0 };

	lanes_error(r->lanes, e);
	if (e->exit != GW_LINK_LOST)
		return -EIO;
	channel_last_words(r->ch, 1000, &said);
	if (said.exit)
		*e = said;
	return -EIO;
}

/* The sender has heard it. */
static bool hear_done(struct receiver *r)
{
	uint64_t deadline = deadline_ms(r->o->timeout_ms);
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

/* All of the device state is here: the sender cannot take it back any more, so neither can we. */
static int finish(struct receiver *r, struct err *e)
{
	struct wire_header h = { .type = WIRE_RESUMED, .length = 8 };
	struct err lost = { 0 };
	uint8_t body[8];
	int ret;

	stop_ignore();
	commit_destination(&r->commit, DESTINATION_GETS_END);
	/* Before QEMU gets any of it: who finds "prepared" of a receiver that was killed knows that the guest runs nowhere here. */
	verdict_write(r);
	ret = load_run(r, e);
	/* Before the verdict: as long as that is "sent", one who answers for a receiver that was killed does it. */
	if (!ret)
		migration_restore(&r->migration);
	verdict_write(r);
	if (ret)
		return ret;
	/* It runs: it may move on. */
	claim_drop(&r->claim, &r->vm);
	wire_put_u64(body, r->resumed_ns);
	ret = channel_send(r->ch, &h, body, &lost);
	if (ret && !r->verdicts)
		fprintf(stderr, "godwit: the guest runs here, but the sender could not be told: %s\n", lost.text);
	r->told = !ret && (!r->verdicts || hear_done(r));
	return 0;
}

static int serve(struct receiver *r, struct err *e)
{
	struct wire_header h;
	int ret = admit_streams(r, e);

	while (!ret) {
		ret = channel_recv(r->ch, &h, false, e);
		if (!ret)
			ret = on_frame(r, &h, e);
	}
	if (ret < 0 && r->lanes && atomic_load(lanes_failed(r->lanes)) && (!e->exit || e->exit == GW_LINK_LOST))
		ret = stream_failed(r, e);
	return ret == 1 ? finish(r, e) : ret;
}

/*
 * After a failure: what may be said of it. Once the last round has been acknowledged the sender may
 * be in SENT: COMMIT, the device state and DEVICE_END fit into the buffer of its socket, and a link
 * that has gone silent in between shows us none of them. So from then on the verdict is kept, whether
 * COMMIT has come or not. A sender that said ABORT has given up, as all that it sent before has come:
 * it will not ask. It may have noted a doubt only if COMMIT came before.
 */
static void give_up(struct receiver *r, int ret, const struct err *e)
{
	if (!ret || commit_destination(&r->commit, DESTINATION_GIVES_UP) != DESTINATION_SAYS_DEAD)
		return;
	if (r->last)
		verdict_write(r);
	if (!r->ch)
		return;
	r->closed = channel_abort(r->ch, e) || channel_aborted(r->ch);
	r->told = channel_aborted(r->ch) && !r->committed;
}

/* A verdict that somebody may ask for later stays. */
static void end_record(struct receiver *r)
{
	if (!r->last || r->told)
		record_remove(&r->record);
	else
		record_close(&r->record);
}

int receiver_run(const struct receiver_options *o, struct receiver_result *res, struct err *e)
{
	struct receiver r = {
		.o = o, .res = res, .lfd = -1, .vm = { .pidfd = -1, .vm_fd = -1 }, .migration = { .stream = -1 },
		.state = -1, .commit = COMMIT_PREPARED, .record = RECORD_NONE, .claim = CLAIM_NONE,
	};
	struct place_count count = { 0, 0 };
	int ret;

	ret = qmp_open(o->qmp_path, o->timeout_ms, &r.qmp, e);
	if (!ret)
		ret = vm_find(r.qmp, o->pid, VM_WRITE, &r.vm, e);
	if (!ret)
		ret = claim_take(&r.claim, &r.vm, e);
	if (!ret)
		ret = claim_check_mark(r.qmp, e);
	if (!ret)
		ret = migration_check(&r.migration, r.qmp, true, 0, e);
	if (!ret)
		ret = owners_check("/proc", &r.vm, OWNERS_DESTINATION, e);
	if (!ret)
		ret = admit_sender(&r, e);
	if (!ret)
		ret = serve(&r, e);
	if (r.lanes) {
		lanes_stop(r.lanes);
		count = lanes_count(r.lanes);
	}
	res->data_pages = count.data_pages;
	res->zero_pages = count.zero_pages;
	/* First QEMU's stream, so that it gives up; then the sender may hear that it did. */
	migration_hang_up(&r.migration);
	give_up(&r, ret, e);
	channel_free(r.ch);
	r.ch = NULL;
	lanes_free(r.lanes);
	if (r.commit == COMMIT_DEAD)
		migration_restore(&r.migration);
	if (r.verdicts && r.last && !r.told && !r.closed)
		verdict_linger(&r);
	end_record(&r);
	claim_drop(&r.claim, &r.vm);
	if (r.lfd >= 0)
		close(r.lfd);
	if (r.state >= 0)
		close(r.state);
	private_free(&r.private);
	place_close(&r.place);
	migration_free(&r.migration);
	vm_close(&r.vm);
	qmp_close(r.qmp);
	return ret;
}
