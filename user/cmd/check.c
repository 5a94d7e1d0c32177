// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>

#include "check/check.h"
#include "cmd/cmd.h"
#include "fit/findings.h"
#include "io/stop.h"
#include "migrate/limits.h"

static const char usage[] =
	"usage: godwit check (--qmp SOCKET | --domain NAME) [--to ADDR:PORT] [options]\n"
	"\n"
	"Can this guest be migrated, and if not, what is to be changed? Nothing is changed on either host, and the\n"
	"receiver goes on waiting. The exit status is the one that \"godwit send\" would refuse with, 0 if it would not.\n"
	"\n"
	"  --qmp SOCKET           the source QEMU's QMP socket\n"
	"  --domain NAME          or the libvirt domain, which needs a second QMP socket (see README)\n"
	"  --pid PID              the QEMU process, if another process made the socket\n"
	"  --to ADDR:PORT         also ask the godwit receiver there, and measure the link\n"
	"  --probe MS             measure its speed for so long (1000); 0: do not\n"
	"  --downtime-limit MS    what \"godwit send\" will be given (300)\n"
	"  --device-state auto|migrate|save  likewise (auto)\n"
	"  --accept WHAT          likewise\n"
	"  --peer-timeout S       how long the receiver or QEMU may be silent (30)\n"
	"  --io auto|uring|poll   how to wait for the network (auto)\n"
	"  --pause                for a migration without godwit.ko, with the guest stopped\n"
	"  --json                 as a JSON object\n";

enum { OPT_TO = CMD_OWN, OPT_PROBE, OPT_LIMIT, OPT_DEVICE_STATE, OPT_ACCEPT, OPT_PEER_TIMEOUT, OPT_IO, OPT_PAUSE, OPT_JSON, OPT_HELP };

static const struct option options[] = {
	CMD_VM_OPTIONS,
	{ "to", required_argument, NULL, OPT_TO },
	{ "probe", required_argument, NULL, OPT_PROBE },
	{ "downtime-limit", required_argument, NULL, OPT_LIMIT },
	{ "device-state", required_argument, NULL, OPT_DEVICE_STATE },
	{ "accept", required_argument, NULL, OPT_ACCEPT },
	{ "peer-timeout", required_argument, NULL, OPT_PEER_TIMEOUT },
	{ "io", required_argument, NULL, OPT_IO },
	{ "pause", no_argument, NULL, OPT_PAUSE },
	{ "json", no_argument, NULL, OPT_JSON },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 }
};

struct check_args {
	struct check_options o;
	struct cmd_vm vm;
	struct limits limits;
	const char *io;
	bool json;
	bool help;
};

static int parse_option(struct check_args *a, int opt, struct err *e)
{
	switch (opt) {
	case CMD_QMP:
	case CMD_DOMAIN:
	case CMD_PID:
		return cmd_vm_option(&a->vm, opt, optarg, e);
	case OPT_TO:
		a->o.addr = optarg;
		return 0;
	case OPT_PROBE:
		return cmd_number("--probe", optarg, 0, 10000, &a->o.probe_ms, e);
	case OPT_LIMIT:
		return limits_set(&a->limits, "downtime-limit", optarg, e);
	case OPT_DEVICE_STATE:
		return way_parse(optarg, &a->o.wish, e);
	case OPT_ACCEPT:
		return fit_accept(optarg, &a->o.accepted, e);
	case OPT_PEER_TIMEOUT:
		return cmd_peer_timeout(optarg, &a->o.timeout_ms, e);
	case OPT_IO:
		a->io = optarg;
		return 0;
	case OPT_PAUSE:
		a->o.pause = true;
		return 0;
	case OPT_JSON:
		a->json = true;
		return 0;
	case OPT_HELP:
		a->help = true;
		return 0;
	default:
		return err_set(e, GW_USAGE, EINVAL, "see \"godwit check --help\"");
	}
}

static int parse(struct check_args *a, int argc, char **argv, struct err *e)
{
	int opt, r = 0;

	while (!r && !a->help && (opt = getopt_long(argc, argv, "", options, NULL)) != -1)
		r = parse_option(a, opt, e);
	if (r || a->help)
		return r;
	if (!a->vm.qmp == !a->vm.domain || optind != argc)
		return err_set(e, GW_USAGE, EINVAL,
			       "check needs --qmp SOCKET or --domain NAME, and no argument: see \"godwit check --help\"");
	r = cmd_find_domain(&a->vm, e);
	a->o.qmp_path = a->vm.qmp;
	a->o.pid = (pid_t)a->vm.pid;
	a->o.downtime_limit_ms = a->limits.downtime_limit_ms;
	return r ? r : engine_choose(a->io, &a->o.engine, e);
}

static void print(const struct check *c)
{
	for (unsigned int i = 0; i < c->n; i++)
		printf("%-7s  %-13s  %s\n", check_result_name(c->rows[i].result), c->rows[i].name, c->rows[i].text);
	puts(check_verdict(c) ? "\nIt cannot be migrated as it is." : "\nIt can be migrated.");
}

static void print_json(const struct check *c)
{
	json_t *rows = json_array(), *j;

	for (unsigned int i = 0; i < c->n; i++) {
		const struct check_row *row = &c->rows[i];

		j = json_pack("{s:s, s:s, s:s}", "check", row->name, "result", check_result_name(row->result), "text", row->text);
		if (row->result == CHECK_NO)
			json_object_set_new(j, "status", json_string(gw_exit_name(row->exit)));
		json_array_append_new(rows, j);
	}
	j = json_pack("{s:s, s:i, s:o}", "status", gw_exit_name(check_verdict(c)), "exit", (int)check_verdict(c), "rows", rows);
	json_dumpf(j, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(j);
}

int cmd_check(int argc, char **argv)
{
	struct check_args a = { .o = { .timeout_ms = 30000, .probe_ms = 1000 }, .limits = limits_default };
	struct err e = { 0 };
	struct check c;

	if (parse(&a, argc, argv, &e))
		return cmd_fail(&e);
	if (a.help) {
		fputs(usage, stdout);
		return 0;
	}
	stop_install();
	check_run(&a.o, &c);
	if (a.json)
		print_json(&c);
	else
		print(&c);
	return check_verdict(&c);
}
