// SPDX-License-Identifier: GPL-2.0-only
/* The rows for the receiver's answers and the link to it. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "base/thread.h"
#include "check/check_internal.h"
#include "check/probe.h"
#include "fit/host.h"
#include "net/address.h"
#include "page/page.h"
#include "peer/hello.h"
#include "peer/postcopy_ask.h"
#include "peer/referring.h"
#include "plan/link.h"

#define SLOW_BYTES_PER_S	(100000000u / 8)	/* 100 Mbit/s: slow for a migration */

#define ROWS_BEHIND	12u	/* the most rows that come after those of the comparison */

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
static_assert(sizeof(fit_names) / sizeof(fit_names[0]) == FIT_CLASSES,
	      "a class of differences has no row");

static void check_add_findings(const struct findings *f, unsigned int n, struct check *c)
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

/* The findings are sorted, worst first: if there are too many the check leaves warnings out. */
static void check_fit(const struct fit *fit, struct check *c)
{
	const struct findings *f = &fit->findings;
	unsigned int room = CHECK_ROWS_MAX - c->n - ROWS_BEHIND;
	unsigned int shown = findings_kept(f) < room ? findings_kept(f) : room;

	if (!fit->there) {
		check_add(c, "fit", CHECK_WARNING, "the receiver's godwit is too old to say what machine it has: install the same version at both ends");
		return;
	}
	check_add_findings(f, shown, c);
	if (!f->n)
		check_add(c, "fit", CHECK_OK, "the destination has the machine that the guest was started on");
	else if (shown < f->n)
		check_add(c, "fit", CHECK_WARNING, "and %u more differences", f->n - shown);
}

static void check_version(unsigned int ours, const struct probe_answer *there, struct check *c)
{
	unsigned int v = there->qemu_version;

	check_add(c, "destination", v < ours ? CHECK_WARNING : CHECK_OK,
		  "it has the same RAM, and waits with QEMU %u.%u.%u%s; %u streams at most",
		  v / 10000, v / 100 % 100, v % 100,
		  v < ours ? ", which is older than the source's and may refuse the device state: use the same machine type" : "",
		  there->streams);
}

/* What both ends have, and by what this one packs. */
static void check_codecs(const struct check_options *o, const struct probe_answer *there,
			 struct check *c)
{
	static const char name[] = "compression";
	const bool lacks = ~there->features & HELLO_PACKING;
	char list[CODEC_LIST], wish[CODEC_TEXT];
	struct err e = { 0 };

	codec_list(there->features, list);
	if (codec_check(&o->compress, there->features, &e))
		check_refuse(c, name, &e);
	else if (!*list)
		check_add(c, name, CHECK_WARNING, "the receiver's godwit is too old for it, and RAM goes as it is: install the same version at both ends");
	else
		check_add(c, name, lacks ? CHECK_WARNING : CHECK_OK, "both ends have %s; --compress %s%s",
			  list, codec_wish_text(&o->compress, wish),
			  lacks ? ": the receiver's godwit is older, and lacks a part of it" : "");
}

/* The guest may have to move while it writes faster than the link carries. */
static void check_postcopy(const struct check_options *o, const struct vm *vm,
			   const struct probe_answer *there, struct channel *ch, struct check *c)
{
	static const char name[] = "post-copy";
	uint32_t unit[WIRE_BLOCKS_MAX];
	struct err e = { 0 };
	int r = postcopy_ask(ch, there->features, unit, vm->nblocks, &e);

	if (!r)
		check_add(c, name, CHECK_OK, "the receiver can do it (see --postcopy); until all RAM is there, the loss of either host, or of either QEMU, would cost the guest");
	else if (o->postcopy >= POSTCOPY_ON || (r != -EOPNOTSUPP && r != -EPROTONOSUPPORT))
		check_refuse(c, name, &e);
	else
		check_add(c, name, o->postcopy == POSTCOPY_AUTO ? CHECK_WARNING : CHECK_OK,
			  "not for this guest: %s", e.text);
}

/* What the receiver has of the guest already. */
static void check_reuse(const struct probe_answer *there, struct channel *ch, struct check *c)
{
	static const char name[] = "reuse";
	struct referring_there reuse;
	struct err e = { 0 };

	if (!(there->features & WIRE_REUSES))
		check_add(c, name, CHECK_OK, "off: the receiver's godwit is too old for it");
	else if (referring_look(ch, &reuse, &e))
		check_refuse(c, name, &e);
	else if (reuse.kind == WIRE_REUSE_NONE)
		check_add(c, name, CHECK_OK, "off: the receiver has no file with old RAM (--reuse)");
	else
		check_add(c, name, CHECK_OK, "the receiver has %llu pages in a file (%.1f MiB), compared by %s",
			  (unsigned long long)reuse.entries,
			  (double)(reuse.entries * PAGE_BYTES) / (1 << 20),
			  reuse.kind == WIRE_REUSE_HMAC ? "HMAC-SHA-256" : "XXH3");
}

static void check_save_mode(const struct preflight *l, const struct probe_answer *there,
			    struct check *c)
{
	static const char name[] = "device there";
	struct err e = { 0 };

	if (*l->mode == MODE_MIGRATE)
		return;
	if (there->save_mode) {
		check_add(c, name, CHECK_OK, "it can load a device state in save mode");
	} else if (*l->mode == MODE_EITHER) {
		check_add(c, name, CHECK_WARNING,
			  "it cannot load a device state in save mode (the receiver's output says why): migrate mode is used, which takes longer");
	} else {
		mode_refused(l->wish, &e);
		check_refuse(c, name, &e);
	}
}

