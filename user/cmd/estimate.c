// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/stop.h"
#include "base/thread.h"
#include "check/probe.h"
#include "cmd/cmd.h"
#include "cmd/estimate_print.h"
#include "devstate/migration.h"
#include "devstate/mode.h"
#include "estimate/estimate.h"
#include "estimate/session.h"
#include "page/page.h"
#include "peer/hello.h"
#include "peer/referring.h"
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
	unsigned int bandwidth_mib, seconds, sample_pages, pack_threads, reuse_mib;
	const char *reuse;
	bool reuse_other;
	struct tls_options tls;
	struct tls_creds *creds;
	bool json;
};

/**
 * struct found - what is measured
 * @qmp: NULL: no QEMU is asked
 * @reuse: NULL: there is no file
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
	struct reusable *reuse;
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

static const struct cmd_option estimate_reuse[] = {
	{
		"reuse", .value = "FILE", .set = cmd_set_text,
		.offset = offsetof(struct estimate_args, reuse),
		.help = "expect that the receiver has FILE, or a copy of it: pages that are in it "
			"go as references",
		.more = "FILE is read here; a receiver is not asked for what it has.\n"
			"In the first round all that is in it counts as reused, later on nothing.",
	},
	{
		"reuse-other", .set = cmd_set_flag,
		.offset = offsetof(struct estimate_args, reuse_other),
		.help = "as \"godwit receive\" will be given it: another guest may have written "
			"FILE",
	},
	{
		"reuse-memory", .value = "MIB", .min = 1, .max = 1u << 20, .initial = "512",
		.set = cmd_set_number, .offset = offsetof(struct estimate_args, reuse_mib),
		.help = "as both ends will be given it",
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
	{ CMD_ROWS(estimate_reuse) },
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
	if (a->reuse_other && !a->reuse)
		return err_set(e, GW_USAGE, EINVAL, "--reuse-other says something of the file of --reuse: give that, too");
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

/* Does the receiver agree with --reuse? An estimate counts what the operator says. */
static int estimate_ask_reuse(const struct estimate_args *a, const struct found *f,
			      struct channel *ch, struct err *e)
{
	struct referring_there there;
	int r;

	if (!(f->features & WIRE_REUSES))
		return 0;
	r = referring_look(ch, &there, e);
	if (r)
		return r;
	if (a->reuse && there.kind == WIRE_REUSE_NONE)
		fprintf(stderr, "godwit: the receiver has no file with old RAM: give it --reuse, too\n");
	if (!a->reuse && there.kind != WIRE_REUSE_NONE)
		fprintf(stderr, "godwit: the receiver has up to %llu pages of old RAM in a file, which do not count here: give --reuse a copy of it\n",
			(unsigned long long)there.entries);
	return 0;
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
		r = estimate_ask_reuse(a, f, ch, e);
	if (!r)
		r = probe_delay(ch, &in->rtt_ns, &offset_ns, e);
	if (!r)
		r = probe_speed(ch, PROBE_MS, &rate, &in->loss, e);
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
	int r = content_measure(&f->vm, s, CONTENT_PAGES, f->reuse, out, e);

	/* An older receiver gets them as they are. */
	if (!(f->features & WIRE_FILL))
		out->same_pages = 0;
	return r ? r : content_pack(&f->vm, s, steps, n, f->reuse, out, e);
}

/* Before the guest is watched: to read the file takes a CPU, and the guest may write less then. */
static int estimate_read_reuse(const struct estimate_args *a, struct found *f,
			       struct reusable_state *st, struct err *e)
{
	int r;

	if (!a->reuse)
		return 0;
	if (!(f->features & WIRE_REUSES))
		return err_set(e, GW_USAGE, EPROTONOSUPPORT, "the receiver's godwit is too old for --reuse: leave it out, or install a newer one there");
	r = reusable_open(a->reuse, a->reuse_other, (uint64_t)a->reuse_mib << 20, &f->reuse, e);
	return r ? r : reusable_wait(f->reuse, st, e);
}

static int estimate_measure(const struct estimate_args *a, struct curve *curve,
			    struct estimate_in *in, struct reusable_state *reuse, struct err *e)
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
		r = estimate_read_reuse(a, &f, reuse, e);
	in->reuse_entries = reuse->entries;
	if (!r)
		r = session_open(&session, &f.vm, f.qmp, e);
	if (!r)
		r = curve_measure(&f.vm, session.source, a->seconds, a->sample_pages, now_ns(),
				  curve, e);
	if (!r)
		r = estimate_look(a, &f, session.source, &in->content, e);
	session_close(&session);
	reusable_close(f.reuse);
	private_ram_free(&f.private);
	vm_close(&f.vm);
	qmp_close(f.qmp);
	return r;
}

static int estimate_main(int argc, char **argv)
{
	struct estimate_args a = { 0 };
	struct err e = { 0 };
	struct reusable_state reuse = { .entries = 0 };
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
	r = estimate_measure(&a, &curve, &in, &reuse, &e);
	tls_creds_free(a.creds);
	if (r)
		return cmd_fail(&e);
	estimate(&in, &out);
	if (a.json)
		estimate_print_json(&in, &reuse, &out);
	else
		estimate_print(&in, &reuse, &out);
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
	.reports = true, .main = estimate_main,
};
