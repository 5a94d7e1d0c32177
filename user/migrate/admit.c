// SPDX-License-Identifier: GPL-2.0-only
/* Who may send: the first one that connects and does not only ask, over the connections that know the secret. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "claim/owners.h"
#include "claim/own_ram.h"
#include "fit/fit.h"
#include "io/sock.h"
#include "io/stop.h"
#include "migrate/hello.h"
#include "migrate/receiver_internal.h"
#include "vmm/mtree.h"

#define GREETING_MS	5000u
#define VIEWS_MAX	3u	/* at a glance, in brief, and if that does not do, with all features */

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

/*
 * QEMU's own migration compares these itself; a device state that was saved does not have them, and blocks of one size
 * that were swapped would be a guest whose RAM is in the wrong places. Sorted like theirs.
 */
static int same_addresses(const struct vm *vm, const struct wire_block *theirs, struct err *e)
{
	for (unsigned int i = 0; i < vm->nblocks; i++) {
		const struct ram_block *b = &vm->blocks[i];

		if (b->address != theirs[i].address && b->address != WIRE_NO_ADDRESS && theirs[i].address != WIRE_NO_ADDRESS)
			return err_set(e, GW_RAM_DIFFERS, EINVAL, "RAM block \"%s\" begins at 0x%llx of the guest at the source and at 0x%llx at the destination: give both QEMUs the same -numa and -device pc-dimm options",
				       b->name, (unsigned long long)theirs[i].address, (unsigned long long)b->address);
	}
	return 0;
}

int agree_on_ram(struct receiver *r, const struct wire_header *h, struct err *e)
{
	struct wire_block *theirs;
	int ret = hello_read_table(r->ch, h, "RAM blocks", &theirs, e);

	if (!ret && r->own)
		ret = own_ram_refuse(r->own, e);
	if (!ret)
		ret = same_ram(&r->vm, theirs, h->arg, e);
	if (!ret)
		sort_like(&r->vm, theirs);
	if (!ret && r->saved)
		ret = same_addresses(&r->vm, theirs, e);
	free(theirs);
	return ret;
}

/* What may come on the control connection before the streams have joined. */
static int while_joining(struct receiver *r, struct err *e)
{
	struct wire_header h;
	int ret = channel_recv(r->ch, &h, false, e);

	if (ret)
		return ret;
	if (h.type != WIRE_PING)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s before its streams had joined", wire_type_name(h.type));
	return receiver_pong(r, &h, e);
}

static int wait_streams(struct receiver *r, struct door *d, struct err *e)
{
	uint64_t deadline = deadline_ms(r->o->timeout_ms);
	int here;

	while (!(here = door_step(d, channel_fd(r->ch), STOP_SLICE_NS / 1000000))) {
		int ret = channel_readable(r->ch) ? while_joining(r, e) : 0;

		if (ret)
			return ret;
		if (stop_requested())
			return stop_err(e);
		if (now_ns() > deadline)
			return err_set(e, GW_TIMEOUT, ETIMEDOUT,
				       "the sender's %u streams did not all come within %u s: does every connection to %s reach this receiver?",
				       d->want, r->o->timeout_ms / 1000, r->o->listen);
	}
	return here < 0 ? err_set(e, GW_UNREACHABLE, -here, "accept: %s", strerror(-here)) : 0;
}

static int let_streams_in(struct receiver *r, struct door *d, struct err *e)
{
	struct wire_header h = { .type = WIRE_READY, .flags = r->saved ? WIRE_SAVED : 0, .arg = r->o->streams, .length = WIRE_SECRET };
	int fds[WIRE_STREAMS_MAX];
	int ret;

	ret = channel_send(r->ch, &h, d->secret, e);
	if (!ret)
		ret = channel_expect(r->ch, WIRE_STREAMS, &h, e);
	if (!ret && h.arg > r->o->streams)
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender wants %u streams, at most %u were offered", h.arg, r->o->streams);
	if (ret)
		return ret;
	d->want = h.arg;
	ret = wait_streams(r, d, e);
	if (ret)
		return ret;
	door_take(d, fds);
	for (unsigned int i = 0; i < d->want; i++)
		sock_tune(fds[i], r->o->timeout_ms);
	ret = lanes_start(&r->place, r->o->engine, r->o->timeout_ms, fds, d->want, &r->lanes, e);
	if (ret)
		return ret;
	channel_interrupt(r->ch, lanes_failed(r->lanes));
	return receiver_send(r, WIRE_STREAMS, d->want, e);
}

