// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <jansson.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/stop.h"
#include "base/thread.h"
#include "check/probe.h"
#include "cmd/cmd.h"
#include "devstate/migration.h"
#include "devstate/mode.h"
#include "estimate/estimate.h"
#include "estimate/session.h"
#include "page/page.h"
#include "peer/hello.h"
#include "plan/limits.h"
#include "plan/link.h"
#include "qmp/qmp_latency.h"

#define TIMEOUT_MS	30000u
#define PROBE_MS	1000u
#define CONTENT_PAGES	4096u	/* read to see how many are zeros */

/**
 * struct estimate_args
 * @bandwidth_mib: 0: not given
 */
struct estimate_args {
	struct cmd_vm vm;
	const char *addr;
	struct limits limits;
	enum mode_wish wish;
	unsigned int bandwidth_mib, seconds, sample_pages, pack_threads;
	struct tls_options tls;
	struct tls_creds *creds;
	bool json;
};

/**
 * struct found - what is measured
 * @qmp: NULL: no QEMU is asked
 * @private: nothing is in it with MODE_MIGRATE
 * @features: those that both ends offer; without --to, those of this godwit
 */
struct found {
	struct qmp *qmp;
	struct vm vm;
	bool running;
	enum devstate_mode mode;
	struct private_ram private;
	uint64_t features;
	unsigned int streams;	/* at most */
};

static const struct cmd_option estimate_options[] = {
	{
		"pid", .value = "PID",
		.set = cmd_set_pid, .offset = offsetof(struct estimate_args, vm.pid),
		.help = "the QEMU process PID instead; with --qmp or --domain, if another process "
			"made the socket",
	},
	{
		"bandwidth", .value = "MIB", .min = 1, .max = 1000000, .set = cmd_set_number,
		.offset = offsetof(struct estimate_args, bandwidth_mib),
		.help = "expect that the migration has MIB MiB/s",
	},
	{
		"to", .value = "ADDR:PORT",
		.set = cmd_set_text, .offset = offsetof(struct estimate_args, addr),
		.help = "measure that to the godwit receiver at ADDR:PORT, for a second and over "
			"one connection; with --bandwidth the smaller value counts",
		.more = "The receiver goes on waiting.\n"
			"This takes\n"
			".Fl -qmp\n"
			"or\n"
			".Fl -domain ,\n"
			"as the RAM of both ends is compared.",
	},
	{
		"seconds", .value = "S", .min = 1, .max = 86400, .initial = "8",
		.set = cmd_set_number,
		.offset = offsetof(struct estimate_args, seconds),
		.help = "watch the guest for S seconds",
	},
	{
		"sample", .value = "PAGES", .min = 64, .max = 1u << 30, .initial = "65536",
		.set = cmd_set_number,
		.offset = offsetof(struct estimate_args, sample_pages),
		.help = "watch PAGES pages: more are more exact, and disturb the guest more",
	},
};

static const struct cmd_group estimate_groups[] = {
	{ "Options", .options = cmd_vm_options, .n = CMD_PID,
	  .base = offsetof(struct estimate_args, vm) },
	{ CMD_ROWS(estimate_options) },
	CMD_ONE(cmd_json, struct estimate_args, json),
	{ "As \"godwit send\" will be given them",
	  .options = &cmd_limits[CMD_DOWNTIME_LIMIT], .n = 1,
	  .base = offsetof(struct estimate_args, limits) },
	{ .options = &cmd_limits[CMD_MAX_ROUNDS], .n = 1,
	  .base = offsetof(struct estimate_args, limits) },
	{ .options = &cmd_limits[CMD_COMPRESS], .n = 1,
	  .base = offsetof(struct estimate_args, limits) },
	CMD_ONE(cmd_compress_threads, struct estimate_args, pack_threads),
	CMD_ONE(cmd_device_state, struct estimate_args, wish),
	{ CMD_ROWS(cmd_tls_options), offsetof(struct estimate_args, tls) },
	CMD_HELP,
	{ NULL }
};

static int estimate_parse(struct estimate_args *a, int argc, char **argv, struct err *e)
{
	int r = cmd_parse(&cmd_estimate, argc, argv, a, e);

	if (r)
		return r;
	if ((a->vm.qmp && a->vm.domain) || !(a->vm.qmp || a->vm.domain || a->vm.pid))
		return err_set(
			e, GW_USAGE, EINVAL,
			"estimate needs --qmp SOCKET, --domain NAME or --pid PID: see \"godwit estimate --help\"");
	if (!a->bandwidth_mib && !a->addr)
		return err_set(
			e, GW_USAGE, EINVAL,
			"estimate needs the link's speed: --bandwidth MIB, or --to ADDR:PORT to measure it");
	if (a->addr && !a->vm.qmp && !a->vm.domain)
		return err_set(
			e, GW_USAGE, EINVAL,
			"--to compares the RAM of both ends: it needs --qmp SOCKET or --domain NAME");
	r = cmd_find_domain(&a->vm, e);
	/* Without --to there is no connection. */
	return r || !a->addr ? r : tls_creds_open(&a->tls, TLS_SENDER, &a->creds, e);
}

