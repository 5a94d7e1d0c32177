// SPDX-License-Identifier: GPL-2.0-only
/*
 * A migration in miniature (attacked.h) beside all that a kernel does to private memory: an
 * attacker swaps out, forks, merges, gives back, protects, collapses, moves.
 */
#include <stddef.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "attacked.h"
#include "kst.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE	25
#endif

FIXTURE(attack) {
	struct priv p;
	struct attacked a;
	const char *event;
	unsigned long events;	/* before the attack */
	bool ksm;
};

static uint64_t pick(const struct attacked *a, uint64_t *seed, uint64_t npages, uint64_t first,
		     uint64_t end)
{
	return first + draw(seed) % ((end - first - npages) / a->unit + 1) * a->unit;
}

/* In the zone: from the store on it must stay. */
static void store_in_zone(struct attacked *a, uint64_t *seed, uint64_t first, uint64_t npages,
			  uint64_t step)
{
	uint64_t i;

	for (i = first; i < first + npages; i += step)
		a->stored[i] = *attacked_word(a, i) = draw(seed) >> 1 | 1;
}

static void attack_pageout(struct attacked *a, uint64_t *seed)
{
	madvise(a->ram->map + pick(a, seed, 512, 0, a->pages) * PAGE, 512 * PAGE, MADV_PAGEOUT);
	usleep(1000);
}

static void attack_fork(struct attacked *a, uint64_t *seed)
{
	pid_t pid = fork();
	unsigned int i;

	if (!pid) {
		for (i = 0; i < 20; i++) {
			*attacked_word(a, draw(seed) % a->pages) = 77;
			usleep(500);
		}
		_exit(0);
	}
	usleep(5000);
	if (pid > 0)
		wait_process(pid);
}

static void attack_free(struct attacked *a, uint64_t *seed)
{
	uint64_t first = pick(a, seed, 16, a->zone, a->pages), i;

	require(!madvise(a->ram->map + first * PAGE, 16 * PAGE, MADV_FREE), "MADV_FREE");
	for (i = first; i < first + 16; i++)
		a->stored[i] = UNKNOWN;
	store_in_zone(a, seed, first, 8, 1);
}

static void attack_dontneed(struct attacked *a, uint64_t *seed)
{
	uint64_t n = a->unit > 1 ? a->unit : 64, first = pick(a, seed, n, a->zone, a->pages), i;

	require(!madvise(a->ram->map + first * PAGE, n * PAGE, MADV_DONTNEED), "MADV_DONTNEED");
	for (i = first; i < first + n; i++)
		a->stored[i] = a->ram->kind == PRIV_FILE ? UNKNOWN : 0;
	usleep(draw(seed) % 2000);
	store_in_zone(a, seed, first, n, 3);
	usleep(draw(seed) % 2000);
}

static void attack_mprotect(struct attacked *a, uint64_t *seed)
{
	uint64_t n = a->unit > 1 ? a->unit : 1 + draw(seed) % 1024,
		 first = pick(a, seed, n, 0, a->pages);

	require(!mprotect(a->ram->map + first * PAGE, n * PAGE, PROT_READ), "mprotect");
	usleep(draw(seed) % 1000);
	require(!mprotect(a->ram->map + first * PAGE, n * PAGE, PROT_READ | PROT_WRITE), "mprotect");
}

/* Splits a huge page, and makes huge pages again. */
static void attack_collapse(struct attacked *a, uint64_t *seed)
{
	uint64_t first = draw(seed) % a->pages;

	require(!mprotect(a->ram->map + first * PAGE, PAGE, PROT_READ), "mprotect");
	require(!mprotect(a->ram->map + first * PAGE, PAGE, PROT_READ | PROT_WRITE), "mprotect");
	madvise(a->ram->map + first / 512 * 512 * PAGE, 512 * PAGE, MADV_COLLAPSE);
	usleep(500);
}

