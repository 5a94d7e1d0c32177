// SPDX-License-Identifier: GPL-2.0-only
/*
 * The destination: a loop over frames. What may come when is in wire.h.
 *
 * The destination QEMU waits with an empty guest. It runs it only when it has read the whole device state, so a
 * migration that breaks before that is ended by closing its stream: QEMU then gives up by itself.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "io/sock.h"
#include "io/stop.h"
#include "migrate/receiver_internal.h"

static int refuse_device_state(struct receiver *r, struct err *e)
{
	struct err ignored = { 0 };

	/* It must not run, whatever it has read. */
	qmp_call(r->qmp, "quit", NULL, NULL, &ignored);
	return err_set(e, GW_DEVICE_STATE, EINVAL,
		       "the destination QEMU refused the device state: it must have the same machine type and devices as the source (its log says what it did not like)");
}

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

static int on_device(struct receiver *r, const struct wire_header *h, struct err *e)
{
	static uint8_t buf[WIRE_DEVICE_MAX];
	int ret = channel_body(r->ch, buf, h->length, e);

	if (ret)
		return ret;
	if (sock_send(r->migration.stream, buf, h->length, deadline_ms(r->o->timeout_ms)))
		return refuse_device_state(r, e);
	r->state_came = r->committed;
	return 0;
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
	r->last = h->flags & WIRE_ROUND_LAST;
	return ret ? ret : receiver_send(r, WIRE_ACK, h->arg, e);
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
	case WIRE_DEVICE:
		return on_device(r, h, e);
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
		return 1;
	default:
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s out of turn", wire_type_name(h->type));
	}
}

/* QEMU has everything. RESUME, or "completed" for a guest that was paused. */
static int wait_running(struct receiver *r, uint64_t *resumed_ns, struct err *e)
{
	uint64_t deadline = deadline_ms(r->o->timeout_ms);
	struct err gone = { 0 };
	struct qmp_event ev;
	int ret;

	while ((ret = qmp_event(r->qmp, deadline, &ev, &gone)) > 0) {
		const char *st = json_string_value(json_object_get(ev.data, "status"));

		if (!strcmp(ev.name, "RESUME")) {
			*resumed_ns = ev.realtime_ns;
			return 0;
		}
		if (!strcmp(ev.name, "MIGRATION") && st && !strcmp(st, "completed")) {
			r->res->paused = true;
			*resumed_ns = ev.realtime_ns;
			return 0;
		}
		if (!strcmp(ev.name, "MIGRATION") && st && !strcmp(st, "failed"))
			return refuse_device_state(r, e);
	}
	if (ret < 0)
		return refuse_device_state(r, e);
	return err_set(e, GW_UNKNOWN, ETIMEDOUT, "the destination QEMU has all of the device state and says neither RESUME nor failed: look at both ends");
}

static int finish(struct receiver *r, struct err *e)
{
	struct wire_header h = { .type = WIRE_RESUMED, .length = 8 };
	struct err lost = { 0 };
	uint64_t resumed_ns = 0;
	uint8_t body[8];
	int ret;

	/* The sender cannot take it back any more, so neither can we. */
	stop_ignore();
	r->handed_over = true;
	migration_hang_up(&r->migration);
	ret = wait_running(r, &resumed_ns, e);
	if (ret)
		return ret;
	wire_put_u64(body, resumed_ns);
	if (channel_send(r->ch, &h, body, &lost))
		fprintf(stderr, "godwit: the guest runs here, but the sender could not be told: %s\n", lost.text);
	return 0;
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

/*
 * The connection broke behind COMMIT, or an operator ends the receiver there, and DEVICE_END did not come. Either QEMU lacks some of the device state and ends, or it
 * has had all it needs: the sender is behind its commit point then, and the guest runs here and nowhere else.
 */
static int finish_without_end(struct receiver *r, struct err *e)
{
	struct err why = { 0 };
	int ret = finish(r, &why);

	if (!ret || why.exit == GW_UNKNOWN)
		*e = why;
	return ret;
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
	if (ret < 0 && r->state_came && (e->exit == GW_LINK_LOST || e->exit == GW_TIMEOUT || e->exit == GW_CANCELLED))
		return finish_without_end(r, e);
	return ret == 1 ? finish(r, e) : ret;
}

int receiver_run(const struct receiver_options *o, struct receiver_result *res, struct err *e)
{
	struct receiver r = {
		.o = o, .res = res, .lfd = -1, .vm = { .pidfd = -1, .vm_fd = -1 }, .migration = { .stream = -1 },
	};
	struct place_count count = { 0, 0 };
	int ret;

	ret = qmp_open(o->qmp_path, o->timeout_ms, &r.qmp, e);
	if (!ret)
		ret = migration_check(&r.migration, r.qmp, true, 0, e);
	if (!ret)
		ret = vm_find(r.qmp, o->pid, VM_WRITE, &r.vm, e);
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
	if (ret && r.ch && e->exit != GW_UNKNOWN)
		channel_abort(r.ch, e);
	channel_free(r.ch);
	lanes_free(r.lanes);
	if (r.lfd >= 0)
		close(r.lfd);
	if (!ret || !r.handed_over)
		migration_restore(&r.migration);
	private_free(&r.private);
	place_close(&r.place);
	migration_free(&r.migration);
	vm_close(&r.vm);
	qmp_close(r.qmp);
	return ret;
}
