// SPDX-License-Identifier: GPL-2.0-only
/*
 * calc-dirty-rate in mode dirty-bitmap has KVM clear its log at its start (dirtyrate_manual_reset_protect(): all RAM that can
 * be migrated, shared or not), and switches logging off at its end. The bits that it clears are those that no harvest has
 * read: what the guest wrote there, and does not write again, would be lost.
 *
 * At the end of a measurement the log goes off, which the module sees, and counts all of the slot as written. So what was
 * taken comes back, unless the guest stops first: QEMU then leaves the log on until it runs. And while QEMU migrates it does
 * not switch it off at all. To count everything as written for as long as a measurement lasts would save no migration: all RAM
 * would be sent once more after each, to learn what a migration tells as well. So it is refused.
 *
 * The command sets mode and start before its thread begins, so a look behind a harvest finds whatever took bits from it.
 * QEMU measures one thing at a time: a measurement that is not by the log may hide one by the log before it, which was
 * over. While the guest runs and QEMU does not migrate that harms nothing, as above; at the stop it counts.
 *
 * Who else has KVM clear its log: QEMU's own migration, of RAM that it sends (ours it leaves out), and nobody else's is let
 * on; displays, of their video RAM alone, which is a block of its own (DIRTY_MEMORY_VGA; a framebuffer in guest RAM is for
 * boards of other architectures); set-vcpu-dirty-limit, which needs the dirty ring, as mode dirty-ring does: refused.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "io/sock.h"
#include "vmm/dirty_rate.h"

#define RESTS	3

static int query(struct qmp *q, struct dirty_rate *d, struct err *e)
{
	json_auto_t *info = NULL;
	struct err own = { 0 };
	const char *status, *mode;
	int r = qmp_call(q, "query-dirty-rate", NULL, &info, &own);

	*d = (struct dirty_rate) { 0 };
	if (r == -EREMOTEIO)
		return 0;	/* older than the command */
	if (r)
		return err_set(e, own.exit, -r, "%s", own.text);
	status = json_string_value(json_object_get(info, "status"));
	mode = json_string_value(json_object_get(info, "mode"));
	d->known = status && mode;
	d->by_log = mode && !strcmp(mode, "dirty-bitmap");
	d->start_s = json_integer_value(json_object_get(info, "start-time"));
	d->over = status && (!strcmp(status, "measured") || (!strcmp(status, "unstarted") && !d->start_s));
	return 0;
}

static int refuse(const char *when, struct err *e)
{
	return err_set(e, GW_VM_STATE, EBUSY,
		       "the dirty rate of the source VM is measured by KVM's log (calc-dirty-rate, mode dirty-bitmap)%s, which takes it away from us: wait until query-dirty-rate says \"measured\", or measure with mode page-sampling, and migrate then",
		       when);
}

/* Of the same second as the last one another could begin, and not be told from it. QEMU's clock is CLOCK_MONOTONIC. */
static bool too_fresh(const struct dirty_rate *d)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return d->by_log && d->start_s + 1 >= now.tv_sec;
}

int dirty_rate_begin(struct qmp *q, struct dirty_rate *last, struct err *e)
{
	int r = query(q, last, e);

	for (unsigned int i = 0; !r && last->over && too_fresh(last) && i < RESTS; i++) {
		nap_ms(1000);
		r = query(q, last, e);
	}
	return r || !last->by_log || last->over ? r : refuse("", e);
}

int dirty_rate_check(struct qmp *q, struct dirty_rate *last, bool guest_stopped, struct err *e)
{
	struct dirty_rate now;
	int r;

	if (!last->known)
		return 0;
	r = query(q, &now, e);
	if (r)
		return r;
	if (now.by_log && (!last->by_log || now.start_s != last->start_s || !now.over))
		return refuse(", and that began with the migration under way", e);
	if (guest_stopped && now.start_s != last->start_s)
		return err_set(e, GW_VM_STATE, EBUSY,
			       "somebody has begun to measure the dirty rate of the source VM in the switchover (calc-dirty-rate), perhaps more than once and by KVM's log: try again");
	*last = now;
	return 0;
}