static void attack_mremap(struct attacked *a, uint64_t *seed)
{
	uint64_t n = 512, first = a->zone + draw(seed) % ((a->pages - a->zone) / n) * n, i;
	uint8_t *at = a->ram->map + first * PAGE, *away = a->ram->map + a->ram->bytes;

	require(mremap(at, n * PAGE, n * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away,
		"mremap");
	for (i = 0; i < n; i += 5)
		a->stored[first + i] = *(volatile uint64_t *)(away + i * PAGE) = draw(seed) | 1;
	usleep(draw(seed) % 3000);
	require(mremap(away, n * PAGE, n * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at,
		"mremap");
	usleep(draw(seed) % 3000);
}

static void attack_compact(struct attacked *a, uint64_t *seed)
{
	(void)a;
	(void)seed;
	require(!file_write("/proc/sys/vm/compact_memory", "1"), "compaction");
	usleep(1000);
}

/* To the other node, and back. */
static void attack_migrate(struct attacked *a, uint64_t *seed)
{
	static unsigned long from = 1, to = 2;

	(void)a;
	(void)seed;
	syscall(SYS_migrate_pages, 0, 8UL, &from, &to);
	from ^= 3;
	to ^= 3;
	usleep(1000);
}

static void attack_none(struct attacked *a, uint64_t *seed)
{
	(void)a;
	(void)seed;
	usleep(5000);
}

FIXTURE_VARIANT(attack) {
	enum priv_kind kind;
	void (*attack)(struct attacked *a, uint64_t *seed);
	const char *event;	/* in /proc/vmstat: it must have happened */
	bool ksm;
	bool numa_hints;
};

#define ANON_4K(name, ...)                          \
	FIXTURE_VARIANT_ADD(attack, anon_4k_##name) \
	{                                           \
		.kind = PRIV_4K, __VA_ARGS__        \
	}
#define ANON_THP(name, ...)                          \
	FIXTURE_VARIANT_ADD(attack, anon_thp_##name) \
	{                                            \
		.kind = PRIV_THP, __VA_ARGS__        \
	}
#define HUGETLBFS(name, ...)                          \
	FIXTURE_VARIANT_ADD(attack, hugetlbfs_##name) \
	{                                             \
		.kind = PRIV_2M, __VA_ARGS__          \
	}
#define A_FILE(name, ...)                        \
	FIXTURE_VARIANT_ADD(attack, file_##name) \
	{                                        \
		.kind = PRIV_FILE, __VA_ARGS__   \
	}

ANON_4K(none, .attack = attack_none);
ANON_4K(pageout, .attack = attack_pageout, .event = "pswpout");
ANON_4K(fork, .attack = attack_fork);
ANON_4K(free, .attack = attack_free, .event = "pglazyfree");
ANON_4K(dontneed, .attack = attack_dontneed);
ANON_4K(mprotect, .attack = attack_mprotect);
ANON_4K(mremap, .attack = attack_mremap);
ANON_4K(compact, .attack = attack_compact);
ANON_4K(migrate, .attack = attack_migrate, .event = "pgmigrate_success");
ANON_4K(ksm, .attack = attack_none, .ksm = true);
ANON_4K(ksm_and_pageout, .attack = attack_pageout, .event = "pswpout", .ksm = true);
ANON_4K(numa_hints, .attack = attack_none, .event = "numa_pte_updates", .numa_hints = true);
ANON_THP(none, .attack = attack_none);
ANON_THP(pageout, .attack = attack_pageout, .event = "pswpout");
ANON_THP(fork, .attack = attack_fork);
ANON_THP(free, .attack = attack_free, .event = "pglazyfree");
ANON_THP(dontneed, .attack = attack_dontneed);
ANON_THP(mprotect, .attack = attack_mprotect);
ANON_THP(mremap, .attack = attack_mremap);
ANON_THP(compact, .attack = attack_compact);
ANON_THP(migrate, .attack = attack_migrate, .event = "pgmigrate_success");
ANON_THP(collapse, .attack = attack_collapse, .event = "thp_split_pmd");
ANON_THP(ksm, .attack = attack_none, .ksm = true);
ANON_THP(numa_hints, .attack = attack_none, .event = "numa_pte_updates", .numa_hints = true);
HUGETLBFS(none, .attack = attack_none);
HUGETLBFS(fork, .attack = attack_fork);
HUGETLBFS(dontneed, .attack = attack_dontneed);
HUGETLBFS(mprotect, .attack = attack_mprotect);
HUGETLBFS(migrate, .attack = attack_migrate, .event = "pgmigrate_success");
A_FILE(none, .attack = attack_none);
A_FILE(pageout, .attack = attack_pageout, .event = "pswpout");
A_FILE(fork, .attack = attack_fork);
A_FILE(dontneed, .attack = attack_dontneed);
A_FILE(mprotect, .attack = attack_mprotect);
A_FILE(mremap, .attack = attack_mremap);
A_FILE(compact, .attack = attack_compact);
A_FILE(migrate, .attack = attack_migrate, .event = "pgmigrate_success");
A_FILE(ksm, .attack = attack_none, .ksm = true);

static void tune(const char *path, const char *value)
{
	require(!file_write(path, value), path);
}

static unsigned long vmstat(const char *name)
{
	char key[64];
	unsigned long value, found = 0;
	FILE *f = fopen("/proc/vmstat", "r");

	require(f, "/proc/vmstat");
	while (fscanf(f, "%63s %lu", key, &value) == 2)
		found = strcmp(key, name) ? found : value;
	fclose(f);
	return found;
}

#define NUMA	"/sys/kernel/debug/sched/numa_balancing/"

/* The kernel looks for pages on the wrong node ten times a second, and at once. */
static void begin_numa_hints(void)
{
	if (access(NUMA, F_OK))
		require(!mount("none", "/sys/kernel/debug", "debugfs", 0, NULL), "debugfs");
	tune(NUMA "scan_delay_ms", "10");
	tune(NUMA "scan_period_min_ms", "100");
	tune(NUMA "scan_period_max_ms", "200");
	tune("/proc/sys/kernel/numa_balancing", "1");
}

#define KSM	"/sys/kernel/mm/ksm/"
#define VALUES	3	/* of pages that are to be alike */

/* Pages are to be alike, and are merged, all the time. */
static void begin_ksm(const struct priv *p)
{
	require(!madvise(p->map, p->bytes, MADV_MERGEABLE), "MADV_MERGEABLE");
	tune(KSM "sleep_millisecs", "1");
	tune(KSM "pages_to_scan", "3000");
	tune(KSM "run", "1");
}

static bool met(const struct attacked *a)
{
	const FIXTURE_DATA(attack) *self =
		(const void *)((const char *)a - offsetof(FIXTURE_DATA(attack), a));

	return (!self->event || vmstat(self->event) > self->events) &&
	       (!self->ksm || file_number(KSM "pages_sharing") > 0);
}

FIXTURE_SETUP(attack)
{
	uint64_t bytes = 8 * MIB;

	swap_on();
	ASSERT_EQ(0, priv_map(&self->p, variant->kind, bytes)) {
		TH_LOG("no huge pages: the lab wants --hugepages 2M:16");
	}
	if (variant->ksm)
		begin_ksm(&self->p);
	if (variant->numa_hints)
		begin_numa_hints();
	self->event = variant->event;
	self->ksm = variant->ksm;
	self->a.attack = variant->attack;
	self->a.met = met;
	attacked_init(&self->a, &self->p, variant->ksm ? VALUES : 0);
	priv_begin(&self->p, 1, bytes);
}

FIXTURE_TEARDOWN(attack)
{
	if (!self->p.map)
		return;
	priv_end(&self->p);
	attacked_free(&self->a);
	if (variant->ksm)
		tune(KSM "run", "2");
	if (variant->numa_hints)
		tune("/proc/sys/kernel/numa_balancing", "0");
	swap_off();
}

TEST_F_TIMEOUT(attack, nothing_missed_nothing_lost, 120)
{
	if (!self->p.map)
		return;
	if (self->event)
		self->events = vmstat(self->event);
	PROOF(EXPECT_EQ(0, attacked_migrate(&self->a)));
	EXPECT_LT(0, self->a.attacks);
	EXPECT_TRUE(met(&self->a)) {
		TH_LOG("nothing of %s happened", variant->ksm ? "KSM's" : variant->event);
	}
}

KST_MAIN
