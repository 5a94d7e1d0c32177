// SPDX-License-Identifier: GPL-2.0-only
/*
 * The destination: a loop over frames. What may come when is in wire.h.
 *
 * The destination QEMU waits with an empty guest. It runs it only when it has read the whole device state, so a
 * migration that breaks before that is ended by closing its stream: QEMU then gives up by itself.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/channel.h"
#include "io/sock.h"
#include "io/stop.h"
#include "migrate/place.h"
#include "migrate/receiver.h"
#include "migrate/verify.h"
#include "vmm/migration.h"

struct receiver {
	const struct receiver_options *o;
	struct receiver_result *res;
	struct qmp *qmp;
	struct vm vm;
	struct migration migration;
	struct placement place;
	struct verify_result verify;
	struct channel *ch;
	bool committed;		/* no RAM is written any more */
	bool handed_over;	/* QEMU has been given all */
};

static int refuse_device_state(struct receiver *r, struct err *e)
{
	struct err ignored = { 0 };

	/* It must not run, whatever it has read. */
	qmp_call(r->qmp, "quit", NULL, NULL, &ignored);
	return err_set(e, GW_DEVICE_STATE, EINVAL,
		       "the destination QEMU refused the device state: it must have the same machine type and devices as the source (its log says what it did not like)");
}

static int send_simple(struct receiver *r, enum wire_type type, uint32_t arg, struct err *e)
{
	struct wire_header h = { .type = (uint16_t)type, .arg = arg };

	return channel_send(r->ch, &h, NULL, e);
}

static int accept_sender(struct receiver *r, struct err *e)
{
	int loopback = sock_is_loopback(r->o->listen), lfd, fd = -EAGAIN;

	if (loopback < 0)
		return err_set(e, GW_USAGE, EINVAL, "\"%s\" is not ADDR:PORT", r->o->listen);
	if (!loopback && !r->o->insecure)
		return err_set(e, GW_USAGE, EPERM,
			       "%s can be reached by others, and the stream is neither encrypted nor authenticated: listen on loopback and tunnel (ssh -L), or say --insecure on a network that you trust",
			       r->o->listen);
	lfd = sock_tcp_listen(r->o->listen);
	if (lfd < 0)
		return err_set(e, GW_UNREACHABLE, -lfd, "cannot listen on %s: %s", r->o->listen, strerror(-lfd));
	printf("godwit: listening on %s\n", r->o->listen);
	fflush(stdout);
	while (fd == -EAGAIN) {
		struct pollfd p[] = { { .fd = lfd, .events = POLLIN }, { .fd = r->vm.pidfd, .events = POLLIN } };

		poll(p, 2, STOP_SLICE_NS / 1000000);
		if (stop_requested())
			fd = err_set(e, GW_CANCELLED, EINTR, "cancelled by a signal");
		else if (p[1].revents)
			fd = err_set(e, GW_VM_GONE, ESRCH, "the destination QEMU has exited");
		else if (p[0].revents)
			fd = sock_accept(lfd);
	}
	close(lfd);
	if (fd < 0)
		return err_set(e, GW_UNREACHABLE, -fd, "accept: %s", strerror(-fd));
	sock_tune(fd, r->o->timeout_ms);
	return channel_new(fd, r->o->timeout_ms, &r->ch, e);
}

static int same_ram(const struct vm *vm, const struct wire_block *theirs, unsigned int n, struct err *e)
{
	if (n != vm->nblocks)
		return err_set(e, GW_RAM_DIFFERS, EINVAL, "the source has %u RAM blocks and the destination %u: give both QEMUs the same -object memory-backend-file and -numa or -device pc-dimm options",
			       n, vm->nblocks);
	for (unsigned int i = 0; i < n; i++) {
		const struct ram_block *b = NULL;

		for (unsigned int j = 0; j < n && !b; j++)
			if (!strcmp(vm->blocks[j].name, theirs[i].name))
				b = &vm->blocks[j];
		if (!b)
			return err_set(e, GW_RAM_DIFFERS, EINVAL, "the source has a RAM block \"%s\" and the destination has none of that name: use the same id= at both ends",
				       theirs[i].name);
		if (b->pages != theirs[i].pages)
			return err_set(e, GW_RAM_DIFFERS, EINVAL, "RAM block \"%s\" has %llu MiB at the source and %llu MiB at the destination: use the same size= at both ends",
				       b->name, (unsigned long long)(theirs[i].pages >> 8), (unsigned long long)(b->pages >> 8));
	}
	return 0;
}

/* The wire numbers blocks as the sender does: so do we from here on. */
static void sort_like(struct vm *vm, const struct wire_block *theirs)
{
	for (unsigned int i = 0; i < vm->nblocks; i++)
		for (unsigned int j = i; j < vm->nblocks; j++)
			if (!strcmp(vm->blocks[j].name, theirs[i].name)) {
				struct ram_block b = vm->blocks[i];

				vm->blocks[i] = vm->blocks[j];
				vm->blocks[j] = b;
			}
}

