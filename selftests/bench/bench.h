/* SPDX-License-Identifier: GPL-2.0-only */
/* The guest that is measured, two ways to learn what it wrote, and what is measured of them. */
#ifndef GODWIT_BENCH_H
#define GODWIT_BENCH_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdnoreturn.h>

#include "host.h"
#include "ram.h"
#include "session.h"
#include "vm.h"

#define TARGET_GPA	(4 * GIB)
#define WORD_PAGES	64u

/* main.c. For what require() does not say. */
noreturn void __attribute__((format(printf, 1, 2))) die(const char *fmt, ...);

/**
 * struct target - a VM that shows one RAM file in slots 1 to @slots, one after the other, and its
 * vCPU
 * @ram: sparse, or of 2 MiB pages
 * @stats: KVM's statistics of the VM
 * @step_tsc: what one step of the hot program takes, undisturbed
 */
struct target {
	struct vm vm;
	struct ram ram;
	int stats;
	uint64_t pages, step_tsc;
	unsigned int slots, tsc_khz;
	pthread_t thread;
	pthread_mutex_t lock;	/* protects work and quit */
	pthread_cond_t cond;
	bool work, quit;
};

/* A set of pages: @pages in cells of @run pages next to each other. */
struct pattern {
	const char *name;
	uint64_t pages;
	uint64_t run;
	uint64_t seed;
};

/* What a disturbed guest lost, so far. */
struct loss {
	uint64_t steps;
	uint64_t lost_ns;
	uint64_t gaps;
};

/* target.c */
void target_open(struct target *t, uint64_t bytes, unsigned int slots, bool huge);
void target_close(struct target *t);
uint64_t target_slot_pages(const struct target *t);
void target_set_logging(struct target *t, unsigned int slot, bool on);
/* A statistic of KVM's, by its name. */
uint64_t target_stat(const struct target *t, const char *name);

/* runner.c */
void runner_open(struct target *t);
void runner_close(struct target *t);
/* Writes the set, waits for the end, and says how long it took. */
uint64_t runner_dirty(struct target *t, const struct pattern *p);
/*
 * Writes to @pages pages (a power of two) that lie 1 << @stride_shift bytes apart, until
 * runner_stop().
 */
void runner_hot(struct target *t, uint64_t pages, unsigned int stride_shift);
void runner_stop(struct target *t);
struct loss runner_loss(const struct target *t);

/* peer.c: what QEMU does */
struct peer;
enum peer_phase { PEER_GET, PEER_MERGE, PEER_CLEAR, PEER_PHASES };

struct peer *peer_new(struct target *t);
void peer_free(struct peer *p);
/* GET and merge: which pages are dirty. */
void peer_learn(struct peer *p);
/* CLEAR of each chunk that peer_learn() has found a dirty page in. */
void peer_clear(struct peer *p);
/* How long a phase of the last synchronization took. */
uint64_t peer_ns(const struct peer *p, enum peer_phase phase);
/* How many pages are dirty in what it found; forgets them. */
uint64_t peer_take(struct peer *p);

/* result.c */
uint64_t median(uint64_t *values, unsigned int n);
/* @goal is 0 for none. A ratio of 0 over 0 is 1. */
void result_add(const char *name, const char *unit, double godwit, const char *peer,
		double peer_value, double goal);
/* Merges with what other benchmarks have left in the file. */
void results_write(const char *path);

/* sync.c, retire.c, sweep.c; @match: only the cells whose name has it, or NULL */
void bench_sync(bool quick, const char *match);
void bench_retire(bool quick);
void bench_sweep(bool quick);

#endif
