// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/godwit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/say.h"
#include "claim/owners.h"
#include "kernel/device.h"
#include "net/sock.h"
#include "peer/owed_frames.h"
#include "peer/postcopy_ask.h"
#include "proc/proc_io.h"
#include "receive/postcopy_internal.h"
#include "receive/receiver_internal.h"
#include "receive/requests.h"
#include "txn/mark.h"

void postcopy_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/*
 * A vhost-user backend maps the RAM when the guest begins to run: after our last look. The text of
 * networks is the shorter one, and names most of them.
 */
static int postcopy_check_backends(struct qmp *q, struct err *e)
{
	static const char *const lines[] = { "info network", "info qtree" };
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

static int postcopy_maps(const struct receiver *r, struct guest_maps *maps, struct err *e)
{
	char proc[32];

	snprintf(proc, sizeof(proc), "/proc/%d", (int)r->vm.pid);
	return guest_maps_find(proc, &r->vm, true, maps, e);
}

static int postcopy_open(struct receiver *r, struct err *e)
{
	struct postcopy *p = &r->postcopy;

	p->userfaultfd = device_open_userfaultfd(e);
	p->dev = p->userfaultfd < 0 ? p->userfaultfd : device_open(e);
	return p->dev < 0 ? p->dev : 0;
}

int postcopy_keep(struct receiver *r, const uint8_t token[WIRE_SECRET], bool take, struct err *e)
{
	int ret = postcopy_open(r, e);

	static_assert(WIRE_SECRET == GODWIT_TOKEN_BYTES, "a migration's token names its keep");
	if (!ret)
		ret = device_keep(r->postcopy.dev, token, take, e);
	return ret < 0 ? ret : 0;
}

/* check: a preflight check asks, so nothing begins. */
static int postcopy_prepare(struct receiver *r, bool check, struct err *e)
{
	struct guest_maps maps = { 0 };
	int ret = lazy_units(&r->vm, r->postcopy.unit, e);

	/* All of this is looked at again at SWITCHOVER, when it is too late to go on without. */
	if (!ret)
		ret = postcopy_check_backends(r->qmp, e);
	if (!ret)
		ret = owners_check("/proc", &r->vm, OWNERS_ALONE, e);
	if (!ret)
		ret = postcopy_maps(r, &maps, e);
	guest_maps_free(&maps);
	/* A receiver that takes over would not know the sender's token. */
	if (!ret && !check && r->record.fd < 0)
		ret = err_set(e, GW_NO_ROOM, EOPNOTSUPP, "the receiver cannot keep a record of this migration in %s, without which no other could take over if it is killed: the receiver says why, when it begins",
			      record_dir());
	if (!ret)
		ret = check ? postcopy_open(r, e) : postcopy_keep(r, r->token, false, e);
	return ret;
}

int postcopy_reply(struct receiver *r, const struct wire_header *h, bool check, struct err *e)
{
	struct err why = { 0 };

	if (!(r->features & WIRE_POSTCOPY) || h->arg || r->postcopy.agreed)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent POSTCOPY at the wrong time");
	r->postcopy.agreed = !postcopy_prepare(r, check, &why) && !check;
	if (!r->postcopy.agreed)
		postcopy_end(r);
	return postcopy_answer(r->ch, r->postcopy.unit, r->vm.nblocks, &why, e);
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

int postcopy_register(struct receiver *r, struct err *e)
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
	/* An older module has added it. */
	if (p->taken && !kept)
		return err_set(e, GW_NO_MIGRATION, ENOENT, "godwit.ko keeps page faults, but not those of this QEMU");
	ret = postcopy_maps(r, &maps, e);
	if (!ret)
		ret = lazy_add(&p->lazy, p->uffd, &maps, e);
	guest_maps_free(&maps);
	return ret;
}

/*
 * Punches out what is owed, or will be, and not a hole already. What streams wrote is in place, as
 * ROUND, or the last of them, came before on the control connection.
 */
static int postcopy_punch(struct receiver *r, const struct owed *what, struct err *e)
{
	uint64_t *placed[WIRE_BLOCKS_MAX];
	const struct lazy_punch p = {
		.what = what, .placed = placed, .alive = receiver_alive_anyway, .arg = r,
	};

	/* In a mapped block zeros may take a huge page, and leave no bit. */
	for (unsigned int i = 0; i < r->vm.nblocks; i++)
		placed[i] = r->writer.base[i] ? NULL : r->writer.placed[i];
	return lazy_punch(&r->postcopy.lazy, &p, e);
}

/*
 * These pages are dirty at the source, so worth nothing here: they come again in a round, or are
 * owed. Each that is a hole by then costs the downtime nothing.
 */
int postcopy_early(struct receiver *r, const struct wire_header *h, struct err *e)
{
	struct postcopy *p = &r->postcopy;
	int ret = 0;

	if (!(r->features & WIRE_EARLY) || !p->announced || r->state != RECEIVER_SWITCHES)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent OWED at the wrong time");
	if (!p->early.blocks)
		ret = owed_init(&p->early, r->writer.pages, p->unit, r->vm.nblocks, e);
	return ret ? ret : owed_frame_receive(&p->early, r->ch, h, e);
}

static int postcopy_punch_early(struct receiver *r, struct err *e)
{
	struct owed *early = &r->postcopy.early;
	int ret = early->blocks ? postcopy_punch(r, early, e) : 0;

	owed_free(early);
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
	/* After a loss of the link, and after each early OWED, the sender says it again. */
	if (!ret && p->announced)
		return postcopy_punch_early(r, e);
	if (ret)
		return ret;
	p->announced = true;
	ret = postcopy_register(r, e);
	if (!ret)
		atomic_store(&p->ready, true);
	return ret;
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

int postcopy_serve(struct receiver *r, struct err *e)
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

int postcopy_begin(struct receiver *r, struct err *e)
{
	struct postcopy *p = &r->postcopy;
	int ret = postcopy_check_maps(r, e);

	if (!ret)
		ret = postcopy_punch(r, &p->lazy.owed, e);
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

bool postcopy_unmark(struct receiver *r)
{
	char token[MARK_TOKEN + 1];
	struct err failed = { 0 };

	postcopy_token(r, token);
	if (r->qmp)
		mark_remove(r->qmp, token, &failed);
	else
		err_set(&failed, GW_TIMEOUT, ETIMEDOUT, "its monitor does not answer");
	if (failed.exit && failed.exit != GW_VM_GONE)
		say("QEMU keeps the object \"" MARK_ID "\" (%s): \"godwit resolve --forget\" removes it",
			failed.text);
	/* A monitor that cannot be reached may be that of a process about to end. */
	return r->qmp && failed.exit != GW_VM_GONE;
}

bool postcopy_lacks_ram(const struct receiver *r)
{
	const struct postcopy *p = &r->postcopy;

	if (!p->begun || r->whole || r->commit == COMMIT_PREPARED || r->commit == COMMIT_DEAD)
		return false;
	return (p->taken && !atomic_load(&p->ready)) || atomic_load(&p->lazy.owed.left);
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
	owed_free(&p->early);
	postcopy_connection(r, -1, NULL);
	postcopy_close(&p->uffd);
	postcopy_close(&p->mem);
	postcopy_close(&p->dev);
	postcopy_close(&p->userfaultfd);
	p->agreed = p->announced = p->begun = p->taken = false;
	atomic_store(&p->stop, false);
}
