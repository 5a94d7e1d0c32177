// SPDX-License-Identifier: GPL-2.0-only
/*
 * kernel-bench [--quick] [--only sync|retire|sweep] [--match TEXT] RESULTS: needs two CPUs, KVM
 * and godwit.ko.
 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

#define CALLER_CPU	0

void die(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fputs("kernel-bench: ", stderr);
	vfprintf(stderr, fmt, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

static noreturn void usage(void)
{
	fprintf(stderr,
		"usage: kernel-bench [--quick] [--only sync|retire|sweep] [--match TEXT] RESULTS\n");
	exit(2);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "quick", no_argument, NULL, 'q' }, { "only", required_argument, NULL, 'o' },
		{ "match", required_argument, NULL, 'm' }, { 0 }
	};
	const char *only = NULL, *match = NULL;
	bool quick = false;
	int o;

	while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (o == 'q')
			quick = true;
		else if (o == 'o' && (!strcmp(optarg, "sync") || !strcmp(optarg, "retire") ||
				      !strcmp(optarg, "sweep")))
			only = optarg;
		else if (o == 'm')
			match = optarg;
		else
			usage();
	}
	if (optind != argc - 1)
		usage();
	pin_to_cpu(CALLER_CPU);
	printf("%-66s %12s %12s %-6s %7s\n", "", "godwit", "peer", "unit", "ratio");
	if (!only || !strcmp(only, "sync"))
		bench_sync(quick, match);
	if (!only || !strcmp(only, "retire"))
		bench_retire(quick);
	if (!only || !strcmp(only, "sweep"))
		bench_sweep(quick);
	results_write(argv[optind]);
	return 0;
}
