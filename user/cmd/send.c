// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "cmd/progress.h"
#include "fit/findings.h"
#include "io/sock.h"
#include "io/stop.h"
#include "migrate/sender.h"
#include "report/json.h"
#include "report/metrics.h"
#include "report/text.h"
#include "wire/wire.h"

#define METRICS_NS 5000000000ull

static const char usage[] =
	"usage: godwit send (--qmp SOCKET | --domain NAME) [options] ADDR:PORT\n"
	"\n"
	"Migrates the running QEMU guest behind the QMP socket SOCKET, or of the libvirt domain NAME, to the godwit\n"
	"receiver at ADDR:PORT.\n"
	"\n"
	"  --qmp SOCKET           the source QEMU's QMP socket (-qmp unix:SOCKET,server=on,wait=off)\n"
	"  --domain NAME          or the libvirt domain, which needs a second QMP socket (see README)\n"
	"  --pid PID              the QEMU process, if another process made the socket\n"
	"  --downtime-limit MS    switch over when the guest is predicted to stand still no longer than this (300)\n"
	"  --downtime-ramp MS     raise that, by a tenth of the way to MS, for each round that does not help\n"
	"  --max-rounds N         give up when that is not reached after N rounds (30)\n"
	"  --timeout S            seconds for all of the migration (any time)\n"
	"  --on-timeout cancel|pause  what to do then: give up, or stop the guest and finish, whatever downtime that\n"
	"                         costs (cancel)\n"
	"  --peer-timeout S       give up when the peer or QEMU is silent for S seconds (30)\n"
	"  --resolve-timeout S    when the connection breaks in the switchover, ask the receiver for S seconds whether the\n"
	"                         guest runs there (60)\n"
	"  --streams N            connections for RAM, with a thread each (one for each CPU, at most 16)\n"
	"  --bandwidth MIB        send at most MIB MiB/s until the switchover (0: no limit)\n"
	"  --io auto|uring|poll   how to wait for the network: io_uring, poll(), or the better one to be had (auto)\n"
	"  --zero-copy auto|on|off  let the network card read RAM where it is: if the kernel does not copy it after all, always\n"
	"                         (io_uring and Linux 6.1 or newer), never (auto)\n"
	"  --device-state auto|migrate|save  by a migration of QEMU's that leaves RAM out, or saved by QEMU and carried over\n"
	"                         with QEMU's private RAM (auto: saved from 128 GiB on, and if RAM is a memfd; QEMU 8.0)\n"
	"  --accept WHAT          migrate although the destination differs in WHAT: machine, cpu, memory, device, disk, backend,\n"
	"                         host or room, or several with commas; what QEMU itself refuses is refused all the same\n"
	"  --verify               compare hashes of all RAM before the switchover\n"
	"  --pause                without godwit.ko: stop the guest first, then copy\n"
	"  --control PATH         where \"godwit cancel\" and \"godwit set\" reach this (/run/godwit/PID.sock, by its own PID)\n"
	"  --progress auto|plain|json|none  auto: one line that repaints on a terminal, else a line every two seconds;\n"
	"                         plain: such lines on a terminal too; json: JSON on stdout, an object a line (auto)\n"
	"  --json FILE            write the report to FILE as well: \"godwit report FILE\" shows it\n"
	"  --metrics FILE.prom    keep metrics in FILE.prom for the textfile collector of node_exporter\n";

enum { OPT_LIMIT = CMD_OWN, OPT_PEER_TIMEOUT, OPT_RESOLVE_TIMEOUT, OPT_STREAMS, OPT_IO, OPT_ZERO_COPY, OPT_DEVICE_STATE, OPT_ACCEPT, OPT_VERIFY, OPT_PAUSE,
	OPT_CONTROL, OPT_PROGRESS, OPT_JSON, OPT_METRICS, OPT_HELP };

static const struct option options[] = {
	CMD_VM_OPTIONS,
	{ "downtime-limit", required_argument, NULL, OPT_LIMIT },
	{ "downtime-ramp", required_argument, NULL, OPT_LIMIT },
	{ "max-rounds", required_argument, NULL, OPT_LIMIT },
	{ "timeout", required_argument, NULL, OPT_LIMIT },
	{ "on-timeout", required_argument, NULL, OPT_LIMIT },
	{ "peer-timeout", required_argument, NULL, OPT_PEER_TIMEOUT },
	{ "resolve-timeout", required_argument, NULL, OPT_RESOLVE_TIMEOUT },
	{ "streams", required_argument, NULL, OPT_STREAMS },
	{ "bandwidth", required_argument, NULL, OPT_LIMIT },
	{ "io", required_argument, NULL, OPT_IO },
	{ "zero-copy", required_argument, NULL, OPT_ZERO_COPY },
	{ "device-state", required_argument, NULL, OPT_DEVICE_STATE },
	{ "accept", required_argument, NULL, OPT_ACCEPT },
	{ "verify", no_argument, NULL, OPT_VERIFY },
	{ "pause", no_argument, NULL, OPT_PAUSE },
	{ "progress", required_argument, NULL, OPT_PROGRESS },
	{ "control", required_argument, NULL, OPT_CONTROL },
	{ "json", required_argument, NULL, OPT_JSON },
	{ "metrics", required_argument, NULL, OPT_METRICS },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 }
};

