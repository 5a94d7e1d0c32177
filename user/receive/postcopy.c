// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/godwit.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "claim/owners.h"
#include "kernel/device.h"
#include "net/sock.h"
#include "peer/owed_frames.h"
#include "proc/proc_io.h"
#include "receive/receiver_internal.h"
#include "receive/requests.h"
#include "txn/mark.h"

#define ALIVE_NS	1000000000ull	/* between two PONGs */

static void close_file(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* A vhost-user backend maps the RAM when the guest begins to run: after our last look. */
static int postcopy_check_backends(struct qmp *q, struct err *e)
{
	static const char *const lines[] = { "info qtree", "info network" };
	int r = 0;

	for (unsigned int i = 0; i < sizeof(lines) / sizeof(lines[0]) && !r; i++) {
		char *text = NULL;

		r = qmp_monitor(q, lines[i], &text, e);
		if (!r && !text)
			r = err_set(e, GW_QMP, EINVAL, "the destination QEMU does not answer \"%s\": migrate without post-copy",
				    lines[i]);
		if (!r && (strstr(text, "vhost-user") || strstr(text, "x-pci-proxy-dev")))
			r = err_set(e, GW_VM_STATE, EOPNOTSUPP,
				    "the destination QEMU has a vhost-user device, whose backend would read pages before they came: unplug that device, or migrate without post-copy");
		free(text);
	}
	return r;
}

static int postcopy_keep(struct receiver *r, const uint8_t token[WIRE_SECRET], bool take,
			 struct err *e)
{
	struct postcopy *p = &r->postcopy;
	int ret;

	p->userfaultfd = device_open_userfaultfd(e);
	p->dev = p->userfaultfd < 0 ? p->userfaultfd : device_open(e);
	if (p->dev < 0)
		return p->dev;
	static_assert(WIRE_SECRET == GODWIT_TOKEN_BYTES, "a migration's token names its keep");
	ret = device_keep(p->dev, token, take, e);
	return ret < 0 ? ret : 0;
}

static int postcopy_prepare(struct receiver *r, struct err *e)
{
	int ret = lazy_units(&r->vm, r->postcopy.unit, e);

	if (!ret)
		ret = postcopy_check_backends(r->qmp, e);
	return ret ? ret : postcopy_keep(r, r->token, false, e);
}

int postcopy_reply(struct receiver *r, const struct wire_header *h, struct err *e)
{
	struct wire_header answer = {
		.type = WIRE_POSTCOPY_ASK, .arg = r->vm.nblocks,
		.length = r->vm.nblocks * WIRE_UNIT,
	};
	uint8_t body[WIRE_BLOCKS_MAX * WIRE_UNIT];
	struct err why = { 0 };

	if (!(r->features & WIRE_POSTCOPY) || h->arg || r->postcopy.agreed)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent POSTCOPY at the wrong time");
	if (postcopy_prepare(r, &why)) {
		postcopy_end(r);
		answer = (struct wire_header) {
			.type = WIRE_CANNOT, .arg = why.exit, .length = (uint32_t)strlen(why.text),
		};
		if (answer.length > WIRE_TEXT_MAX)
			answer.length = WIRE_TEXT_MAX;
		return channel_send(r->ch, &answer, why.text, e);
	}
	r->postcopy.agreed = true;
	wire_put_units(body, r->postcopy.unit, r->vm.nblocks);
	return channel_send(r->ch, &answer, body, e);
}

void postcopy_connection(struct receiver *r, int fd, struct tls *tls)
{
	struct postcopy *p = &r->postcopy;

	tls_free(p->tls);
	if (p->fd >= 0)
		close(p->fd);
	p->fd = fd;
	p->tls = tls;
}

static int postcopy_maps(const struct receiver *r, struct guest_maps *maps, struct err *e)
{
	char proc[32];

	snprintf(proc, sizeof(proc), "/proc/%d", (int)r->vm.pid);
	return guest_maps_find(proc, &r->vm, true, maps, e);
}

/* The number is QEMU's as long as its pidfd says that it lives, so the check comes behind. */
static int postcopy_open_mem(struct receiver *r, struct err *e)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)r->vm.pid);
	r->postcopy.mem = open(path, O_RDWR | O_CLOEXEC);
	if (r->postcopy.mem < 0)
		return proc_failed(path, errno, e);
	if (proc_ended(r->vm.pidfd))
		return err_set(e, GW_VM_GONE, ESRCH, "the destination QEMU has exited");
	return 0;
}