static int open_door(struct receiver *r, struct err *e)
{
	int loopback = sock_is_loopback(r->o->listen);

	if (loopback < 0)
		return err_set(e, GW_USAGE, EINVAL, "\"%s\" is not ADDR:PORT", r->o->listen);
	if (!loopback && !r->o->insecure)
		return err_set(e, GW_USAGE, EPERM,
			       "%s can be reached by others, and the stream is neither encrypted nor authenticated: listen on loopback and tunnel (ssh -L), or say --insecure on a network that you trust",
			       r->o->listen);
	r->lfd = r->o->listen_fd >= 0 ? r->o->listen_fd : sock_tcp_listen(r->o->listen);
	if (r->lfd < 0)
		return err_set(e, GW_UNREACHABLE, -r->lfd, "cannot listen on %s: %s", r->o->listen, strerror(-r->lfd));
	printf("godwit: listening on %s\n", r->o->listen);
	fflush(stdout);
	return 0;
}

/* One who connects and says nothing keeps others out meanwhile. */
static unsigned int short_patience(const struct receiver *r)
{
	return r->o->timeout_ms < GREETING_MS ? r->o->timeout_ms : GREETING_MS;
}

/* Until somebody comes, or until then. */
static int wait_for_anybody(struct receiver *r, uint64_t until_ns, struct err *e)
{
	int fd = -EAGAIN;

	while (fd == -EAGAIN) {
		/* A QEMU that ends when its guest has arrived, or was refused, is no reason not to say so. */
		struct pollfd p[] = { { .fd = r->lfd, .events = POLLIN }, { .fd = until_ns ? -1 : r->vm.pidfd, .events = POLLIN } };

		poll(p, 2, STOP_SLICE_NS / 1000000);
		if (until_ns && now_ns() > until_ns)
			return -ETIMEDOUT;
		if (stop_requested())
			fd = stop_err(e);
		else if (p[1].revents)
			fd = err_set(e, GW_VM_GONE, ESRCH, "the destination QEMU has exited");
		else if (p[0].revents)
			fd = sock_accept(r->lfd);
	}
	if (fd < 0)
		return err_set(e, GW_UNREACHABLE, -fd, "accept: %s", strerror(-fd));
	sock_tune(fd, r->o->timeout_ms);
	return channel_new(fd, r->o->engine, short_patience(r), &r->ch, e);
}

/* Could what it saves of the device state be loaded here? If not, it knows another way, or gives up. */
static int hear_private(struct receiver *r, const struct wire_header *h, struct err *e)
{
	struct err why = { 0 };
	int ret;

	/* Not the first one who asks. */
	private_free(&r->private);
	ret = private_find(r->qmp, &r->vm, &r->private, &why);

	if (ret)
		r->private.told = false;
	ret = devram_compare(r->ch, h, &r->private, &r->saved, &why, e);
	if (!ret && r->saved)
		ret = mtree_query(r->qmp, &r->vm, e);
	if (!ret && r->saved)
		r->saved = !mtree_check(&r->vm, &why);
	if (!ret && !r->saved)
		printf("godwit: a device state that was saved cannot be loaded: %s\n", why.text);
	fflush(stdout);
	return ret;
}

static void hang_up_on(struct receiver *r, const struct err *why)
{
	/* Its own last words: the guest does not fit here, or the operator has thought better of it. */
	bool gave_up = channel_aborted(r->ch);

	channel_abort(r->ch, why);
	channel_free(r->ch);
	r->ch = NULL;
	printf("godwit: %s: %s\n", gave_up ? "a sender gave up before it began" : "who came was no sender", why->text);
	fflush(stdout);
}

static int exchange_hello(struct receiver *r, struct wire_header *h, struct err *e)
{
	uint64_t features = 0;
	int ret = hello_exchange(r->ch, &features, e);

	r->verdicts = features & WIRE_VERDICTS;
	return ret ? ret : channel_recv(r->ch, h, false, e);
}