static int agree_on_ram(struct receiver *r, struct err *e)
{
	struct wire_block *theirs = calloc(WIRE_BLOCKS_MAX, sizeof(*theirs));
	struct wire_header h;
	uint8_t *body = NULL;
	int ret;

	ret = channel_expect(r->ch, WIRE_BLOCKS, &h, e);
	if (!ret) {
		body = malloc(h.length);
		ret = body && theirs ? channel_body(r->ch, body, h.length, e) : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	if (!ret && wire_get_blocks(body, h.length, theirs, h.arg))
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender's list of RAM blocks makes no sense");
	if (!ret)
		ret = same_ram(&r->vm, theirs, h.arg, e);
	if (!ret)
		sort_like(&r->vm, theirs);
	free(body);
	free(theirs);
	return ret;
}

static int greet(struct receiver *r, struct err *e)
{
	struct wire_header h;
	int ret;

	/* Ours first: a sender of another version can then say what it thinks of it. */
	ret = send_simple(r, WIRE_HELLO, WIRE_VERSION, e);
	if (!ret)
		ret = channel_expect(r->ch, WIRE_HELLO, &h, e);
	if (!ret)
		ret = agree_on_ram(r, e);
	if (!ret)
		ret = place_open(&r->place, &r->vm, e);
	if (!ret)
		ret = migration_configure(&r->migration, e);
	if (!ret)
		ret = migration_start(&r->migration, true, e);
	return ret ? ret : send_simple(r, WIRE_READY, 0, e);
}

static int on_ping(struct receiver *r, const struct wire_header *h, struct err *e)
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
	return 0;
}

static int on_round(struct receiver *r, const struct wire_header *h, struct err *e)
{
	struct qmp_event ev;
	int ret;

	/* A QEMU that has exited is noticed here, not in the blackout. */
	while ((ret = qmp_event(r->qmp, 0, &ev, e)) > 0)
		;
	r->res->rounds = h->arg;
	return ret ? ret : send_simple(r, WIRE_ACK, h->arg, e);
}

/* One frame. 1: that was DEVICE_END. */
static int on_frame(struct receiver *r, const struct wire_header *h, struct err *e)
{
	if (r->committed && h->type != WIRE_DEVICE && h->type != WIRE_DEVICE_END && h->type != WIRE_PING)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s after COMMIT", wire_type_name(h->type));
	switch (h->type) {
	case WIRE_RAM:
		return place_frame(&r->place, r->ch, h, e);
	case WIRE_ROUND:
		return on_round(r, h, e);
	case WIRE_PING:
		return on_ping(r, h, e);
	case WIRE_DEVICE:
		return on_device(r, h, e);
	case WIRE_VERIFY:
		return verify_frame(&r->vm, r->ch, h, r->place.pages, &r->verify, e);
	case WIRE_VERIFY_END:
		return verify_answer(r->ch, &r->verify, e);
	case WIRE_COMMIT:
		r->committed = true;
		return 0;
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

static int serve(struct receiver *r, struct err *e)
{
	struct wire_header h;
	int ret = greet(r, e);

	while (!ret) {
		ret = channel_recv(r->ch, &h, false, e);
		if (!ret)
			ret = on_frame(r, &h, e);
	}
	return ret == 1 ? finish(r, e) : ret;
}

int receiver_run(const struct receiver_options *o, struct receiver_result *res, struct err *e)
{
	struct receiver r = { .o = o, .res = res, .vm = { .pidfd = -1, .vm_fd = -1 }, .migration = { .stream = -1 } };
	int ret;

	ret = qmp_open(o->qmp_path, o->timeout_ms, &r.qmp, e);
	if (!ret)
		ret = migration_check(&r.migration, r.qmp, true, 0, e);
	if (!ret)
		ret = vm_find(r.qmp, o->pid, VM_WRITE, &r.vm, e);
	if (!ret)
		ret = accept_sender(&r, e);
	if (!ret)
		ret = serve(&r, e);
	res->data_pages = r.place.data_pages;
	res->zero_pages = r.place.zero_pages;
	/* First QEMU's stream, so that it gives up; then the sender may hear that it did. */
	migration_hang_up(&r.migration);
	if (ret && r.ch && e->exit != GW_UNKNOWN)
		channel_abort(r.ch, e);
	channel_free(r.ch);
	if (!ret || !r.handed_over)
		migration_restore(&r.migration);
	place_close(&r.place);
	migration_free(&r.migration);
	vm_close(&r.vm);
	qmp_close(r.qmp);
	return ret;
}