/* All mappings of the RAM, QEMU's and our own. */
static int postcopy_register(struct receiver *r, struct err *e)
{
	struct postcopy *p = &r->postcopy;
	struct guest_maps maps = { 0 };
	bool kept = false;
	int ret = lazy_open(&p->lazy, &r->vm, p->unit, e);

	p->lazy.stop = &p->stop;
	p->lazy.taken_over = p->taken;
	if (!ret)
		ret = postcopy_open_mem(r, e);
	if (ret)
		return ret;
	p->uffd = device_uffd(p->dev, p->mem, p->userfaultfd, &kept, e);
	if (p->uffd < 0)
		return p->uffd;
	if (p->taken && !kept)
		return err_set(e, GW_INTERNAL, ENOENT, "godwit.ko keeps page faults, but not those of this QEMU");
	ret = postcopy_maps(r, &maps, e);
	if (!ret)
		ret = lazy_add(&p->lazy, p->uffd, &maps, e);
	guest_maps_free(&maps);
	return ret;
}

int postcopy_announced(struct receiver *r, struct err *e)
{
	struct postcopy *p = &r->postcopy;
	int ret;

	if (!p->agreed)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender announces that it will owe pages, which was not agreed on");
	receive_streams_hold(r->streams);
	/* Nothing has gone over it yet, and the guest would wait for what does. */
	if (!sock_is_open(p->fd))
		return err_set(e, GW_LINK_LOST, ECONNRESET, "the connection for page faults was closed");
	/* Here, as it takes a look at every process of the host, and the guest still runs. */
	ret = owners_check("/proc", &r->vm, OWNERS_ALONE, e);
	if (!ret)
		ret = postcopy_check_backends(r->qmp, e);
	/* After a loss of the link the sender says it again. */
	if (ret || p->announced)
		return ret;
	p->announced = true;
	ret = postcopy_register(r, e);
	if (!ret)
		atomic_store(&p->ready, true);
	return ret;
}

int postcopy_take(struct receiver *r, const uint8_t token[WIRE_SECRET], struct err *e)
{
	struct postcopy *p = &r->postcopy;
	int ret = postcopy_keep(r, token, true, e);

	if (ret) {
		close_file(&p->dev);
		close_file(&p->userfaultfd);
		return ret;
	}
	p->taken = p->agreed = p->announced = p->begun = true;
	memcpy(r->token, token, sizeof(r->token));
	return 0;
}

/*
 * A hole is missing, or zero at the source, or was given back by the guest: the sender knows only
 * that its page is here, or is zero. On hugetlbfs no file shows its holes: all may be missing, and
 * what is there stays (lazy_ram.taken_over).
 */
static int postcopy_find_holes(struct receiver *r, unsigned int block, struct err *e)
{
	const struct ram_block *b = &r->vm.blocks[block];
	struct owed *owed = &r->postcopy.lazy.owed;
	uint64_t hole = 0, first = 0, count = 0;
	int ret;

	if (b->hugetlb)
		return owed_add(owed, block, 0, b->pages);
	while ((ret = ram_ops(b)->next_data(b, hole, b->pages, true, &first, &count, e)) > 0) {
		if (first > hole)
			owed_add(owed, block, hole, first - hole);
		hole = first + count;
	}
	if (!ret && hole < b->pages)
		owed_add(owed, block, hole, b->pages - hole);
	return ret;
}

static int postcopy_look(struct receiver *r, struct err *e)
{
	struct postcopy *p = &r->postcopy;
	int ret;

	for (unsigned int i = 0; i < r->vm.nblocks; i++)
		p->unit[i] = lazy_unit(&r->vm.blocks[i]);
	ret = ram_writer_take_over(&r->writer, &r->vm, e);
	if (!ret)
		ret = postcopy_register(r, e);
	for (unsigned int i = 0; i < r->vm.nblocks && !ret; i++)
		ret = postcopy_find_holes(r, i, e);
	return ret;
}

int postcopy_taken(struct receiver *r, struct err *e)
{
	struct postcopy *p = &r->postcopy;
	int ret = atomic_load(&p->ready) ? 0 : postcopy_look(r, e);

	if (ret) {
		/* The next RECOVER begins here again. What is registered stays so. */
		ram_writer_close(&r->writer);
		r->writer = (struct ram_writer) { .vm = NULL };
		lazy_close(&p->lazy);
		close_file(&p->uffd);
		close_file(&p->mem);
		return ret;
	}
	r->writer.lazy = &p->lazy;
	atomic_store(&p->ready, true);
	return 0;
}

int postcopy_owed(struct receiver *r, struct channel *ch, const struct wire_header *h,
		  struct err *e)
{
	/* The streams' threads see of the other members only what was there before this one. */
	if (!atomic_load(&r->postcopy.ready))
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent OWED before it was agreed on");
	return owed_frame_receive(&r->postcopy.lazy.owed, ch, h, e);
}

