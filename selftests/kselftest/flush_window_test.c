// SPDX-License-Identifier: GPL-2.0-only
/*
 * The time between dirty bits that a sweep takes and the flush of the TLBs, made long by a delay in
 * the module: what the VMM stores then, through translations that set no bit, is not lost whatever
 * the kernel concludes from a clean entry. Of private RAM, and of a RAM file, which the VMM maps as
 * well. Each safeguard, switched off, loses stores.
 *
 * CPU 1 stores, with real-time priority, so that nothing else runs there that would cost it its
 * translations. All else is on CPU 0: the harvest sleeps in its delay, and reclaim comes meanwhile.
 * MADV_PAGEOUT begins with a flush if reclaim has unmapped pages of the process before, so each try
 * has a process, a VM and a session of its own.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "kst.h"
#include "priv.h"

#define BYTES		(4 * MIB)
#define PART		(2 * MIB)	/* goes to swap at a time */
#define HOT		4U		/* pages, at the start: reclaim takes them first */
#define WINDOW_MS	400
#define TRIES		8
#define MANY		48		/* until a store is lost, where one must be */

FIXTURE(window) {
	bool on;
};

FIXTURE_VARIANT(window) {
	bool file;	/* a RAM file, by descriptor */
};

FIXTURE_VARIANT_ADD(window, private_ram) { .file = false };
FIXTURE_VARIANT_ADD(window, ram_file) { .file = true };

FIXTURE_SETUP(window)
{
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "one CPU");
	swap_on();
	self->on = true;
}

FIXTURE_TEARDOWN(window)
{
	if (!self->on)
		return;
	rows_on(ALL_ROWS);
	flush_window(0);
	swap_off();
}

/* Between the threads of one try, and to the test. */
static struct told {
	atomic_bool ready;	/* the storing thread has its translations */
	atomic_bool harvesting;
	atomic_bool harvested;
	atomic_bool paged_out;
	atomic_bool paused;	/* the window has begun */
	bool in_the_window;
	uint64_t lost;
	uint64_t missed;
} *told;

static struct priv p;

static volatile uint64_t *hot(unsigned int i)
{
	return (volatile uint64_t *)(p.map + i * PAGE);
}

static void to_real_time(void)
{
	struct sched_param priority = { .sched_priority = 1 };

	pin_to_cpu(1);
	require(!sched_setscheduler(0, SCHED_FIFO, &priority), "SCHED_FIFO");
}

/*
 * CPU 1: counts in each hot page, without a system call, until both the harvest and reclaim are
 * over.
 */
static void *count_up(void *unused)
{
	uint64_t expect[HOT], seen;
	unsigned int i;

	to_real_time();
	for (i = 0; i < HOT; i++)
		expect[i] = *hot(i);
	while (!told->harvested || !told->paged_out) {
		for (i = 0; i < HOT; i++) {
			seen = *hot(i);
			told->lost += seen != expect[i];
			*hot(i) = expect[i] = seen + 1;
		}
		told->ready = true;
	}
	return unused;
}

/* The only one that waits. */
static void *harvest(void *unused)
{
	pin_to_cpu(0);
	flush_window(WINDOW_MS);
	told->harvesting = true;
	require(!session_harvest(&p.s, NULL), "a harvest");
	told->harvested = true;
	flush_window(0);
	return unused;
}

static void begin_file(void)
{
	int fd = sized_memfd(BYTES, 0);

	p.map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	require(p.map != MAP_FAILED, "mmap");
	memset(p.map, 1, BYTES);
	vm_create(&p.vm, 1, 3);
	require(!vm_slot(&p.vm, 1, 0, RAM_GPA, BYTES, p.map), "the RAM's slot");
	session_begin(&p.s, p.vm.fd, &fd, 1);
	session_settle(&p.s);
	require(!session_harvest(&p.s, NULL), "a harvest");
}

static void begin_private(void)
{
	require(!priv_map(&p, PRIV_4K, BYTES), "private RAM");
	memset(p.map, 1, BYTES);
	priv_begin(&p, 1, BYTES);
	priv_round(&p, true);
}

