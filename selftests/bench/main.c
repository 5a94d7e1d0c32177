// SPDX-License-Identifier: GPL-2.0-only
/* kernel-bench [--quick] [--only sync|retire] [--match TEXT] RESULTS: needs two CPUs, KVM and godwit.ko. */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

void sleep_ms(unsigned int ms)
{
	struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };

	nanosleep(&t, NULL);
}

void pin(unsigned int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("CPU %u: %m", cpu);
}

static noreturn void usage(void)
{
	fprintf(stderr, "usage: kernel-bench [--quick] [--only sync|retire] [--match TEXT] RESULTS\n");
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
		else if (o == 'o' && (!strcmp(optarg, "sync") || !strcmp(optarg, "retire")))
			only = optarg;
		else if (o == 'm')
			match = optarg;
		else
			usage();
	}
	if (optind != argc - 1)
		usage();
	pin(CALLER_CPU);
	printf("%-66s %12s %12s %-6s %7s\n", "", "godwit", "peer", "unit", "ratio");
	if (!only || !strcmp(only, "sync"))
		bench_sync(quick, match);
	if (!only || !strcmp(only, "retire"))
		bench_retire(quick);
	results_write(argv[optind]);
	return 0;
}