/* All that QEMU maps of the RAM is registered still. */
static int postcopy_check_maps(struct receiver *r, struct err *e)
{
	struct guest_maps now;
	int ret = postcopy_maps(r, &now, e);

	if (!ret && !guest_maps_same(&now, &r->postcopy.lazy.mm[0].maps))
		ret = err_set(e, GW_VM_STATE, EBUSY, "the destination QEMU has mapped its RAM anew in the switchover: try again");
	guest_maps_free(&now);
	return ret;
}

/* The thread that serves page faults, with the connection that has joined for it. */
static int postcopy_serve(struct receiver *r, struct err *e)
{
	struct postcopy *p = &r->postcopy;
	struct requests_options o = {
		.engine = r->o->engine, .writer = &r->writer,
		.timeout_ms = receiver_patience_ms(r), .fd = p->fd, .tls = p->tls,
	};

	p->fd = -1;
	p->tls = NULL;
	return requests_start(&o, &p->requests, e);
}

void postcopy_interrupt(struct receiver *r)
{
	struct postcopy *p = &r->postcopy;
	struct requests_count c;

	atomic_store(&p->stop, true);
	if (p->requests) {
		c = requests_count(p->requests);
		p->before.seen += c.seen;
		p->before.asked += c.asked;
		p->before.zeros += c.zeros;
	}
	requests_free(p->requests);
	p->requests = NULL;
	if (r->streams)
		receive_streams_stop(r->streams);
	postcopy_connection(r, -1, NULL);
	atomic_store(&p->stop, false);
}

int postcopy_resume(struct receiver *r, struct err *e)
{
	int ret = postcopy_serve(r, e);

	if (!ret)
		lazy_wake_all(&r->postcopy.lazy);
	return ret;
}

int postcopy_begin(struct receiver *r, struct err *e)
{
	struct postcopy *p = &r->postcopy;
	int ret = postcopy_check_maps(r, e);

	if (!ret)
		ret = lazy_punch(&p->lazy, receiver_alive, r, e);
	if (ret)
		return ret;
	p->begun = true;
	/* The streams' threads see it: they are released under their lock. */
	r->writer.lazy = &p->lazy;
	ret = postcopy_serve(r, e);
	if (!ret)
		receive_streams_release(r->streams);
	return ret;
}

int postcopy_check(struct receiver *r, struct err *e)
{
	struct postcopy *p = &r->postcopy;

	if (!p->begun || !atomic_load(&p->lazy.owed.left))
		return 0;
	if (requests_failed(p->requests, e))
		return -EIO;
	if (atomic_load(receive_streams_failed(r->streams))) {
		receive_streams_error(r->streams, e);
		return -EIO;
	}
	if (!sock_is_open(channel_fd(r->ch)))
		return err_set(e, GW_LINK_LOST, ECONNRESET, "the sender has closed the connection");
	return 0;
}

static void postcopy_token(const struct receiver *r, char token[MARK_TOKEN + 1])
{
	for (unsigned int i = 0; i < MARK_TOKEN / 2; i++)
		snprintf(token + 2 * i, 3, "%02x", r->token[i]);
}

int postcopy_mark(struct receiver *r, struct err *e)
{
	char token[MARK_TOKEN + 1];

	postcopy_token(r, token);
	return mark_make(r->qmp, token, MARK_HERE, e);
}

/* Where QEMU does not answer it stays: "godwit resolve --forget" removes it. */
static void postcopy_unmark(struct receiver *r)
{
	char token[MARK_TOKEN + 1];
	struct err failed = { 0 };

	postcopy_token(r, token);
	if (mark_remove(r->qmp, token, &failed) && failed.exit != GW_VM_GONE)
		fprintf(stderr, "godwit: QEMU keeps the object \"" MARK_ID "\" (%s): \"godwit resolve --forget\" removes it\n",
			failed.text);
}

bool postcopy_lacks_ram(const struct receiver *r)
{
	const struct postcopy *p = &r->postcopy;

	if (!p->begun || r->commit == COMMIT_PREPARED || r->commit == COMMIT_DEAD)
		return false;
	return (p->taken && !atomic_load(&p->ready)) || atomic_load(&p->lazy.owed.left);
}

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
	if (h.type == WIRE_DONE && !atomic_load(&r->postcopy.lazy.owed.left))
		return 1;
	if (h.type != WIRE_PING)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s while it owes pages",
			       wire_type_name(h.type));
	return receiver_pong(r, &h, e);
}

/* A process that is killed may wait for a fault: the module says that it is about to go. */
bool postcopy_vm_gone(const struct receiver *r, struct err *e)
{
	struct pollfd p[] = {
		{ .fd = r->postcopy.dev, .events = POLLIN },
		{ .fd = r->vm.pidfd, .events = POLLIN },
	};

	if (poll(p, 2, 0) <= 0 || !((p[0].revents & (POLLHUP | POLLERR)) || p[1].revents))
		return false;
	err_set(e, GW_VM_GONE, ESRCH, "the destination QEMU has exited before all of its RAM was there");
	return true;
}

