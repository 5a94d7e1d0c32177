// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>

#include "cmd/cmd.h"
#include "io/sock.h"
#include "io/stop.h"
#include "migrate/estimate.h"
#include "migrate/limits.h"
#include "migrate/probe.h"
#include "migrate/turns.h"
#include "page/page.h"
#include "vmm/migration.h"
#include "vmm/way.h"

static const char usage[] =
	"usage: godwit estimate (--qmp SOCKET | --domain NAME | --pid PID) (--bandwidth MIB | --to ADDR:PORT) [options]\n"
	"\n"
	"How long would a migration of this guest take, and would it end? Measures how the guest writes, from a sample of\n"
	"its pages, and plays the rounds through. The exit status is 20 (not-converged) if it would not end.\n"
	"\n"
	"  --qmp SOCKET           the source QEMU's QMP socket\n"
	"  --domain NAME          or the libvirt domain\n"
	"  --pid PID              or the QEMU process; with --qmp, if another process made the socket\n"
	"  --bandwidth MIB        MiB/s that the migration will have\n"
	"  --to ADDR:PORT         measure that, over one connection to the godwit receiver there; needs --qmp or --domain.\n"
	"                         With both, the smaller one counts\n"
	"  --downtime-limit MS    what \"godwit send\" will be given (300)\n"
	"  --max-rounds N         likewise (30)\n"
	"  --device-state auto|migrate|save  likewise (auto)\n"
	"  --seconds S            how long to measure (8)\n"
	"  --sample PAGES         how many pages to watch (65536): more are more exact, and disturb the guest more\n"
	"  --json                 as a JSON object\n";

enum { OPT_BANDWIDTH = CMD_OWN, OPT_TO, OPT_LIMIT, OPT_ROUNDS, OPT_DEVICE_STATE, OPT_SECONDS, OPT_SAMPLE, OPT_JSON, OPT_HELP };

static const struct option options[] = {
	CMD_VM_OPTIONS,
	{ "bandwidth", required_argument, NULL, OPT_BANDWIDTH },
	{ "to", required_argument, NULL, OPT_TO },
	{ "downtime-limit", required_argument, NULL, OPT_LIMIT },
	{ "max-rounds", required_argument, NULL, OPT_ROUNDS },
	{ "device-state", required_argument, NULL, OPT_DEVICE_STATE },
	{ "seconds", required_argument, NULL, OPT_SECONDS },
	{ "sample", required_argument, NULL, OPT_SAMPLE },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 }
};

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
	enum way_wish wish;
	unsigned int bandwidth_mib, seconds, sample_pages;
	bool json;
	bool help;
};

/**
 * struct found - what is measured
 * @qmp: NULL: nobody is asked
 * @private: nothing is in it with WAY_MIGRATE
 */
struct found {
	struct qmp *qmp;
	struct vm vm;
	enum way way;
	struct private_ram private;
};

static int parse_option(struct estimate_args *a, int opt, struct err *e)
{
	switch (opt) {
	case CMD_QMP:
	case CMD_DOMAIN:
	case CMD_PID:
		return cmd_vm_option(&a->vm, opt, optarg, e);
	case OPT_BANDWIDTH:
		return cmd_number("--bandwidth", optarg, 1, 1000000, &a->bandwidth_mib, e);
	case OPT_TO:
		a->addr = optarg;
		return 0;
	case OPT_LIMIT:
		return limits_set(&a->limits, "downtime-limit", optarg, e);
	case OPT_ROUNDS:
		return limits_set(&a->limits, "max-rounds", optarg, e);
	case OPT_DEVICE_STATE:
		return way_parse(optarg, &a->wish, e);
	case OPT_SECONDS:
		return cmd_number("--seconds", optarg, 1, 86400, &a->seconds, e);
	case OPT_SAMPLE:
		return cmd_number("--sample", optarg, 64, 1u << 30, &a->sample_pages, e);
	case OPT_JSON:
		a->json = true;
		return 0;
	case OPT_HELP:
		a->help = true;
		return 0;
	default:
		return err_set(e, GW_USAGE, EINVAL, "see \"godwit estimate --help\"");
	}
}