/*
 * One who says HELLO as we do, and what else. Others, a scan of ports or a godwit of another version, have changed nothing,
 * and a guest may be on its way: they are hung up on. What they say is theirs: an ABORT, "cancelled" even, ends nothing here.
 */
int receiver_greet(struct receiver *r, struct wire_header *h, uint64_t until_ns, struct err *e)
{
	for (;;) {
		struct err why = { 0 };
		int ret = wait_for_anybody(r, until_ns, e);

		if (!ret)
			ret = exchange_hello(r, h, &why);
		else
			return ret;
		if (!ret)
			return 0;
		if (stop_requested())
			return stop_err(e);
		hang_up_on(r, &why);
	}
}

/* What it came for: BLOCKS or CHECK, which ASK_VIEW, RAM_FILES and PRIVATE_BLOCKS may precede. */
static int hear_out(struct receiver *r, struct wire_header *h, struct err *e)
{
	int ret = 0;

	r->saved = false;
	r->own = NULL;
	for (unsigned int asked = 0; !ret && asked < VIEWS_MAX && h->type == WIRE_ASK_VIEW; asked++) {
		/* The sender looks at its QEMU meanwhile, and afterwards compares. */
		channel_set_timeout(r->ch, r->o->timeout_ms);
		ret = fit_answer(r->ch, r->qmp, &r->vm, h->flags, e);
		if (!ret)
			ret = channel_recv(r->ch, h, false, e);
	}
	if (ret)
		return ret;
	if (h->type == WIRE_RAM_FILES) {
		ret = own_ram_receive(r->ch, h, &r->vm, &r->own, e);
		if (!ret)
			ret = channel_recv(r->ch, h, false, e);
	}
	if (ret)
		return ret;
	if (h->type == WIRE_PRIVATE_BLOCKS) {
		ret = hear_private(r, h, e);
		if (!ret)
			ret = channel_recv(r->ch, h, false, e);
	}
	if (!ret && h->type != WIRE_BLOCKS && h->type != WIRE_CHECK && h->type != WIRE_ASK)
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s after HELLO", wire_type_name(h->type));
	return ret;
}

/* Until somebody wants to migrate: *h is BLOCKS. Whoever only asks is answered. */
static int wait_for_sender(struct receiver *r, struct wire_header *h, struct err *e)
{
	int ret;

	while (!(ret = receiver_greet(r, h, 0, e))) {
		struct err why = { 0 };

		if (hear_out(r, h, &why)) {
			if (stop_requested())
				return stop_err(e);
			hang_up_on(r, &why);
		} else if (h->type == WIRE_CHECK) {
			answer_check(r, h);
		} else if (h->type == WIRE_ASK) {
			verdict_reply(r);
		} else {
			channel_set_timeout(r->ch, r->o->timeout_ms);
			break;
		}
	}
	return ret;
}

int admit_sender(struct receiver *r, struct err *e)
{
	struct wire_header h;
	int ret = open_door(r, e);

	if (!ret)
		ret = wait_for_sender(r, &h, e);
	return ret ? ret : agree_on_ram(r, &h, e);
}

int admit_streams(struct receiver *r, struct err *e)
{
	struct door d;
	int ret;

	/*
	 * From here on RAM is written. Since the first look another VMM may have been started, and QEMU may have got a guest by a
	 * migration of its own.
	 */
	ret = owners_check("/proc", &r->vm, OWNERS_DESTINATION, e);
	if (!ret)
		ret = migration_check_waits(r->qmp, e);
	if (!ret)
		ret = place_open(&r->place, &r->vm, e);
	if (!ret)
		ret = migration_plan(&r->migration, true, r->saved, 0, e);
	if (!ret)
		ret = migration_configure(&r->migration, e);
	if (!ret)
		ret = migration_start(&r->migration, true, e);
	if (ret)
		return ret;
	ret = door_init(&d, r->lfd);
	if (ret)
		return err_set(e, GW_INTERNAL, -ret, "no random numbers: %s", strerror(-ret));
	memcpy(r->token, d.secret, sizeof(r->token));
	verdict_open(r);
	ret = let_streams_in(r, &d, e);
	door_close(&d);
	/* Who comes later hears that nobody listens; but a socket that was passed is somebody else's as well. */
	r->mute = r->o->listen_fd < 0 && !shutdown(r->lfd, SHUT_RD);
	return ret;
}
