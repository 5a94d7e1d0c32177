// SPDX-License-Identifier: GPL-2.0-only
/*
 * One synchronization: QEMU's way and godwit's, in turns, on the same VM and the same dirty pages.
 *
 * Each row has the same work inside both clocks:
 *
 *	without CLEAR	GODWIT_HARVEST against KVM_GET_DIRTY_LOG of each slot and QEMU's merge: what
 *			either waits for between two rounds, as both re-arm pages later, piece by
 *			piece, just before they send them
 *	with CLEAR	the same, and GODWIT_CLEAR or KVM_CLEAR_DIRTY_LOG of all that was found: the
 *			whole of the work
 *	stopped		both of these with the vCPU stopped, where the two above have it run; also,
 *			without CLEAR, against KVM_GET_DIRTY_LOG alone, which leaves out QEMU's
 *			merge
 *	vCPU lost	what a vCPU that writes to 64 pages all the time loses during the row with
 *			CLEAR and in the 20 ms after: kicks, TLB flushes, waits for KVM's locks, and
 *			the faults on its 64 pages
 *	TLB flushes	how often KVM stopped all vCPUs to flush their TLBs: a number that no other
 *			tenant of this machine can disturb
 *	refault		what it costs the vCPU to write to all dirty pages again, beyond what that
 *			takes when none is protected: the price of the protection itself
 *
 * Sizes and densities that do not fit into this machine are said, not skipped in silence.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"

#define ROUNDS		5
#define MAX_ROUNDS	15
#define HOT_PAGES	64
#define MAX_PAGES	450000	/* an emulated vCPU takes some 20 us to write to a protected page */

enum way { GODWIT, PEER, WAYS };

/* Where godwit's time goes; the last one is what is left. */
enum { SLOTS, LOG, MAPPING, COLLECT, REST, PARTS };
static const char *const part_files[REST] = { "slots_ns", "vcpu_ns", "mapping_ns", "collect_ns" };

struct cell {
	unsigned int gib;
	unsigned int slots;
	unsigned int ppm;	/* dirty, of a million */
	unsigned int run;
	double learn_goal, lost_goal;
	bool quick;
};

/* By VM; the sparse ones first, since pages that were touched stay. */
static const struct cell cells[] = {
	{ 1, 1, 10, 1, 0, 0, false },
	{ 1, 1, 1000, 1, 0, 0, false },
	{ 1, 1, 10000, 64, 0, 0, false },
	{ 1, 1, 100000, 1, 1, 0, true },
	{ 1, 512, 1000, 1, 0, 0, false },
	{ 16, 16, 1000, 1, 0, 0, false },
	{ 16, 16, 10000, 64, 0, 0, false },
	{ 16, 16, 100000, 1, 1, 0, false },
	{ 64, 64, 10, 1, 0, 0, false },
	{ 64, 64, 1000, 64, 0, 0, false },
	{ 64, 64, 10000, 1, 0, 0, false },
	{ 64, 64, 100000, 1, 1, 0, false },
	{ 256, 1, 10, 1, 0, 0, true },
	{ 256, 1, 10, 64, 0, 0, false },
	{ 256, 1, 1000, 64, 0, 0, false },
	{ 256, 1, 1000, 1, 5, 2, true },
	{ 256, 1, 10000, 1, 0, 0, false },
	{ 256, 1, 100000, 1, 1, 0, false },
	{ 256, 512, 1000, 64, 0, 0, false },
	{ 256, 512, 1000, 1, 5, 2, true },
};

struct bench {
	struct target target;
	struct peer *peer;
	struct session session;
};

/*
 * One value for each round. learn: which pages are dirty; whole: the same, and all of them are
 * re-armed.
 */
struct clock {
	uint64_t learn[WAYS][MAX_ROUNDS], whole[WAYS][MAX_ROUNDS];
};

struct sample {
	struct clock running, stopped;
	uint64_t lost[WAYS][MAX_ROUNDS], flushes[WAYS][MAX_ROUNDS], refault[WAYS][MAX_ROUNDS];
	uint64_t get[MAX_ROUNDS];	/* of the peer's, stopped */
	uint64_t parts[PARTS][MAX_ROUNDS], peer_parts[PEER_CLEAR][MAX_ROUNDS];
};

/* Nothing but the work of one of them is inside the clock. */
static void sync_once(struct bench *b, enum way way, struct clock *c, unsigned int k)
{
	uint64_t begin = now_ns();

	if (way == GODWIT)
		require(!session_harvest(&b->session, NULL), "GODWIT_HARVEST");
	else
		peer_learn(b->peer);
	c->learn[way][k] = now_ns() - begin;
	if (way == GODWIT)
		require(!session_clear(&b->session, 0, 0, b->target.pages), "GODWIT_CLEAR");
	else
		peer_clear(b->peer);
	c->whole[way][k] = now_ns() - begin;
}