/* Return: the round trip; 0: not known. */
static uint64_t check_delay(const struct check_options *o, unsigned int streams,
			    const struct fit *fit, struct channel *ch, struct check *c)
{
	struct window window = { .goal = WINDOW_GIGABIT };
	struct findings clocks = { .accepted = o->accepted };
	struct err e = { 0 };
	uint64_t rtt_ns;
	int64_t offset_ns;
	double ms;

	if (probe_delay(ch, &rtt_ns, &offset_ns, &e)) {
		check_refuse(c, delay_name, &e);
		return 0;
	}
	host_compare_clocks(offset_ns, rtt_ns, &clocks);
	check_add_findings(&clocks, findings_kept(&clocks), c);
	findings_free(&clocks);
	ms = (double)rtt_ns / 1e6;
	/* No downtime is shorter than the way of its last byte. */
	if (rtt_ns / 2 >= o->downtime_limit_ms * 1000000ull)
		check_add(c, delay_name, CHECK_WARNING,
			  "%.2f ms for a round trip, and half of one uses up the downtime limit (%u ms): raise --downtime-limit",
			  ms, o->downtime_limit_ms);
	else
		check_add(c, delay_name, CHECK_OK, "%.2f ms for a round trip", ms);
	window.rtt_ns = rtt_ns;
	/* As many as the sender would use. */
	window.streams = link_streams(thread_cpus(), rtt_ns, streams);
	host_window(fit->here, fit->there, &window);
	check_window(&window, c);
	return rtt_ns;
}

static void check_speed(const struct check_options *o, const struct vm *vm, unsigned int streams,
			uint64_t rtt_ns, struct channel *ch, struct check *c)
{
	uint64_t rate, pages = 0;
	struct err e = { 0 };
	struct loss loss;

	if (probe_speed(ch, o->probe_ms, &rate, &loss, &e)) {
		check_refuse(c, speed_name, &e);
		return;
	}
	for (unsigned int i = 0; i < vm->nblocks; i++)
		pages += vm->blocks[i].pages;
	check_add(c, speed_name, rate < SLOW_BYTES_PER_S ? CHECK_WARNING : CHECK_OK,
		  "%.1f MiB/s over one connection: one pass over all of the RAM takes at most %.1f s%s",
		  (double)rate / (1 << 20),
		  (double)(pages * PAGE_BYTES) / (double)(rate ? rate : 1),
		  rate < SLOW_BYTES_PER_S ? ": make sure that this is the intended link; \"godwit estimate\" predicts a migration over it" : "");
	loss.rtt_ns = rtt_ns;
	loss.streams = link_streams(thread_cpus(), rtt_ns, streams);
	check_loss(&loss, streams, c);
}

/* What the handshake has shown. */
static void check_encryption(const struct tls *tls, const char *addr, struct check *c)
{
	const char *by = address_path(addr) ? "GnuTLS, as on every UNIX socket" :
			 "GnuTLS, as the kernel has no module tls (modprobe tls)";

	if (!tls)
		return;
	if (tls_in_kernel(tls))
		by = "the kernel";
	check_add(c, "encryption", CHECK_OK, "TLS 1.3 with " TLS_CIPHER_NAME ", records by %s; the receiver has %s",
		  by, tls_peer(tls));
}

#define CREDENTIALS_DAYS	14

void check_credentials(const struct tls_creds *creds, struct check *c)
{
	bool soon = tls_creds_days(creds) < CREDENTIALS_DAYS;
	char text[800];

	tls_creds_describe(creds, text, sizeof(text));
	check_add(c, "credentials", soon ? CHECK_WARNING : CHECK_OK, "%s%s", text,
		  soon ? ": make a new one before that" : "");
}

static void check_unmeasured(const struct check_options *o, struct check *c)
{
	check_add(c, delay_name, CHECK_UNKNOWN, "not measured: see above");
	if (o->probe_ms)
		check_add(c, speed_name, CHECK_UNKNOWN, "not measured: see above");
}

void check_peer(const struct check_options *o, const struct preflight *l, struct check *c)
{
	struct fit fit = { .findings.accepted = o->accepted };
	const struct probe_question question = {
		.addr = o->addr, .tls = o->tls, .vm = l->vm, .private = l->private,
		.engine = o->engine, .timeout_ms = o->timeout_ms, .qmp = *l->qmp, .fit = &fit,
		.wish = l->wish,
		.running = l->migration->was_running, .mode = l->mode,
	};
	struct channel *ch = NULL;
	struct probe_answer there;
	struct err e = { 0 };
	uint64_t rtt_ns;
	int r;

	if (!l->vm->nblocks) {
		check_add(c, "destination", CHECK_UNKNOWN, "not asked: there is no RAM to compare, see above");
		check_unmeasured(o, c);
		return;
	}
	r = probe_open(&question, &ch, &there, &e);
	if (ch)
		check_encryption(channel_tls(ch), o->addr, c);
	if (!r || fit.there)
		check_fit(&fit, c);
	if (fit.there)
		check_page_sizes(l->vm, fit.there, c);
	if (r) {
		check_refuse(c, "destination", &e);
		check_unmeasured(o, c);
	} else {
		check_version(qmp_version(*l->qmp), &there, c);
		check_codecs(o, &there, c);
		check_save_mode(l, &there, c);
		check_postcopy(o, l->vm, &there, ch, c);
		check_reuse(&there, ch, c);
		rtt_ns = check_delay(o, there.streams, &fit, ch, c);
		if (o->probe_ms)
			check_speed(o, l->vm, there.streams, rtt_ns, ch, c);
	}
	channel_free(ch);
	fit_free(&fit);
}
