// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device state without a migration of QEMU's (saved.h), and its private RAM by us (devram.h):
 *
 *	first round          and all of the private RAM, while the guest runs
 *	stop                 its answer comes when disk I/O is drained: nobody writes RAM any more
 *	last harvest         and what has changed of the private RAM
 *	xen-save-devices-state
 *
 * QEMU's migration goes through all RAM, shared or not: 75 us for each GiB in the blackout and 135 us before it, with its
 * big lock held. Comparing the private RAM takes some 4 ms. And since 8.1 it leaves no memfd out of its stream.
 */
#include <errno.h>
#include <string.h>

#include "io/sock.h"
#include "io/stop.h"
#include "migrate/sender_internal.h"

/* From here on 4 ms are less. */
#define LARGE_PAGES	((128ull << 30) / WIRE_PAGE)

int sender_way(const char *text, enum sender_way *way, struct err *e)
{
	static const char *const names[] = { [WAY_AUTO] = "auto", [WAY_MIGRATE] = "migrate", [WAY_SAVE] = "save" };

	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(text, names[i])) {
			*way = (enum sender_way)i;
			return 0;
		}
	return err_set(e, GW_USAGE, EINVAL, "--device-state is auto, migrate or save, not \"%s\"", text);
}

static const struct ram_block *a_memfd(const struct vm *vm)
{
	for (unsigned int i = 0; i < vm->nblocks; i++)
		if (vm->blocks[i].memfd)
			return &vm->blocks[i];
	return NULL;
}

/*
 * Could blocks be swapped at the destination, and nobody notice? QEMU's migration compares their addresses in the guest, a
 * saved device state does not have them.
 */
static bool alike(const struct vm *vm)
{
	for (unsigned int i = 0; i < vm->nblocks; i++)
		for (unsigned int j = 0; j < i; j++)
			if (vm->blocks[i].pages == vm->blocks[j].pages)
				return true;
	return false;
}

static int refuse_memfd(const struct ram_block *memfd, const char *why, struct err *e)
{
	return err_set(e, GW_RAM_PRIVATE, EINVAL,
		       "RAM \"%s\" is a memfd, which this QEMU does not leave out of its own migration, and %s; or use memory-backend-file",
		       memfd->name, why);
}

/* Nothing but saving will do; can it be done? r, why: what private_find() said. */
static int check_save(struct sender *s, const struct ram_block *memfd, int r, const struct err *why, struct err *e)
{
	if (memfd && s->o->way == WAY_MIGRATE)
		return refuse_memfd(memfd, "--device-state migrate forbids the other way", e);
	if (r) {
		*e = *why;
		return r;
	}
	/* To fail with disks that it has given up once already makes a QEMU before 10.0 abort; only cont takes them back. */
	if (!s->migration.was_running && qmp_version(s->qmp) < 100000)
		return err_set(e, GW_VM_STATE, EINVAL,
			       "the source VM is paused, and before version 10.0 QEMU cannot save the device state of one safely: let it run (cont), or use memory-backend-file and --device-state migrate");
	return 0;
}

int way_offer(struct sender *s, struct err *e)
{
	const struct ram_block *memfd = a_memfd(&s->vm);
	bool save = s->o->way == WAY_SAVE;
	struct err why = { 0 };
	int r;

	/* The list is asked for only where it could matter. */
	if (!save && !memfd && (s->o->way == WAY_MIGRATE || s->report->total_pages < LARGE_PAGES || alike(&s->vm)))
		return 0;
	r = private_find(s->qmp, &s->vm, &s->devram.ram, &why);
	if (!r && !s->devram.ram.told) {
		if (save)
			return err_set(e, GW_QMP, EOPNOTSUPP,
				       "this QEMU does not say where its private RAM is: version 8.0 or newer is needed for --device-state save");
		if (memfd && qmp_version(s->qmp) >= 80100)
			return refuse_memfd(memfd, "it does not say where its private RAM is (x-query-ramblock)", e);
		return 0;	/* so old that it leaves a memfd out of its migration */
	}
	s->must_save = save || memfd;
	if (s->must_save)
		r = check_save(s, memfd, r, &why, e);
	else if (r || !s->migration.was_running)
		return 0;
	return r ? r : devram_offer(&s->devram, s->ch, e);
}