static int parse(struct estimate_args *a, int argc, char **argv, struct err *e)
{
	int opt, r = 0;

	while (!r && !a->help && (opt = getopt_long(argc, argv, "", options, NULL)) != -1)
		r = parse_option(a, opt, e);
	if (r || a->help)
		return r;
	if (optind != argc || (a->vm.qmp && a->vm.domain) || !(a->vm.qmp || a->vm.domain || a->vm.pid))
		return err_set(e, GW_USAGE, EINVAL,
			       "estimate needs --qmp SOCKET, --domain NAME or --pid PID, and no argument: see \"godwit estimate --help\"");
	if (!a->bandwidth_mib && !a->addr)
		return err_set(e, GW_USAGE, EINVAL, "estimate needs the link's speed: --bandwidth MIB, or --to ADDR:PORT to measure it");
	if (a->addr && !a->vm.qmp && !a->vm.domain)
		return err_set(e, GW_USAGE, EINVAL, "--to compares the RAM of both ends: it needs --qmp SOCKET or --domain NAME");
	return cmd_find_domain(&a->vm, e);
}

/* Does QEMU walk through all RAM in the blackout? Not where the device state is saved. */
static int choose_way(const struct estimate_args *a, struct found *f, struct err *e)
{
	bool running;
	int r = migration_running(f->qmp, &running, e);

	return r ? r : way_choose(a->wish, f->qmp, &f->vm, running, &f->way, &f->private, e);
}

/* Its speed and delay into *in, and what the receiver thinks of the way. */
static int measure_link(const struct estimate_args *a, struct found *f, struct estimate_in *in, struct err *e)
{
	const struct probe_question question = {
		.addr = a->addr, .vm = &f->vm, .private = &f->private, .engine = &engine_poll,
		.timeout_ms = TIMEOUT_MS,
	};
	struct probe_answer there;
	struct channel *ch = NULL;
	int64_t offset_ns;
	uint64_t rate;
	int r = probe_open(&question, &ch, &there, e);

	if (!r && f->way == WAY_SAVE && !there.saved)
		r = way_refused(a->wish, e);
	if (!r && !there.saved)
		f->way = WAY_MIGRATE;
	if (!r)
		r = probe_delay(ch, &in->rtt_ns, &offset_ns, e);
	if (!r)
		r = probe_speed(ch, PROBE_MS, &rate, e);
	if (!r && (!in->rate || rate < in->rate))
		in->rate = rate ? rate : 1;
	channel_free(ch);
	return r;
}

/* QEMU, and the VM. */
static int find(const struct estimate_args *a, struct found *f, struct estimate_in *in, struct err *e)
{
	struct turns turns = { .taken = 0 };
	int r = 0;

	if (a->vm.qmp)
		r = qmp_open(a->vm.qmp, TIMEOUT_MS, &f->qmp, e);
	if (!r && f->qmp)
		r = turns_measure(&turns, f->qmp, e);
	in->turn_ns = turns_median(&turns);
	if (!r)
		r = vm_find(f->qmp, (pid_t)a->vm.pid, VM_KVM, &f->vm, e);
	if (!r && f->qmp)
		r = choose_way(a, f, e);
	return r;
}

static int measure(const struct estimate_args *a, struct curve *curve, struct estimate_in *in, struct err *e)
{
	struct found f = { .vm = { .pidfd = -1, .vm_fd = -1 } };
	struct dirty_source *source = NULL;
	int r = find(a, &f, in, e);

	if (!r && a->addr)
		r = measure_link(a, &f, in, e);
	in->device_saved = f.way != WAY_MIGRATE;
	if (!r)
		r = source_kmod(&f.vm, -1, &source, e);
	if (!r)
		r = curve_measure(&f.vm, source, a->seconds, a->sample_pages, now_ns(), curve, e);
	if (!r)
		r = content_measure(&f.vm, source, CONTENT_PAGES, &in->content, e);
	if (source)
		source->ops->close(source, true);
	private_free(&f.private);
	vm_close(&f.vm);
	qmp_close(f.qmp);
	return r;
}