static uint64_t take(struct bench *b, enum way way)
{
	uint64_t n;

	if (way == PEER)
		return peer_take(b->peer);
	n = bits_count(&b->session.ram[0]);
	bits_forget(&b->session.ram[0]);
	return n;
}

static void read_parts(uint64_t *parts)
{
	for (unsigned int i = 0; i < REST; i++)
		parts[i] = session_number(part_files[i]);
}

static uint64_t above(uint64_t value, uint64_t base)
{
	return value > base ? value - base : 0;
}

/* How each part of the time without CLEAR came about. */
static void split_learn(struct bench *b, enum way way, const uint64_t *before, struct sample *s,
			unsigned int k)
{
	uint64_t after[REST], sum = 0;

	if (way == PEER) {
		for (unsigned int i = 0; i < PEER_CLEAR; i++)
			s->peer_parts[i][k] = peer_ns(b->peer, i);
		return;
	}
	read_parts(after);
	for (unsigned int i = 0; i < REST; i++) {
		s->parts[i][k] = after[i] - before[i];
		sum += s->parts[i][k];
	}
	s->parts[REST][k] = above(s->running.learn[GODWIT][k], sum);
}

static void expect(const struct pattern *p, enum way way, uint64_t found)
{
	if (found < p->pages || found > p->pages + HOT_PAGES)
		die("%s found %llu dirty pages of %llu", way == GODWIT ? "godwit" : "the peer",
		    (unsigned long long)found, (unsigned long long)p->pages);
}

static void measure_running(struct bench *b, const struct pattern *p, enum way way,
			    struct sample *s, unsigned int k)
{
	struct loss before, after;
	uint64_t flushes, parts[REST];

	read_parts(parts);
	flushes = target_stat(&b->target, "remote_tlb_flush_requests");
	runner_hot(&b->target, HOT_PAGES, 12);
	sleep_ms(10);
	before = runner_loss(&b->target);
	sync_once(b, way, &s->running, k);
	sleep_ms(20);
	after = runner_loss(&b->target);
	runner_stop(&b->target);
	s->flushes[way][k] = target_stat(&b->target, "remote_tlb_flush_requests") - flushes;
	s->lost[way][k] = after.lost_ns - before.lost_ns;
	split_learn(b, way, parts, s, k);
	expect(p, way, take(b, way));
}

static void measure_stopped(struct bench *b, const struct pattern *p, enum way way,
			    struct sample *s, unsigned int k)
{
	sync_once(b, way, &s->stopped, k);
	if (way == PEER)
		s->get[k] = peer_ns(b->peer, PEER_GET);
	expect(p, way, take(b, way));
}

static void run_cell(struct bench *b, const struct pattern *p, struct sample *s,
		     unsigned int rounds)
{
	uint64_t free_pass;

	/* The first writes allocate; the second ones meet no protection. */
	runner_dirty(&b->target, p);
	free_pass = runner_dirty(&b->target, p);
	session_settle(&b->session);
	for (unsigned int i = 0; i < rounds * WAYS; i++) {
		enum way way = (i / WAYS + i) % WAYS;
		unsigned int k = i / WAYS;

		runner_dirty(&b->target, p);
		measure_running(b, p, way, s, k);
		s->refault[way][k] = above(runner_dirty(&b->target, p), free_pass);
		measure_stopped(b, p, way, s, k);
	}
	session_settle(&b->session);
}

static void name_cell(const struct cell *c, char *name, size_t size)
{
	snprintf(name, size, "%u GiB, %u slots, %g %% %s", c->gib, c->slots, c->ppm / 1e4,
		 c->run == 1 ? "random" : "runs");
}

static void say_scaled(const struct cell *c, const char *what, const char *unit, double scale,
		       const char *peer, uint64_t *godwit, uint64_t *other, unsigned int rounds,
		       double goal)
{
	char cell[64], name[128];

	name_cell(c, cell, sizeof(cell));
	snprintf(name, sizeof(name), "sync %s: %s", what, cell);
	result_add(name, unit, (double)median(godwit, rounds) / scale, peer,
		   (double)median(other, rounds) / scale, goal);
}

static void say(const struct cell *c, const char *what, const char *peer, uint64_t *godwit,
		uint64_t *other, unsigned int rounds, double goal)
{
	say_scaled(c, what, "us", 1e3, peer, godwit, other, rounds, goal);
}

/* At best: on a busy machine the median is about its other tenants. */
static double best_us(const uint64_t *values, unsigned int n)
{
	uint64_t best = values[0];

	for (unsigned int i = 1; i < n; i++)
		if (values[i] < best)
			best = values[i];
	return (double)best / 1e3;
}