/* Does QEMU walk through all RAM in the blackout? Not where the device state is saved. */
static int estimate_choose_mode(const struct estimate_args *a, struct found *f, struct err *e)
{
	int r = migration_running(f->qmp, &f->running, e);

	return r ? r : mode_choose(a->wish, false, f->qmp, &f->vm, f->running, &f->mode,
				   &f->private, e);
}

/* Its speed and delay into *in, and what the receiver thinks of the mode. */
static int estimate_measure_link(const struct estimate_args *a, struct found *f,
				 struct estimate_in *in, struct err *e)
{
	struct fit fit = { .here = NULL };
	const struct probe_question question = {
		.addr = a->addr, .tls = a->creds, .vm = &f->vm, .private = &f->private,
		.engine = &engine_poll, .timeout_ms = TIMEOUT_MS, .qmp = f->qmp, .fit = &fit,
		.wish = a->wish,
		.running = f->running, .mode = &f->mode,
	};
	struct probe_answer there = { .features = 0 };
	struct channel *ch = NULL;
	int64_t offset_ns;
	uint64_t rate;
	int r = probe_open(&question, &ch, &there, e);

	f->features = there.features;
	if (!r)
		f->streams = there.streams;
	if (!r)
		r = codec_check(&a->limits.compress, f->features, e);
	if (!r && f->mode == MODE_SAVE && !there.save_mode)
		r = mode_refused(a->wish, e);
	if (!r && !there.save_mode)
		f->mode = MODE_MIGRATE;
	if (!r)
		r = probe_delay(ch, &in->rtt_ns, &offset_ns, e);
	if (!r)
		r = probe_speed(ch, PROBE_MS, &rate, e);
	if (!r && (!in->rate || rate < in->rate))
		in->rate = rate ? rate : 1;
	channel_free(ch);
	fit_free(&fit);
	return r;
}

/* QEMU, and the VM. */
static int estimate_find(const struct estimate_args *a, struct found *f, struct estimate_in *in,
			 struct err *e)
{
	struct qmp_latency turns = { .taken = 0 };
	int r = 0;

	if (a->vm.qmp)
		r = qmp_open(a->vm.qmp, TIMEOUT_MS, &f->qmp, e);
	if (!r && f->qmp)
		r = qmp_latency_measure(&turns, f->qmp, e);
	in->qmp_ns = qmp_latency_median(&turns);
	if (!r)
		r = vm_find(f->qmp, a->vm.pid, VM_KVM, &f->vm, e);
	if (!r && f->qmp)
		r = estimate_choose_mode(a, f, e);
	return r;
}

/* What there is to send, and how well it packs. */
static int estimate_look(const struct estimate_args *a, const struct found *f,
			 struct dirty_source *s, struct content *out, struct err *e)
{
	struct codec_choice steps[CHOOSE_STEPS];
	unsigned int n = codec_steps(&a->limits.compress, f->features, steps);
	int r = content_measure(&f->vm, s, CONTENT_PAGES, out, e);

	/* An older receiver gets them as they are. */
	if (!(f->features & WIRE_FILL))
		out->same_pages = 0;
	return r ? r : content_pack(&f->vm, s, steps, n, out, e);
}

static int estimate_measure(const struct estimate_args *a, struct curve *curve,
			    struct estimate_in *in, struct err *e)
{
	struct found f = {
		.vm = { .pidfd = -1, .vm_fd = -1 }, .features = HELLO_FEATURES,
		.streams = WIRE_STREAMS_MAX,
	};
	struct session session = { .vm = NULL };
	int r = estimate_find(a, &f, in, e);

	if (!r && a->addr)
		r = estimate_measure_link(a, &f, in, e);
	in->save_mode = f.mode != MODE_MIGRATE;
	in->streams = link_streams(thread_cpus(), in->rtt_ns, f.streams);
	if (!r)
		r = session_open(&session, &f.vm, f.qmp, e);
	if (!r)
		r = curve_measure(&f.vm, session.source, a->seconds, a->sample_pages, now_ns(),
				  curve, e);
	if (!r)
		r = estimate_look(a, &f, session.source, &in->content, e);
	session_close(&session);
	private_ram_free(&f.private);
	vm_close(&f.vm);
	qmp_close(f.qmp);
	return r;
}

static double estimate_mib(double bytes)
{
	return bytes / (1 << 20);
}

/* Pages per second, each counted once in it. */
static double estimate_dirty_rate(const struct curve *c)
{
	return curve_pages(c, 1000000000);
}

static double estimate_working_set(const struct curve *c)
{
	return c->points[c->n - 1].pages;
}