static double mib(double bytes)
{
	return bytes / (1 << 20);
}

/* Pages per second, each counted once in it. */
static double dirty_rate(const struct curve *c)
{
	return curve_pages(c, 1000000000);
}

static double working_set(const struct curve *c)
{
	return c->points[c->n - 1].pages;
}

static void print(const struct estimate_in *in, const struct estimate *out)
{
	const struct curve *c = in->curve;

	printf("dirty rate      %10.1f MiB/s  (%llu pages of %llu were watched)\n", mib(dirty_rate(c) * PAGE_BYTES),
	       (unsigned long long)c->sample_pages, (unsigned long long)c->total_pages);
	printf("working set     %10.1f MiB    written in %.1f s\n", mib(working_set(c) * PAGE_BYTES),
	       (double)c->points[c->n - 1].ns / 1e9);
	printf("allocated       %10.1f MiB    of it %.1f MiB zeros\n", mib((double)in->content.allocated_pages * PAGE_BYTES),
	       mib((double)in->content.zero_pages * PAGE_BYTES));
	printf("link            %10.1f MiB/s\n", mib((double)in->rate));
	if (out->converges)
		printf("total time      %10.1f s      in %u rounds\ndowntime        %10.0f ms\nto be sent      %10.1f MiB\n",
		       (double)out->total_ns / 1e9, out->rounds, (double)out->downtime_ns / 1e6, mib((double)out->bytes));
	else
		printf("it would not end: after %u rounds and %.1f s the guest would have to stand still for %.0f ms (limit %.0f ms): raise --downtime-limit, use a faster link, or calm the guest\n",
		       out->rounds, (double)out->total_ns / 1e9, (double)out->downtime_ns / 1e6, (double)in->limit_ns / 1e6);
}

static void print_json(const struct estimate_in *in, const struct estimate *out)
{
	json_t *j = json_pack("{s:b, s:i, s:f, s:f, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:f}", "converges", out->converges,
			      "rounds", (int)out->rounds, "total-time", (double)out->total_ns / 1e6, "expected-downtime",
			      (double)out->downtime_ns / 1e6, "transferred", (json_int_t)out->bytes, "pending-pages",
			      (json_int_t)out->pending_pages, "dirty-pages-per-second", dirty_rate(in->curve),
			      "working-set-pages", working_set(in->curve), "pages", (json_int_t)in->curve->total_pages,
			      "sample-pages", (json_int_t)in->curve->sample_pages, "allocated-pages",
			      (json_int_t)in->content.allocated_pages, "zero-pages", (json_int_t)in->content.zero_pages,
			      "bytes-per-second", (json_int_t)in->rate, "round-trip-ms", (double)in->rtt_ns / 1e6);
	json_t *points = json_array();

	for (unsigned int i = 0; i < in->curve->n; i++)
		json_array_append_new(points, json_pack("{s:f, s:f}", "ms", (double)in->curve->points[i].ns / 1e6, "pages",
							in->curve->points[i].pages));
	json_object_set_new(j, "written", points);
	json_dumpf(j, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(j);
}

int cmd_estimate(int argc, char **argv)
{
	struct estimate_args a = { .limits = limits_default, .seconds = 8, .sample_pages = 65536 };
	struct err e = { 0 };
	struct estimate_in in;
	struct estimate out;
	struct curve curve;

	if (parse(&a, argc, argv, &e))
		return cmd_fail(&e);
	if (a.help) {
		fputs(usage, stdout);
		return 0;
	}
	stop_install();
	in = (struct estimate_in) {
		.curve = &curve, .rate = (uint64_t)a.bandwidth_mib << 20,
		.limit_ns = a.limits.downtime_limit_ms * 1000000ull, .max_rounds = a.limits.max_rounds,
	};
	if (measure(&a, &curve, &in, &e))
		return cmd_fail(&e);
	estimate(&in, &out);
	if (a.json)
		print_json(&in, &out);
	else
		print(&in, &out);
	return out.converges ? GW_OK : GW_NOT_CONVERGED;
}
