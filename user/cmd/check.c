// SPDX-License-Identifier: GPL-2.0-only
#include <jansson.h>
#include <stdio.h>

#include "base/stop.h"
#include "check/check.h"
#include "cmd/cmd.h"
#include "plan/limits.h"

struct check_args {
	struct check_options o;
	struct cmd_vm vm;
	struct limits limits;
	const char *io;
	struct tls_options tls;
	bool json;
};

static const struct cmd_option check_options[] = {
	{
		"to", .value = "ADDR:PORT",
		.set = cmd_set_text, .offset = offsetof(struct check_args, o.addr),
		.help = "also ask the godwit receiver at ADDR:PORT, and measure the link",
		.more = "The receiver says whether it has the same RAM and is the machine that "
			"the guest was started on.\n"
			"Each difference has a row of its own, named\n"
			".Dq fit:\n"
			"and what it is about: what a guest sees of its machine type, vCPUs and "
			"their features, memory map, devices\n"
			"and their properties, and disks.\n"
			"Names, paths and backends on the host may differ.",
	},
	{
		"probe", .value = "MS", .max = 10000, .initial = "1000", .set = cmd_set_number,
		.offset = offsetof(struct check_args, o.probe_ms),
		.help = "measure the link's speed for MS milliseconds, over one connection; 0: do "
			"not",
	},
};

static const struct cmd_option check_pause = {
	"pause", .set = cmd_set_flag, .offset = offsetof(struct check_args, o.pause),
	.help = "for a migration without godwit.ko, with the guest stopped",
};

static const struct cmd_group check_groups[] = {
	{ "Options", CMD_ROWS(cmd_vm_options), offsetof(struct check_args, vm) },
	{ CMD_ROWS(check_options) },
	CMD_ONE(cmd_json, struct check_args, json),
	{ "As \"godwit send\" will be given them",
	  .options = &cmd_limits[CMD_DOWNTIME_LIMIT], .n = 1,
	  .base = offsetof(struct check_args, limits) },
	{ .options = &cmd_limits[CMD_COMPRESS], .n = 1,
	  .base = offsetof(struct check_args, limits) },
	{ .options = &cmd_limits[CMD_POSTCOPY], .n = 1,
	  .base = offsetof(struct check_args, limits) },
	CMD_ONE(cmd_device_state, struct check_args, o.wish),
	CMD_ONE(cmd_accept, struct check_args, o.accepted),
	CMD_ONE(cmd_peer_timeout, struct check_args, o.timeout_ms),
	{ CMD_ROWS(cmd_tls_options), offsetof(struct check_args, tls) },
	CMD_ONE(cmd_io, struct check_args, io),
	{ .options = &check_pause, .n = 1 },
	CMD_HELP,
	{ NULL }
};

static int check_parse(struct check_args *a, int argc, char **argv, struct err *e)
{
	int r = cmd_parse(&cmd_check, argc, argv, a, e);

	if (r)
		return r;
	r = cmd_find_vm(&cmd_check, &a->vm, e);
	a->o.qmp_path = a->vm.qmp;
	a->o.pid = a->vm.pid;
	a->o.downtime_limit_ms = a->limits.downtime_limit_ms;
	a->o.compress = a->limits.compress;
	a->o.postcopy = a->limits.postcopy;
	if (!r)
		r = engine_choose(a->io, &a->o.engine, e);
	return r ? r : tls_creds_open(&a->tls, TLS_SENDER, &a->o.tls, e);
}

static void check_print(const struct check *c)
{
	for (unsigned int i = 0; i < c->n; i++)
		printf("%-7s  %-13s  %s\n", check_result_name(c->rows[i].result), c->rows[i].name,
		       c->rows[i].text);
	puts(check_verdict(c) ? "\nIt cannot be migrated as it is." : "\nIt can be migrated.");
}

static void check_print_json(const struct check *c)
{
	json_t *rows = json_array(), *j;

	for (unsigned int i = 0; i < c->n; i++) {
		const struct check_row *row = &c->rows[i];

		j = json_pack("{s:s, s:s, s:s}", "check", row->name, "result",
			      check_result_name(row->result), "text", row->text);
		if (row->result == CHECK_NO)
			json_object_set_new(j, "status", json_string(gw_exit_name(row->exit)));
		json_array_append_new(rows, j);
	}
	j = json_pack("{s:s, s:i, s:o}", "status", gw_exit_name(check_verdict(c)), "exit",
		      (int)check_verdict(c), "rows", rows);
	json_dumpf(j, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(j);
}

static int check_main(int argc, char **argv)
{
	struct check_args a = { 0 };
	struct err e = { 0 };
	struct check c;

	if (check_parse(&a, argc, argv, &e))
		return cmd_fail(&e);
	stop_install();
	check_run(&a.o, &c);
	tls_creds_free(a.o.tls);
	if (a.json)
		check_print_json(&c);
	else
		check_print(&c);
	return check_verdict(&c);
}

const struct command cmd_check = {
	"check", "check whether a guest can be migrated, and what to change if not",
	.usage = "(--qmp SOCKET | --domain NAME) [--to ADDR:PORT] [options]",
	.about = "Goes through all that \"godwit send\" would refuse, without side effects on "
		"either host; the receiver goes on waiting. The exit status is the one that "
		"\"godwit send\" would refuse with, 0 if it would not refuse.",
	.groups = check_groups, .reports = true, .main = check_main,
};