struct send_args {
	struct sender_options o;
	struct cmd_vm vm;
	struct progress progress;
	const char *how;	/* --progress */
	const char *json;
	const char *metrics;
	uint64_t metrics_ns;	/* when they are due */
	const char *io;
	bool help;
};

/* name: as it is in the table. */
static int parse_option(struct send_args *a, int opt, const char *name, struct err *e)
{
	switch (opt) {
	case CMD_QMP:
	case CMD_DOMAIN:
	case CMD_PID:
		return cmd_vm_option(&a->vm, opt, optarg, e);
	case OPT_LIMIT:
		return limits_set(&a->o.limits, name, optarg, e);
	case OPT_PEER_TIMEOUT:
		return cmd_peer_timeout(optarg, &a->o.timeout_ms, e);
	case OPT_RESOLVE_TIMEOUT:
		return cmd_number("--resolve-timeout", optarg, 0, 86400, &a->o.resolve_s, e);
	case OPT_STREAMS:
		return cmd_number("--streams", optarg, 1, WIRE_STREAMS_MAX, &a->o.streams, e);
	case OPT_IO:
		a->io = optarg;
		return 0;
	case OPT_ZERO_COPY:
		return engine_zero_copy(optarg, &a->o.zero_copy, e);
	case OPT_DEVICE_STATE:
		return way_parse(optarg, &a->o.wish, e);
	case OPT_ACCEPT:
		return fit_accept(optarg, &a->o.accepted, e);
	case OPT_VERIFY:
		a->o.verify = true;
		return 0;
	case OPT_PAUSE:
		a->o.pause = true;
		return 0;
	case OPT_CONTROL:
		a->o.control = optarg;
		return 0;
	case OPT_PROGRESS:
		a->how = optarg;
		return 0;
	case OPT_JSON:
		a->json = optarg;
		return 0;
	case OPT_METRICS:
		a->metrics = optarg;
		return 0;
	case OPT_HELP:
		a->help = true;
		return 0;
	default:
		return err_set(e, GW_USAGE, EINVAL, "see \"godwit send --help\"");
	}
}

static int parse(struct send_args *a, int argc, char **argv, struct err *e)
{
	int opt, index = 0, r;

	while ((opt = getopt_long(argc, argv, "", options, &index)) != -1) {
		r = parse_option(a, opt, options[index].name, e);
		if (r || a->help)
			return r;
	}
	if (!a->vm.qmp == !a->vm.domain || optind + 1 != argc)
		return err_set(e, GW_USAGE, EINVAL,
			       "send needs --qmp SOCKET or --domain NAME, and one ADDR:PORT: see \"godwit send --help\"");
	r = cmd_find_domain(&a->vm, e);
	if (r)
		return r;
	a->o.qmp_path = a->vm.qmp;
	a->o.pid = (pid_t)a->vm.pid;
	a->o.addr = argv[optind];
	r = progress_init(&a->progress, a->how, e);
	return r ? r : engine_choose(a->io, &a->o.engine, e);
}

/* One for each CPU, up to the protocol's limit. */
static unsigned int default_streams(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (cpus < 1)
		return 1;
	return cpus < WIRE_STREAMS_MAX ? (unsigned int)cpus : WIRE_STREAMS_MAX;
}

/* While it runs. What is wrong with the metrics is told at the end. */
static void show(const struct report *r, void *args)
{
	struct send_args *a = args;
	struct err ignored = { 0 };

	progress_show(r, &a->progress);
	if (!a->metrics || now_ns() < a->metrics_ns)
		return;
	/* A disk that takes its time must not prolong the blackout. */
	if (r->nr_rows > 1 && r->rows[r->nr_rows - 1].blackout)
		return;
	a->metrics_ns = now_ns() + METRICS_NS;
	metrics_write(a->metrics, a->o.qmp_path, r, NULL, &ignored);
}

/* How it ended, everywhere where that was asked for. */
static void tell(struct send_args *a, const struct report *r, const struct err *outcome)
{
	struct err e = { 0 };

	progress_end(&a->progress, r, outcome);
	if (outcome->exit)
		cmd_fail(outcome);
	if (a->progress.how != PROGRESS_JSON)
		report_print(stdout, r, outcome);
	if (a->json && report_write_json(a->json, r, outcome, &e))
		cmd_fail(&e);
	e.exit = GW_OK;
	if (a->metrics && metrics_write(a->metrics, a->o.qmp_path, r, outcome, &e))
		cmd_fail(&e);
}

int cmd_send(int argc, char **argv)
{
	struct send_args a = {
		.o = {
			.limits = limits_default, .timeout_ms = 30000, .resolve_s = 60, .streams = default_streams(),
			.zero_copy = ENGINE_ZC_AUTO,
		},
	};
	struct report report = { .phase = "connect" };
	struct err e = { 0 };

	if (parse(&a, argc, argv, &e))
		return cmd_fail(&e);
	if (a.help) {
		fputs(usage, stdout);
		return 0;
	}
	/* Better now than when the guest has moved. */
	if (a.metrics && metrics_write(a.metrics, a.o.qmp_path, &report, NULL, &e))
		return cmd_fail(&e);
	stop_install();
	a.o.progress = show;
	a.o.progress_arg = &a;
	sender_run(&a.o, &report, &e);
	tell(&a, &report, &e);
	return e.exit;
}