static void wait_for_the_window(void)
{
	while (!told->paused && !told->harvested) {
		told->paused = in_flush_window();
		sleep_ms(1);
	}
}

/* One try. Reclaim comes in the window, and again until the harvest is over. */
static void page_out_beside_a_harvest(bool file)
{
	pthread_t storing, harvesting;

	pin_to_cpu(0);
	if (file)
		begin_file();
	else
		begin_private();
	require(!pthread_create(&storing, NULL, count_up, NULL), "pthread_create");
	while (!told->ready)
		sched_yield();
	require(!pthread_create(&harvesting, NULL, harvest, NULL), "pthread_create");
	while (!told->harvesting)
		sched_yield();
	wait_for_the_window();
	told->in_the_window = in_flush_window();
	do {
		require(!madvise(p.map, PART, MADV_PAGEOUT), "MADV_PAGEOUT");
		sleep_ms(WINDOW_MS / 8);
	} while (!told->harvested);
	told->paged_out = true;
	pthread_join(harvesting, NULL);
	pthread_join(storing, NULL);
	if (!file) {
		priv_round(&p, false);
		told->missed = priv_differs(&p);
	}
	_exit(0);
}

struct sum {
	uint64_t lost;
	uint64_t missed;
	unsigned int in_the_window;
};

static void try_once(struct sum *sum, void (*run)(bool file), bool file)
{
	pid_t pid;

	told = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	require(told != MAP_FAILED, "mmap");
	pid = fork_child();
	if (!pid)
		run(file);
	require(!wait_process(pid), "a try");
	sum->lost += told->lost;
	sum->missed += told->missed;
	sum->in_the_window += told->in_the_window;
	munmap(told, PAGE);
	sessions_wait_none();
}

static void say(struct __test_metadata *_metadata, const struct sum *sum, unsigned int tries)
{
	TH_LOG("%u tries, %u in the window; %lu stores lost, %lu pages missed", tries,
	       sum->in_the_window, sum->lost, sum->missed);
}

/* Reclaim gives up where it finds the lock taken, or waits for the flush. */
TEST_F_TIMEOUT(window, no_store_is_lost, 300)
{
	struct sum sum = { 0 };
	unsigned int i;

	if (!self->on)
		return;
	for (i = 0; i < MANY && sum.in_the_window < TRIES; i++)
		try_once(&sum, page_out_beside_a_harvest, variant->file);
	say(_metadata, &sum, i);
	PROOF(EXPECT_EQ(0, sum.lost));
	PROOF(EXPECT_EQ(0, sum.missed));
	EXPECT_EQ(TRIES, sum.in_the_window);
}

TEST_F_TIMEOUT(window, rmap_let_in_loses_stores, 300)
{
	struct sum sum = { 0 };
	unsigned int i;

	if (!self->on)
		return;
	safeguard_off(SAFE_RMAP);
	for (i = 0; i < MANY && !sum.lost; i++)
		try_once(&sum, page_out_beside_a_harvest, variant->file);
	say(_metadata, &sum, i);
	EXPECT_LT(0, sum.in_the_window);
	EXPECT_LT(0, sum.lost);
}

/*
 * Pages in the swap cache, with an older copy on the device, whose entry alone knows that they were
 * written since. Reclaim does not write out again what it believes to be clean.
 */
static uint64_t lost_behind_the_swap_cache(void)
{
	uint64_t at, lost = 0;

	begin_private();
	require(!madvise(p.map, PART, MADV_PAGEOUT), "MADV_PAGEOUT");
	for (at = 0; at < PART; at += PAGE)
		(void)*(volatile uint64_t *)(p.map + at);
	for (at = 0; at < PART; at += PAGE)
		* (volatile uint64_t *)(p.map + at) = at + 7;
	priv_round(&p, true);
	require(!madvise(p.map, PART, MADV_PAGEOUT), "MADV_PAGEOUT");
	for (at = 0; at < PART; at += PAGE)
		lost += *(volatile uint64_t *)(p.map + at) != at + 7;
	rows_on(ALL_ROWS);
	priv_end(&p);
	return lost;
}

