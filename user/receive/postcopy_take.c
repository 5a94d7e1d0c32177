// SPDX-License-Identifier: GPL-2.0-only
/* The guest lacks RAM, and the link or the receiver is gone: what is kept is taken over. */
#include <errno.h>
#include <string.h>

#include "base/say.h"
#include "kernel/device.h"
#include "proc/proc_io.h"
#include "receive/postcopy_internal.h"
#include "receive/receiver_internal.h"

int postcopy_take(struct receiver *r, const uint8_t token[WIRE_SECRET], struct err *e)
{
	struct postcopy *p = &r->postcopy;
	int ret = postcopy_keep(r, token, true, e);

	if (ret) {
		postcopy_close(&p->dev);
		postcopy_close(&p->userfaultfd);
		return ret;
	}
	p->taken = p->agreed = p->announced = p->begun = true;
	memcpy(r->token, token, sizeof(r->token));
	return 0;
}

void postcopy_release(struct receiver *r)
{
	struct postcopy *p = &r->postcopy;

	if (!p->taken || atomic_load(&p->ready))
		return;
	postcopy_close(&p->dev);
	postcopy_close(&p->userfaultfd);
	p->taken = p->agreed = p->announced = p->begun = false;
	memset(r->token, 0, sizeof(r->token));
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
		/* The next RECOVER begins anew. What is registered stays so. */
		ram_writer_close(&r->writer);
		r->writer = (struct ram_writer) { .vm = NULL };
		lazy_close(&p->lazy);
		postcopy_close(&p->uffd);
		postcopy_close(&p->mem);
		return ret;
	}
	r->writer.lazy = &p->lazy;
	atomic_store(&p->ready, true);
	return 0;
}

void postcopy_interrupt(struct receiver *r)
{
	struct postcopy *p = &r->postcopy;

	atomic_store(&p->stop, true);
	if (p->requests)
		requests_count(p->requests, &p->before);
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

/* On record as well: its operator may stop it before another receiver takes over. */
void postcopy_started(struct receiver *r)
{
	if (!r->unstarted)
		return;
	r->unstarted = false;
	verdict_write(r);
}

/*
 * "shutdown": with -no-shutdown QEMU stays when its guest has ended, which it said before. If it
 * runs it has begun anew since, also where that was said to nobody.
 */
void postcopy_saw(struct receiver *r, const char *status)
{
	const bool runs = !strcmp(status, "running");

	r->ran |= runs;
	if (runs)
		postcopy_started(r);
	r->off = (r->off && !runs) || !strcmp(status, "shutdown");
}

/*
 * Not before all RAM is here: what `cont` has QEMU's main loop touch would have QEMU itself wait.
 * Nor by anybody else than the receiver: QEMU is asked first, and after a refusal again.
 */
void postcopy_start(struct receiver *r)
{
	struct err why = { 0 };
	char status[64] = "";

	if (!r->unstarted || !r->qmp || migration_vm_status(r->qmp, status, sizeof(status), &why))
		return;
	/* Any other one shows that it has run here. */
	r->unstarted = !strcmp(status, "paused");
	if (!r->unstarted)
		return;
	if (qmp_call(r->qmp, "cont", NULL, NULL, &why)) {
		say("QEMU does not start the guest: %s", why.text);
	/* 11.1 agrees where it does not get the guest's disks, and does nothing. */
	} else if (!migration_vm_status(r->qmp, status, sizeof(status), &why)) {
		postcopy_saw(r, status);
		r->unstarted = !strcmp(status, "paused");
		if (r->ran)
			say_out("the guest had not been started here, and runs now");
	}
}

static void postcopy_connect(struct receiver *r, unsigned int ms)
{
	struct err why = { 0 };
	char status[64] = "";
	bool ours;
	int ret;

	/* Each further try would take up a place of that one's clients. */
	if (r->at_stranger)
		return;
	ret = qmp_open_at(&r->at, ms, &r->qmp, &why);
	if (ret == -ESTALE) {
		r->at_stranger = true;
		say("%s; this receiver goes on without QEMU's monitor, and does not hear if the guest ends of its own accord",
			why.text);
	}
	if (ret)
		return;
	/* Another QEMU may listen at its path since ours has exited, perhaps under its number. */
	ours = !proc_ended(r->vm.pidfd);
	/* From here on it is heard if the guest ends. */
	if (ours && !migration_vm_status(r->qmp, status, sizeof(status), &why))
		postcopy_saw(r, status);
	/* It waits for a page again, or exits: that may be heard already. */
	if (ours && (why.exit == GW_TIMEOUT || why.exit == GW_VM_GONE))
		postcopy_hear(r);
	else if (ours)
		return;
	qmp_close(r->qmp);
	r->qmp = NULL;
}

void postcopy_monitor(struct receiver *r, unsigned int ms)
{
	if (!r->qmp)
		postcopy_connect(r, ms);
	if (r->qmp)
		qmp_set_timeout(r->qmp, ms);
	r->migration.qmp = r->qmp;
}