static void estimate_print(const struct estimate_in *in, const struct estimate *out)
{
	const struct curve *c = in->curve;
	char codec[CODEC_TEXT];

	printf("dirty rate      %10.1f MiB/s  (%llu pages of %llu were watched)\n",
	       estimate_mib(estimate_dirty_rate(c) * PAGE_BYTES),
	       (unsigned long long)c->sample_pages, (unsigned long long)c->total_pages);
	printf("working set     %10.1f MiB    written in %.1f s\n",
	       estimate_mib(estimate_working_set(c) * PAGE_BYTES),
	       (double)c->points[c->n - 1].ns / 1e9);
	printf("allocated       %10.1f MiB    of it %.1f MiB zeros, %.1f MiB of another byte\n",
	       estimate_mib((double)in->content.allocated_pages * PAGE_BYTES),
	       estimate_mib((double)in->content.zero_pages * PAGE_BYTES),
	       estimate_mib((double)in->content.same_pages * PAGE_BYTES));
	printf("link            %10.1f MiB/s\n", estimate_mib((double)in->rate));
	printf("compression     %10.2f         as %s, by a sample\n", PAGE_BYTES / out->page_bytes,
	       codec_text(&out->choice, codec));
	if (out->converges)
		printf("total time      %10.1f s      in %u rounds\ndowntime        %10.0f ms\nto be sent      %10.1f MiB\n",
		       (double)out->total_ns / 1e9, out->rounds, (double)out->downtime_ns / 1e6,
		       estimate_mib((double)out->bytes));
	else
		printf("it would not end: after %u rounds and %.1f s the guest would have to stand still for %.0f ms (limit %.0f ms): raise --downtime-limit, use a faster link, or reduce the guest's write load\n"
		       "by post-copy it would stand still for %.0f ms, and have all of its RAM after %.1f s, %.1f s of them at the destination\n",
		       out->rounds, (double)out->total_ns / 1e9, (double)out->downtime_ns / 1e6,
		       (double)in->limit_ns / 1e6, (double)out->postcopy.downtime_ns / 1e6,
		       (double)out->postcopy.total_ns / 1e9, (double)out->postcopy.after_ns / 1e9);
}

static void estimate_print_json(const struct estimate_in *in, const struct estimate *out)
{
	char codec[CODEC_TEXT];
	json_t *j = json_pack(
		"{s:b, s:i, s:f, s:f, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:f}",
		"converges", out->converges, "rounds", (int)out->rounds, "total-time",
		(double)out->total_ns / 1e6, "expected-downtime", (double)out->downtime_ns / 1e6,
		"transferred", (json_int_t)out->bytes, "pending-pages",
		(json_int_t)out->pending_pages, "dirty-pages-per-second",
		estimate_dirty_rate(in->curve), "working-set-pages",
		estimate_working_set(in->curve), "pages", (json_int_t)in->curve->total_pages,
		"sample-pages", (json_int_t)in->curve->sample_pages, "allocated-pages",
		(json_int_t)in->content.allocated_pages, "zero-pages",
		(json_int_t)in->content.zero_pages, "same-byte-pages",
		(json_int_t)in->content.same_pages, "bytes-per-second", (json_int_t)in->rate,
		"round-trip-ms", (double)in->rtt_ns / 1e6, "compress",
		codec_text(&out->choice, codec), "bytes-per-page", out->page_bytes);
	json_t *points = json_array();

	for (unsigned int i = 0; i < in->curve->n; i++)
		json_array_append_new(points, json_pack("{s:f, s:f}", "ms",
							(double)in->curve->points[i].ns / 1e6,
							"pages", in->curve->points[i].pages));
	json_object_set_new(j, "written", points);
	json_object_set_new(
		j, "postcopy",
		json_pack("{s:f, s:f, s:f, s:I}", "total-time",
			  (double)out->postcopy.total_ns / 1e6, "expected-downtime",
			  (double)out->postcopy.downtime_ns / 1e6, "time",
			  (double)out->postcopy.after_ns / 1e6, "owed",
			  (json_int_t)(out->postcopy.owed_pages * PAGE_BYTES)));
	json_dumpf(j, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(j);
}

static int estimate_main(int argc, char **argv)
{
	struct estimate_args a = { 0 };
	struct err e = { 0 };
	struct estimate_in in;
	struct estimate out;
	struct curve curve;
	int r;

	if (estimate_parse(&a, argc, argv, &e))
		return cmd_fail(&e);
	stop_install();
	in = (struct estimate_in) {
		.curve = &curve,
		.rate = (uint64_t)a.bandwidth_mib << 20,
		.limit_ns = a.limits.downtime_limit_ms * 1000000ull,
		.max_rounds = a.limits.max_rounds,
		.pack_threads = a.pack_threads ? a.pack_threads : thread_cpus_usable(),
	};
	r = estimate_measure(&a, &curve, &in, &e);
	tls_creds_free(a.creds);
	if (r)
		return cmd_fail(&e);
	estimate(&in, &out);
	if (a.json)
		estimate_print_json(&in, &out);
	else
		estimate_print(&in, &out);
	return out.converges ? GW_OK : GW_NOT_CONVERGED;
}

const struct command cmd_estimate = {
	"estimate",
	"estimate how long a migration would take, and whether it would end",
	.usage =
		"(--qmp SOCKET | --domain NAME | --pid PID) (--bandwidth MIB | --to ADDR:PORT) [options]",
	.about = "Measures how the guest writes, from a sample of its pages, and plays the rounds "
		 "of a migration through. The exit status is 20 (not-converged) if the migration "
		 "would not end.",
	.groups = estimate_groups,
	.main = estimate_main,
};