FIXTURE(swap_cache) {
};

FIXTURE_SETUP(swap_cache)
{
	swap_on_device();
}

FIXTURE_TEARDOWN(swap_cache)
{
	rows_on(ALL_ROWS);
	swap_off();
}

TEST_F_TIMEOUT(swap_cache, no_store_is_lost, 120)
{
	PROOF(EXPECT_EQ(0, lost_behind_the_swap_cache()));
}

TEST_F_TIMEOUT(swap_cache, clean_folio_loses_stores, 120)
{
	safeguard_off(SAFE_FOLIO);
	EXPECT_LT(0, lost_behind_the_swap_cache());
}

#define LAZY	64U	/* pages */

static void store_lazy(uint64_t value)
{
	unsigned int i;

	for (i = 0; i < LAZY; i++)
		*hot(i) = value;
}

/* CPU 1: in the window it gives pages back, which then are its to store to, and to keep. */
static void *free_and_store(void *unused)
{
	to_real_time();
	store_lazy(2);
	/*
	 * Dirty, but not accessed, as after an aging of pages: MADV_FREE flushes neither before nor
	 * after the sweep.
	 */
	require(!file_write("/proc/self/clear_refs", "1"), "clear_refs");
	store_lazy(3);
	told->ready = true;
	/* Without a system call, which might cost it its translations: another thread looks. */
	while (!told->paused && !told->harvested)
		;
	require(!madvise(p.map, LAZY * PAGE, MADV_FREE), "MADV_FREE");
	store_lazy(4);
	told->in_the_window = in_flush_window();
	return unused;
}

static void free_beside_a_harvest(bool file)
{
	pthread_t storing, harvesting;
	unsigned int i;

	(void)file;
	pin_to_cpu(0);
	begin_private();
	require(!pthread_create(&storing, NULL, free_and_store, NULL), "pthread_create");
	while (!told->ready)
		sched_yield();
	require(!pthread_create(&harvesting, NULL, harvest, NULL), "pthread_create");
	while (!told->harvesting)
		sched_yield();
	wait_for_the_window();
	pthread_join(harvesting, NULL);
	pthread_join(storing, NULL);
	require(!madvise(p.map, LAZY * PAGE, MADV_PAGEOUT), "MADV_PAGEOUT");
	for (i = 0; i < LAZY; i++)
		told->lost += *hot(i) != 4;
	priv_round(&p, false);
	told->missed = priv_differs(&p);
	_exit(0);
}

FIXTURE(lazy) {
	bool on;
};

FIXTURE_SETUP(lazy)
{
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "one CPU");
	swap_on();
	self->on = true;
}

FIXTURE_TEARDOWN(lazy)
{
	if (!self->on)
		return;
	rows_on(ALL_ROWS);
	flush_window(0);
	swap_off();
}

TEST_F_TIMEOUT(lazy, no_store_is_lost, 300)
{
	struct sum sum = { 0 };
	unsigned int i;

	if (!self->on)
		return;
	for (i = 0; i < MANY && sum.in_the_window < TRIES; i++)
		try_once(&sum, free_beside_a_harvest, false);
	say(_metadata, &sum, i);
	EXPECT_EQ(TRIES, sum.in_the_window);
	PROOF(EXPECT_EQ(0, sum.lost));
	PROOF(EXPECT_EQ(0, sum.missed));
}

TEST_F_TIMEOUT(lazy, not_kept_loses_stores, 300)
{
	struct sum sum = { 0 };
	unsigned int i;

	if (!self->on)
		return;
	safeguard_off(SAFE_LAZY);
	for (i = 0; i < MANY && !sum.lost; i++)
		try_once(&sum, free_beside_a_harvest, false);
	say(_metadata, &sum, i);
	SHOWN(sum.lost);
}

KST_MAIN
