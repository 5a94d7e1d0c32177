// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <jansson.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/stop.h"
#include "cmd/cmd.h"
#include "estimate/rate.h"
#include "estimate/session.h"
#include "page/page.h"

struct rate_args {
	struct rate_options o;
	const char *qmp;
	pid_t pid;
	unsigned int sample_pages;
	bool json;
};

static const struct cmd_option rate_options[] = {
	{
		"pid", .value = "PID",
		.set = cmd_set_pid, .offset = offsetof(struct rate_args, pid),
		.help = "the QEMU process",
	},
	{
		"qmp", .value = "SOCKET",
		.set = cmd_set_text, .offset = offsetof(struct rate_args, qmp),
		.help = "the QEMU behind the QMP socket SOCKET instead",
	},
	{
		"seconds", .value = "S", .min = 1, .max = 86400, .initial = "5",
		.set = cmd_set_number,
		.offset = offsetof(struct rate_args, o.seconds),
		.help = "watch the guest for S seconds",
	},
	{
		"interval", .value = "MS", .min = 10, .max = 60000, .initial = "1000",
		.set = cmd_set_number,
		.offset = offsetof(struct rate_args, o.interval_ms),
		.help = "count a page that is written often once in MS milliseconds",
		.more = "Take about what a round of a migration would.",
	},
	{
		"sample", .value = "PAGES", .min = 64, .max = 1u << 30, .initial = "16384",
		.set = cmd_set_number,
		.offset = offsetof(struct rate_args, sample_pages),
		.help = "watch PAGES pages: more are more exact, and disturb the guest more",
	},
};

static const struct cmd_group rate_groups[] = {
	{ "Options", CMD_ROWS(rate_options) },
	CMD_ONE(cmd_json, struct rate_args, json),
	CMD_HELP,
	{ NULL }
};

static int rate_parse(struct rate_args *a, int argc, char **argv, struct err *e)
{
	int r = cmd_parse(&cmd_rate, argc, argv, a, e);

	if (!r && !a->pid == !a->qmp)
		r = err_set(e, GW_USAGE, EINVAL,
			    "rate needs --pid PID or --qmp SOCKET: see \"godwit rate --help\"");
	a->o.sample_pages = a->sample_pages;
	return r;
}

static int rate_take(const struct rate_args *a, struct rate *out, struct err *e)
{
	struct vm vm = { .pidfd = -1, .vm_fd = -1 };
	struct session session = { .vm = NULL };
	struct qmp *qmp = NULL;
	int r = 0;

	if (a->qmp)
		r = qmp_open(a->qmp, 30000, &qmp, e);
	if (!r)
		r = vm_find(qmp, a->pid, VM_KVM, &vm, e);
	if (!r)
		r = session_open(&session, &vm, qmp, e);
	if (!r)
		r = rate_measure(&vm, session.source, &a->o, out, e);
	session_close(&session);
	vm_close(&vm);
	qmp_close(qmp);
	return r;
}

static double rate_mib(double pages)
{
	return pages * PAGE_BYTES / (1 << 20);
}

static void rate_print(const struct rate *r)
{
	printf("dirty rate      %10.0f pages/s  %8.1f MiB/s  (+/- %.1f)\n", r->dirty_pages_per_s,
	       rate_mib(r->dirty_pages_per_s), rate_mib(r->error_pages_per_s));
	printf("working set     %10.0f pages    %8.1f MiB  written in %.1f s\n",
	       r->working_set_pages, rate_mib(r->working_set_pages), (double)r->elapsed_ns / 1e9);
	printf("sample          %10llu pages of %llu, %llu intervals\n",
	       (unsigned long long)r->sample_pages, (unsigned long long)r->total_pages,
	       (unsigned long long)r->intervals);
}

static void rate_print_json(const struct rate *r)
{
	json_t *j = json_pack("{s:f, s:f, s:f, s:I, s:I, s:I, s:f}", "dirty-pages-per-second",
			      r->dirty_pages_per_s, "dirty-pages-per-second-error",
			      r->error_pages_per_s, "working-set-pages", r->working_set_pages,
			      "pages", (json_int_t)r->total_pages, "sample-pages",
			      (json_int_t)r->sample_pages, "intervals", (json_int_t)r->intervals,
			      "elapsed-ms", (double)r->elapsed_ns / 1e6);

	json_dumpf(j, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(j);
}

static int rate_main(int argc, char **argv)
{
	struct rate_args a = { 0 };
	struct err e = { 0 };
	struct rate rate;

	if (rate_parse(&a, argc, argv, &e))
		return cmd_fail(&e);
	stop_install();
	a.o.seed = now_ns();
	if (rate_take(&a, &rate, &e))
		return cmd_fail(&e);
	if (a.json)
		rate_print_json(&rate);
	else
		rate_print(&rate);
	return 0;
}

const struct command cmd_rate = {
	"rate", "measure how fast a guest writes to its memory",
	.usage = "(--pid PID | --qmp SOCKET) [options]",
	.about = "Estimates from a sample of pages how fast a running guest writes to its memory, "
		"and to how much of it.",
	.groups = rate_groups, .reports = true, .main = rate_main,
};
