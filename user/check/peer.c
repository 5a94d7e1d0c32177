// SPDX-License-Identifier: GPL-2.0-only
/* What the receiver says, and how far away it is. */
#include <assert.h>
#include <stdio.h>

#include "check/check_internal.h"
#include "fit/host.h"
#include "migrate/probe.h"
#include "page/page.h"

#define SLOW_BYTES_PER_S	(100000000u / 8)	/* 100 Mbit/s: a link that nobody builds for migrations */

#define ROWS_BEHIND	6u	/* the most that come after those of the comparison */

static const char delay_name[] = "link delay", speed_name[] = "link speed";

static const char *const fit_names[] = {
	[FIT_MACHINE] = "fit: machine",
	[FIT_CPU] = "fit: cpu",
	[FIT_MEMORY] = "fit: memory",
	[FIT_DEVICE] = "fit: device",
	[FIT_DISK] = "fit: disk",
	[FIT_BACKEND] = "fit: backend",
	[FIT_HOST] = "fit: host",
	[FIT_ROOM] = "fit: room",
};
static_assert(sizeof(fit_names) / sizeof(fit_names[0]) == FIT_CLASSES, "a class of differences has no row");

static void add_findings(const struct findings *f, unsigned int n, struct check *c)
{
	for (unsigned int i = 0; i < n; i++) {
		const struct finding *row = &f->rows[i];
		struct err e = { .exit = finding_exit(row) };

		snprintf(e.text, sizeof(e.text), "%s", row->text);
		if (row->severity == FIT_WARNING)
			check_add(c, fit_names[row->class], CHECK_WARNING, "%s", row->text);
		else
			check_refuse(c, fit_names[row->class], &e);
	}
}

/* The worst come first: of more than there is room for, warnings go. */
static void check_fit(const struct fit *fit, struct check *c)
{
	const struct findings *f = &fit->findings;
	unsigned int room = CHECK_ROWS_MAX - c->n - ROWS_BEHIND, shown = findings_kept(f) < room ? findings_kept(f) : room;

	if (!fit->there) {
		check_add(c, "fit", CHECK_WARNING, "the receiver's godwit is too old to say what machine it has");
		return;
	}
	add_findings(f, shown, c);
	if (!f->n)
		check_add(c, "fit", CHECK_OK, "the destination is the machine that the guest was started on");
	else if (shown < f->n)
		check_add(c, "fit", CHECK_WARNING, "and %u more differences", f->n - shown);
}

static void check_version(unsigned int ours, const struct probe_answer *there, struct check *c)
{
	unsigned int v = there->qemu_version;

	check_add(c, "destination", v < ours ? CHECK_WARNING : CHECK_OK,
		  "it has the same RAM, and waits with QEMU %u.%u.%u%s; %u streams at most", v / 10000, v / 100 % 100, v % 100,
		  v < ours ? ", which is older than the source's: it may refuse the device state (same machine type?)" : "",
		  there->streams);
}

static void check_saved(const struct look *l, const struct probe_answer *there, struct check *c)
{
	static const char name[] = "device there";
	struct err e = { 0 };

	if (*l->way == WAY_MIGRATE)
		return;
	if (there->saved) {
		check_add(c, name, CHECK_OK, "it can load a device state that was saved");
	} else if (*l->way == WAY_EITHER) {
		check_add(c, name, CHECK_WARNING,
			  "it cannot load a device state that was saved, and its godwit says why: QEMU migrates it, which takes longer");
	} else {
		way_refused(l->wish, &e);
		check_refuse(c, name, &e);
	}
}

static void check_delay(const struct check_options *o, struct channel *ch, struct check *c)
{
	struct findings clocks = { .accepted = o->accepted };
	struct err e = { 0 };
	uint64_t rtt_ns;
	int64_t offset_ns;
	double ms;

	if (probe_delay(ch, &rtt_ns, &offset_ns, &e)) {
		check_refuse(c, delay_name, &e);
		return;
	}
	host_compare_clocks(offset_ns, rtt_ns, &clocks);
	add_findings(&clocks, findings_kept(&clocks), c);
	findings_free(&clocks);
	ms = (double)rtt_ns / 1e6;
	/* The last round and COMMIT each wait for the other side once. */
	if (2 * rtt_ns >= o->downtime_limit_ms * 1000000ull)
		check_add(c, delay_name, CHECK_WARNING,
			  "%.2f ms there and back: two of them are all of the downtime that is allowed (%u ms): raise --downtime-limit", ms,
			  o->downtime_limit_ms);
	else
		check_add(c, delay_name, CHECK_OK, "%.2f ms there and back", ms);
}

static void check_speed(const struct check_options *o, const struct vm *vm, struct channel *ch, struct check *c)
{
	uint64_t rate, pages = 0;
	struct err e = { 0 };

	if (probe_speed(ch, o->probe_ms, &rate, &e)) {
		check_refuse(c, speed_name, &e);
		return;
	}
	for (unsigned int i = 0; i < vm->nblocks; i++)
		pages += vm->blocks[i].pages;
	check_add(c, speed_name, rate < SLOW_BYTES_PER_S ? CHECK_WARNING : CHECK_OK,
		  "%.1f MiB/s over one connection: one pass over all of the RAM takes at most %.1f s%s", (double)rate / (1 << 20),
		  (double)(pages * PAGE_BYTES) / (double)(rate ? rate : 1),
		  rate < SLOW_BYTES_PER_S ? "; is this the link that was meant? \"godwit estimate\" says whether it will do" : "");
}

static void unknown(const struct check_options *o, struct check *c)
{
	check_add(c, delay_name, CHECK_UNKNOWN, "not measured: see above");
	if (o->probe_ms)
		check_add(c, speed_name, CHECK_UNKNOWN, "not measured: see above");
}

void check_peer(const struct check_options *o, const struct look *l, struct check *c)
{
	struct fit fit = { .findings.accepted = o->accepted };
	const struct probe_question question = {
		.addr = o->addr, .vm = l->vm, .private = l->private, .engine = o->engine,
		.timeout_ms = o->timeout_ms, .qmp = *l->qmp, .fit = &fit,
	};
	struct channel *ch = NULL;
	struct probe_answer there;
	struct err e = { 0 };
	int r;

	if (!l->vm->nblocks) {
		check_add(c, "destination", CHECK_UNKNOWN, "not asked: there is no RAM to compare, see above");
		unknown(o, c);
		return;
	}
	r = probe_open(&question, &ch, &there, &e);
	if (!r || fit.there)
		check_fit(&fit, c);
	if (r) {
		check_refuse(c, "destination", &e);
		unknown(o, c);
	} else {
		check_version(qmp_version(*l->qmp), &there, c);
		check_saved(l, &there, c);
		check_delay(o, ch, c);
		if (o->probe_ms)
			check_speed(o, l->vm, ch, c);
	}
	channel_free(ch);
	fit_free(&fit);
}