/* 1: nothing is owed any more. */
static int postcopy_step(struct receiver *r, uint64_t *heard_ns, struct err *e)
{
	struct postcopy *p = &r->postcopy;
	struct pollfd wait = { .fd = channel_fd(r->ch), .events = POLLIN };

	if (!atomic_load(&p->lazy.owed.left))
		return 1;
	if (postcopy_vm_gone(r, e))
		return -ESRCH;
	if (requests_failed(p->requests, e))
		return -EIO;
	if (atomic_load(receive_streams_failed(r->streams))) {
		receive_streams_error(r->streams, e);
		return -EIO;
	}
	if (now_ns() - *heard_ns > receiver_patience_ms(r) * 1000000ull)
		return err_set_silent(e, "the sender says nothing any more");
	poll(&wait, 1, channel_readable(r->ch) ? 0 : STOP_SLICE_NS / 10000000);
	if (!channel_readable(r->ch))
		return 0;
	*heard_ns = now_ns();
	return postcopy_frame(r, e);
}

static int postcopy_wait(struct receiver *r, struct err *e)
{
	uint64_t heard_ns = now_ns(), next_alive_ns = 0;
	int ret = 0;

	while (!ret) {
		ret = postcopy_step(r, &heard_ns, e);
		if (ret || now_ns() < next_alive_ns)
			continue;
		next_alive_ns = now_ns() + ALIVE_NS;
		ret = receiver_alive(r, e);
	}
	return ret < 0 ? ret : 0;
}

static void postcopy_print(const struct postcopy *p)
{
	const struct requests_count c = requests_count(p->requests);

	printf("godwit: all RAM is here: %llu units came after the guest, %llu faults, %llu of them asked for, %llu zero\n",
	       (unsigned long long)atomic_load(&p->lazy.units),
	       (unsigned long long)(p->before.seen + c.seen),
	       (unsigned long long)(p->before.asked + c.asked),
	       (unsigned long long)(p->before.zeros + c.zeros));
	fflush(stdout);
}

int postcopy_finish(struct receiver *r, struct err *e)
{
	struct postcopy *p = &r->postcopy;
	struct err lost = { 0 }, cause;
	uint64_t left = atomic_load(&p->lazy.owed.left);
	int ret;

	printf("godwit: the guest runs here, and %llu units of its RAM are still to come\n",
	       (unsigned long long)left);
	fflush(stdout);
	do
		ret = postcopy_wait(r, e);
	while (ret && !recover(r, ret, e));
	left = atomic_load(&p->lazy.owed.left);
	if (!ret) {
		postcopy_print(p);
		postcopy_unmark(r);
		verdict_write(r);
		/* Whether the sender hears of it changes nothing here. */
		ret = receiver_send(r, WIRE_COMPLETE, 0, &lost);
		while (!ret)
			ret = postcopy_frame(r, &lost);
		/* Else it may have missed that. */
		r->sender = ret == 1 ? SENDER_KNOWS : SENDER_MAY_NOT_KNOW;
		/* Those that put pages in place wake faults, too: they end first. */
		receive_streams_finish(r->streams);
		postcopy_end(r);
		claim_drop(&r->claim, &r->vm);
		return 0;
	}
	cause = *e;
	e->exit = GW_OK;
	if (cause.exit == GW_VM_GONE)
		return err_set(e, cause.exit, -ret, "%.500s: the guest is lost", cause.text);
	return err_set(e, GW_INCOMPLETE, -ret,
		       "%.500s. The guest runs here and waits when it touches one of %llu units of RAM that the source still has: end neither QEMU",
		       cause.text, (unsigned long long)left);
}

void postcopy_end(struct receiver *r)
{
	struct postcopy *p = &r->postcopy;
	struct err ignored = { 0 };

	atomic_store(&p->stop, true);
	requests_free(p->requests);
	p->requests = NULL;
	/* The guest never runs here, or has all of its RAM: nothing need wait. */
	if (!postcopy_lacks_ram(r)) {
		if (p->announced)
			lazy_unregister(&p->lazy);
		if (p->dev >= 0)
			device_keep_end(p->dev, &ignored);
	}
	if (p->begun && r->commit == COMMIT_DEAD)
		postcopy_unmark(r);
	r->writer.lazy = NULL;
	atomic_store(&p->ready, false);
	if (p->announced)
		lazy_close(&p->lazy);
	postcopy_connection(r, -1, NULL);
	close_file(&p->uffd);
	close_file(&p->mem);
	close_file(&p->dev);
	close_file(&p->userfaultfd);
	p->agreed = p->announced = p->begun = p->taken = false;
	atomic_store(&p->stop, false);
}