int way_agreed(struct sender *s, bool saved, struct err *e)
{
	if (saved && !s->devram.ram.n)
		return err_set(e, GW_BAD_PEER, EPROTO, "the other side agrees to what was not offered");
	if (!saved && s->must_save)
		return err_set(e, GW_RAM_DIFFERS, EINVAL,
			       "the destination cannot take a device state that was saved: its godwit says why; it must be the same QEMU with the same devices, or use memory-backend-file at both ends%s",
			       s->o->way == WAY_SAVE ? " and --device-state auto" : "");
	if (!saved)
		return 0;
	s->way = &way_save;
	s->report->saved = true;
	s->migration.saved = true;
	return saved_open(&s->saved, s->qmp, e);
}

/* Until QEMU has answered what was begun. */
static int wait_answer(struct sender *s, const char *what, bool keep_alive, struct err *e)
{
	uint64_t deadline = deadline_ms(s->o->timeout_ms);
	char status[64] = "";
	int r = 0;

	while (!r) {
		r = sender_events(s, status, sizeof(status), e);
		if (!r && qmp_answered(s->qmp))
			return 0;
		if (!r && now_ns() > deadline)
			r = err_set(e, GW_TIMEOUT, ETIMEDOUT, "the source QEMU does not answer \"%s\"", what);
		if (!r)
			r = sender_wait_qemu(s, -1, keep_alive, e);
	}
	return r;
}

/* Others may have stopped the guest meanwhile, or let it run, and that is how it shall arrive. */
static int check_running(struct sender *s, struct err *e)
{
	bool running;
	int r = migration_running(s->qmp, &running, e);

	if (r || running == s->migration.was_running)
		return r;
	/* And as they left it it stays. */
	s->migration.was_running = running;
	return err_set(e, GW_VM_STATE, EBUSY, "the source VM was %s meanwhile: try again", running ? "continued" : "stopped");
}

static int stand_still(struct sender *s, struct err *e)
{
	char status[64] = "";
	int r = devram_send(&s->devram, s->ch, &s->report->device_bytes, e);

	if (!r)
		r = check_running(s, e);
	/* What was heard until now is of before; from here on nobody else may let it run. */
	if (!r)
		r = sender_events(s, status, sizeof(status), e);
	s->resumed = false;
	if (r || !s->migration.was_running)
		return r;
	r = qmp_begin(s->qmp, "stop", NULL, e);
	if (!r)
		r = wait_answer(s, "stop", true, e);
	/* QEMU's migration would ask for these itself: what came while RAM was sent. */
	return r ? r : migration_check_blockers(s->qmp, e);
}

static int rest(struct sender *s, struct err *e)
{
	int r = private_same(s->qmp, &s->devram.ram, e);

	return r ? r : devram_send(&s->devram, s->ch, &s->report->device_bytes, e);
}

static int state(struct sender *s, struct held *held, struct err *e)
{
	int r = saved_begin(&s->saved, s->qmp, e);

	if (!r)
		r = wait_answer(s, "xen-save-devices-state", false, e);
	/* QEMU's migration cannot be resumed from outside while it waits; this can. */
	if (!r && s->resumed)
		r = err_set(e, GW_VM_STATE, EBUSY, "somebody has let the source VM run on in the switchover (cont): leave it alone and try again");
	if (!r)
		r = saved_finish(&s->saved, s->migration.was_running, e);
	if (r)
		return r;
	held->bytes = s->saved.state;
	held->len = s->saved.len;
	s->saved.state = NULL;
	return 0;
}

const struct device_way way_save = { .stand_still = stand_still, .rest = rest, .state = state };
