// SPDX-License-Identifier: GPL-2.0-only
/*
 * calc-dirty-rate in mode dirty-bitmap makes KVM clear its log when the measurement starts
 * (dirtyrate_manual_reset_protect(): all RAM that can be migrated, shared or not), and switches
 * logging off when it ends. The bits that KVM clears are bits that no harvest has read: pages that
 * the guest wrote, and does not write again, would be lost.
 *
 * When the log goes off at the end, the module sees that and counts all pages of the slot as dirty.
 * So the cleared bits come back, with two exceptions: when the guest stops first, QEMU leaves the
 * log on until the guest runs again; and while QEMU migrates it does not switch the log off at all.
 * Counting all pages as dirty while a measurement lasts would save no migration: all RAM would be
 * sent once more after each, to learn what a migration reports as well. So godwit refuses to
 * migrate.
 *
 * The command sets mode and start before its thread begins, so a check after a harvest finds every
 * measurement that took bits from that harvest. QEMU runs one measurement at a time: a measurement
 * that does not use the log may hide an earlier one that did and has ended. While the guest runs
 * and QEMU does not migrate that harms nothing, as the bits came back; at the stop it counts.
 *
 * What else makes KVM clear its log:
 * - QEMU's own migration, of the RAM that it sends: it leaves ours out, and godwit refuses to start
 *   beside a migration that is not its own;
 * - displays, of their video RAM alone, which is a block of its own (DIRTY_MEMORY_VGA; only boards
 *   of other architectures have a framebuffer in guest RAM);
 * - set-vcpu-dirty-limit, which needs the dirty ring, as mode dirty-ring does: godwit refuses a VM
 *   with a dirty ring.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "qmp/dirty_rate.h"

#define RESTS	3	/* of a second each */

static int dirty_rate_query(struct qmp *q, struct dirty_rate *d, struct err *e)
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

static int dirty_rate_refuse(const char *when, struct err *e)
{
	return err_set(e, GW_VM_STATE, EBUSY,
		       "QEMU measures the dirty rate of the source VM by KVM's log (calc-dirty-rate, mode dirty-bitmap)%s, and clears bits that godwit needs: wait until query-dirty-rate says \"measured\", or measure with mode page-sampling, then migrate",
		       when);
}

/*
 * Another measurement could still begin in the same second as this one, and the two could not be
 * told apart. QEMU's clock is CLOCK_MONOTONIC.
 */
static bool dirty_rate_recent(const struct dirty_rate *d)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return d->by_log && d->start_s + 1 >= now.tv_sec;
}

int dirty_rate_begin(struct qmp *q, struct dirty_rate *last, struct err *e)
{
	int r = dirty_rate_query(q, last, e);

	for (unsigned int i = 0; !r && last->over && dirty_rate_recent(last) && i < RESTS; i++) {
		nap_ms(1000);
		r = dirty_rate_query(q, last, e);
	}
	return r || !last->by_log || last->over ? r : dirty_rate_refuse("", e);
}

int dirty_rate_check(struct qmp *q, struct dirty_rate *last, bool guest_stopped, struct err *e)
{
	struct dirty_rate now;
	int r;

	if (!last->known)
		return 0;
	r = dirty_rate_query(q, &now, e);
	if (r)
		return r;
	if (now.by_log && (!last->by_log || now.start_s != last->start_s || !now.over))
		return dirty_rate_refuse(", began to do so with the migration under way", e);
	if (guest_stopped && now.start_s != last->start_s)
		return err_set(e, GW_VM_STATE, EBUSY,
			       "QEMU began to measure the dirty rate of the source VM in the switchover (calc-dirty-rate), perhaps more than once and by KVM's log: try again");
	*last = now;
	return 0;
}