static void say_parts(struct sample *s, unsigned int rounds)
{
	static const char *const parts[PARTS] = {
		"slots", "log", "page tables", "collect", "rest",
	};
	static const char *const peer_parts[PEER_CLEAR] = { "GET", "merge" };

	printf("    without CLEAR at best, us: godwit %.0f:",
	       best_us(s->running.learn[GODWIT], rounds));
	for (unsigned int i = 0; i < PARTS; i++)
		printf(" %s %.0f", parts[i], best_us(s->parts[i], rounds));
	printf("; qemu %.0f:", best_us(s->running.learn[PEER], rounds));
	for (unsigned int i = 0; i < PEER_CLEAR; i++)
		printf(" %s %.0f", peer_parts[i], best_us(s->peer_parts[i], rounds));
	printf("\n    with CLEAR at best, us: godwit %.0f; qemu %.0f\n",
	       best_us(s->running.whole[GODWIT], rounds), best_us(s->running.whole[PEER], rounds));
	printf("    vCPU lost at best, us: godwit %.0f; qemu %.0f\n",
	       best_us(s->lost[GODWIT], rounds), best_us(s->lost[PEER], rounds));
}

static void report_clock(const struct cell *c, const char *state, struct clock *t,
			 unsigned int rounds, double goal)
{
	char what[32];

	snprintf(what, sizeof(what), "without CLEAR%s", state);
	say(c, what, "qemu", t->learn[GODWIT], t->learn[PEER], rounds, goal);
	snprintf(what, sizeof(what), "with CLEAR%s", state);
	say(c, what, "qemu", t->whole[GODWIT], t->whole[PEER], rounds, 0);
}

static void report(const struct cell *c, struct sample *s, unsigned int rounds)
{
	report_clock(c, "", &s->running, rounds, c->learn_goal);
	say_parts(s, rounds);
	report_clock(c, ", stopped", &s->stopped, rounds, 0);
	say(c, "without CLEAR, stopped, against GET alone", "get_dirty_log",
	    s->stopped.learn[GODWIT], s->get, rounds, 0);
	say(c, "vCPU lost", "qemu", s->lost[GODWIT], s->lost[PEER], rounds, c->lost_goal);
	say_scaled(c, "TLB flushes", "flush", 1, "qemu", s->flushes[GODWIT], s->flushes[PEER],
		   rounds, 0);
	say(c, "refault", "qemu", s->refault[GODWIT], s->refault[PEER], rounds, 0);
}

/* Each page in the page cache, its two page tables at worst, and some of the page cache's tree. */
static bool fits(uint64_t pages, uint64_t vm_pages)
{
	uint64_t tables = 2 * (pages < vm_pages / 512 ? pages : vm_pages / 512);
	uint64_t need = (pages + tables) * PAGE + pages * 600 + 512 * MIB;
	uint64_t have = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * PAGE;

	if (need <= have && pages <= MAX_PAGES)
		return true;
	printf("not measured: %llu dirty pages of %llu GiB need %llu of %llu MiB free; "
	       "the limit is %u pages\n",
	       (unsigned long long)pages, (unsigned long long)(vm_pages * PAGE / GIB),
	       (unsigned long long)(need / MIB), (unsigned long long)(have / MIB), MAX_PAGES);
	return false;
}

static void open_bench(struct bench *b, const struct cell *c)
{
	target_open(&b->target, c->gib * GIB, c->slots, false);
	b->peer = peer_new(&b->target);
	session_begin(&b->session, b->target.vm.fd, &b->target.ram.fd, 1);
	/* Everything counts as written at first. */
	session_settle(&b->session);
}

static void close_bench(struct bench *b)
{
	session_close(&b->session);
	/* 512 slots take their time, and session_number() reads the only session. */
	require(!sessions_wait_none_within(30000), "a session that retires");
	peer_free(b->peer);
	target_close(&b->target);
}

static void bench_cell(struct bench *b, const struct cell *c)
{
	struct pattern p = { .run = c->run, .seed = 12345 };
	struct sample s;
	unsigned int rounds;

	p.pages = b->target.pages * c->ppm / 1000000 / c->run * c->run;
	if (p.pages < c->run)
		p.pages = c->run;
	if (!fits(p.pages, b->target.pages))
		return;
	rounds = p.pages < 10000 ? MAX_ROUNDS : ROUNDS;
	run_cell(b, &p, &s, rounds);
	report(c, &s, rounds);
}

static bool wanted(const struct cell *c, bool quick, const char *match)
{
	char name[64];

	name_cell(c, name, sizeof(name));
	return match ? !!strstr(name, match) : !quick || c->quick;
}

void bench_sync(bool quick, const char *match)
{
	struct bench b;
	const struct cell *open = NULL;

	for (const struct cell *c = cells; c < cells + sizeof(cells) / sizeof(cells[0]); c++) {
		if (!wanted(c, quick, match))
			continue;
		if (!open || open->gib != c->gib || open->slots != c->slots) {
			if (open)
				close_bench(&b);
			open_bench(&b, c);
			open = c;
		}
		bench_cell(&b, c);
	}
	if (open)
		close_bench(&b);
}
