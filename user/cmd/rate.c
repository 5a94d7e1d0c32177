// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>

#include "cmd/cmd.h"
#include "io/sock.h"
#include "io/stop.h"
#include "migrate/rate.h"
#include "page/page.h"

static const char usage[] =
	"usage: godwit rate (--pid PID | --qmp SOCKET) [options]\n"
	"\n"
	"Estimates how fast a running guest writes to its memory, and to how much of it, from a sample of pages.\n"
	"\n"
	"  --pid PID          the QEMU process\n"
	"  --qmp SOCKET       or its QMP socket\n"
	"  --seconds S        how long to measure (5)\n"
	"  --interval MS      a page that is written often counts once in this time (1000)\n"
	"  --sample PAGES     how many pages to watch (16384): more are more exact, and disturb the guest more\n"
	"  --json             as a JSON object\n";

static const struct option options[] = {
	{ "pid", required_argument, NULL, 'p' },
	{ "qmp", required_argument, NULL, 'q' },
	{ "seconds", required_argument, NULL, 's' },
	{ "interval", required_argument, NULL, 'i' },
	{ "sample", required_argument, NULL, 'n' },
	{ "json", no_argument, NULL, 'j' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 }
};

struct rate_args {
	struct rate_options o;
	const char *qmp;
	unsigned int pid;
	bool json;
	bool help;
};

static int parse_option(struct rate_args *a, int opt, struct err *e)
{
	unsigned int n;
	int r;

	switch (opt) {
	case 'p':
		return cmd_number("--pid", optarg, 1, 1u << 22, &a->pid, e);
	case 'q':
		a->qmp = optarg;
		return 0;
	case 's':
		return cmd_number("--seconds", optarg, 1, 86400, &a->o.seconds, e);
	case 'i':
		return cmd_number("--interval", optarg, 10, 60000, &a->o.interval_ms, e);
	case 'n':
		r = cmd_number("--sample", optarg, 64, 1u << 30, &n, e);
		a->o.sample_pages = n;
		return r;
	case 'j':
		a->json = true;
		return 0;
	case 'h':
		a->help = true;
		return 0;
	default:
		return err_set(e, GW_USAGE, EINVAL, "see \"godwit rate --help\"");
	}
}

static int parse(struct rate_args *a, int argc, char **argv, struct err *e)
{
	int opt, r = 0;

	while (!r && !a->help && (opt = getopt_long(argc, argv, "", options, NULL)) != -1)
		r = parse_option(a, opt, e);
	if (!r && !a->help && (optind != argc || !a->pid == !a->qmp))
		r = err_set(e, GW_USAGE, EINVAL, "rate needs --pid PID or --qmp SOCKET, and no argument: see \"godwit rate --help\"");
	return r;
}

static int measure(const struct rate_args *a, struct rate *out, struct err *e)
{
	struct vm vm = { .pidfd = -1, .vm_fd = -1 };
	struct dirty_source *source = NULL;
	struct qmp *qmp = NULL;
	int r = 0;

	if (a->qmp)
		r = qmp_open(a->qmp, 30000, &qmp, e);
	if (!r)
		r = vm_find(qmp, (pid_t)a->pid, VM_KVM, &vm, e);
	if (!r)
		r = source_kmod(&vm, -1, &source, e);
	if (!r)
		r = rate_measure(&vm, source, &a->o, out, e);
	if (source)
		source->ops->close(source, true);
	vm_close(&vm);
	qmp_close(qmp);
	return r;
}

static double mib(double pages)
{
	return pages * PAGE_BYTES / (1 << 20);
}

static void print(const struct rate *r)
{
	printf("dirty rate      %10.0f pages/s  %8.1f MiB/s  (+/- %.1f)\n", r->dirty_pages_per_s, mib(r->dirty_pages_per_s),
	       mib(r->error_pages_per_s));
	printf("working set     %10.0f pages    %8.1f MiB  written in %.1f s\n", r->working_set_pages,
	       mib(r->working_set_pages), (double)r->elapsed_ns / 1e9);
	printf("sample          %10llu pages of %llu, %llu intervals\n", (unsigned long long)r->sample_pages,
	       (unsigned long long)r->total_pages, (unsigned long long)r->intervals);
}

static void print_json(const struct rate *r)
{
	json_t *j = json_pack("{s:f, s:f, s:f, s:I, s:I, s:I, s:f}", "dirty-pages-per-second", r->dirty_pages_per_s,
			      "dirty-pages-per-second-error", r->error_pages_per_s, "working-set-pages",
			      r->working_set_pages, "pages", (json_int_t)r->total_pages, "sample-pages",
			      (json_int_t)r->sample_pages, "intervals", (json_int_t)r->intervals, "elapsed-ms",
			      (double)r->elapsed_ns / 1e6);

	json_dumpf(j, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(j);
}

int cmd_rate(int argc, char **argv)
{
	struct rate_args a = { .o = { .seconds = 5, .interval_ms = 1000, .sample_pages = 16384 } };
	struct err e = { 0 };
	struct rate rate;

	if (parse(&a, argc, argv, &e))
		return cmd_fail(&e);
	if (a.help) {
		fputs(usage, stdout);
		return 0;
	}
	stop_install();
	a.o.seed = now_ns();
	if (measure(&a, &rate, &e))
		return cmd_fail(&e);
	if (a.json)
		print_json(&rate);
	else
		print(&rate);
	return 0;
}
