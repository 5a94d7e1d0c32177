// SPDX-License-Identifier: GPL-2.0-only
/*
 * Harvests beside reclaim: a store is never lost, neither to the module nor to the process that stores.
 *
 * Between the dirty bit that a sweep takes and the flush of the TLBs, a thread stores through a
 * translation that sets no bit. Reclaim that finds the entry clean meanwhile writes the page to swap
 * without a flush, and what is stored afterwards is lost with the page: the thread reads an older
 * value. That time is held open: the file is mapped many times, so that a sweep takes long after it
 * has cleaned the hot pages, and the storing thread has real-time priority on the CPU that sweeps,
 * which it leaves to the sweep for moments only.
 *
 * The file: many mappings | the storing process' zone, mapped once | many mappings. The sweep goes
 * through it in this order. While it is in the first part the thread gets its translations back, which
 * the worker's visit to the VMM's mm has cost it; the second part is the window. MADV_PAGEOUT begins
 * with a flush if reclaim has unmapped pages of this process before, which would close the window: so
 * each try has a process of its own, and one MADV_PAGEOUT, some time in the sweep.
 */
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "kst.h"
#include "priv.h"
#include "rig.h"

#define PART		(16 * MIB)	/* before and behind the zone */
#define ZONE		(2 * MIB)
#define COLD		(MIB / 2)	/* of the zone, with the hot pages: what goes to swap at a time */
#define BYTES		(2 * PART + ZONE)
#define MAPPINGS	64		/* of each part */
#define HOT		4U		/* pages, at the start of the zone: reclaim takes them first */
#define TRIES		30		/* at most: until this many came in time: */
#define ENOUGH		6
#define TURN_MS		20		/* of the storing thread, and then for the sweep: */
#define PAUSE_US	300

FIXTURE(reclaim) {
	struct rig rig;
	uint8_t *many[2 * MAPPINGS];
};

/* Between the test and the storing process. */
static struct told {
	volatile bool sweeping;
	volatile bool swept;
	volatile bool late;		/* reclaim comes when the sweep is over */
	volatile bool done;
	volatile unsigned int sweep_ms;	/* how long the last one took */
	volatile uint64_t turns;
	volatile uint64_t lost;
	volatile uint64_t paged_out;
} *told;

static uint8_t *zone;

static volatile uint64_t *hot(unsigned int i)
{
	return (volatile uint64_t *)(zone + i * PAGE);
}

/* CPU 1: counts in each hot page. */
static void *count_up(void *unused)
{
	struct sched_param priority = { .sched_priority = 1 };
	uint64_t expect[HOT], end, at;
	unsigned int i;

	pin_to_cpu(1);
	require(!sched_setscheduler(0, SCHED_FIFO, &priority), "SCHED_FIFO");
	for (i = 0; i < HOT; i++)
		expect[i] = *hot(i);
	while (!told->swept || !told->done) {
		/* Pushes the hot ones out of the CPU's batch of new pages, where reclaim does not see them. */
		for (at = HOT * PAGE; at < COLD; at += PAGE)
			(void)*(volatile uint8_t *)(zone + at);
		for (end = now_ms() + TURN_MS; now_ms() < end; )
			for (i = 0; i < HOT; i++) {
				uint64_t seen = *hot(i);

				told->lost += seen != expect[i];
				*hot(i) = expect[i] = seen + 1;
			}
		told->turns++;
		usleep(PAUSE_US);
	}
	return unused;
}

/* CPU 0: the hot pages go to swap in one batch with many that no thread stores to. */
static void page_out_once(struct rig *rig)
{
	pthread_t thread;

	zone = mmap(NULL, ZONE, PROT_READ | PROT_WRITE, MAP_SHARED, rig->ram.fd, PART);
	require(zone != MAP_FAILED && !munmap(rig->ram.map, BYTES), "a mapping of the zone alone");
	pin_to_cpu(0);
	pthread_create(&thread, NULL, count_up, NULL);
	while (!told->sweeping)
		sleep_ms(1);
	if (!told->late)
		sleep_ms(told->sweep_ms * (30 + rand() % 50) / 100);
	while (told->late && !told->swept)
		sleep_ms(1);
	require(!madvise(zone, COLD, MADV_PAGEOUT), "MADV_PAGEOUT");
	told->paged_out += told->late == told->swept;
	told->done = true;
	pthread_join(thread, NULL);
	_exit(0);
}

static void try_once(struct rig *rig, unsigned int step)
{
	pid_t pid = fork_child();

	if (!pid) {
		srand(step);
		page_out_once(rig);
	}
	wait_process(pid);
}

static uint8_t *map_part(struct rig *rig, uint64_t offset)
{
	uint8_t *at = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_SHARED, rig->ram.fd, offset);
	uint64_t i;

	require(at != MAP_FAILED, "a mapping");
	for (i = 0; i < PART; i += PAGE)
		(void)*(volatile uint8_t *)(at + i);
	return at;
}

FIXTURE_SETUP(reclaim)
{
	unsigned int i;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "one CPU");
	swap_on();
	ASSERT_EQ(0, rig_ram(&self->rig, RAM_TMPFS, BYTES));
	told = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, told);
	rig_writer(&self->rig, try_once);
	for (i = 0; i < 2 * MAPPINGS; i++)
		self->many[i] = map_part(&self->rig, i % 2 ? PART + ZONE : 0);
	rig_begin(&self->rig, 3, BYTES);
	rig_round(&self->rig, true);
}

FIXTURE_TEARDOWN(reclaim)
{
	unsigned int i;

	if (!self->rig.ram.map)
		return;
	rig_end(&self->rig);
	for (i = 0; i < 2 * MAPPINGS; i++)
		munmap(self->many[i], PART);
	swap_off();
}

/* The job runs on the CPU that asks for it. */
static void sweep_on_cpu(unsigned int cpu, struct rig *rig)
{
	uint64_t start;

	pin_to_cpu(cpu);
	start = now_ms();
	told->sweeping = true;
	require(!session_harvest(&rig->s, NULL), "a harvest");
	told->sweep_ms = now_ms() - start;
	told->swept = true;
	pin_to_cpu(0);
}

static void harvest_beside_reclaim(struct rig *rig)
{
	told->sweeping = told->swept = told->done = false;
	told->turns = 0;
	writer_step(&rig->writer);
	while (told->turns < 2)
		sleep_ms(1);
	/* The process' mapping is known by the second harvest. */
	require(!session_harvest(&rig->s, NULL), "a harvest");
	sweep_on_cpu(told->late ? 0 : 1, rig);
	while (rig->writer.shared->taken != rig->writer.shared->step)
		sleep_ms(1);
	shadow_take(&rig->shadow, &rig->s.ram[0]);
}

/* Reclaim beside a sweep, and behind one as in the control. */
TEST_F_TIMEOUT(reclaim, no_store_is_lost, 1200)	/* the settings of the run say less, unless all is slow */
{
	unsigned int i, late;

	if (!self->rig.ram.map)
		return;
	for (late = 0; late < 2; late++) {
		told->late = late;
		told->paged_out = 0;
		for (i = 0; i < TRIES && told->paged_out < ENOUGH; i++)
			harvest_beside_reclaim(&self->rig);
		TH_LOG("%lu of %u times paged out %s a sweep, the last one of %u ms; %lu stores lost", told->paged_out,
		       i, late ? "behind" : "beside", told->sweep_ms, told->lost);
		EXPECT_EQ(ENOUGH, told->paged_out);
	}
	PROOF(EXPECT_EQ(0, told->lost));
	rig_round(&self->rig, false);
	PROOF(EXPECT_EQ(0, shadow_differs(&self->rig.shadow)));
}

/*
 * The proof that this is a test: without a flush, stores are lost. The sweep's lock is still taken, which
 * lets reclaim in only when the storing thread is off its CPU, and has its translations checked when it comes
 * back; so here the sweep is on the other CPU, and reclaim comes when it is over.
 */
TEST_F_TIMEOUT(reclaim, flush_off_loses_stores, 1200)
{
	unsigned int i;

	if (!self->rig.ram.map)
		return;
	flush_off();
	told->late = true;
	for (i = 0; i < 3 * TRIES && !told->lost; i++)
		harvest_beside_reclaim(&self->rig);
	rows_on(ALL_ROWS);
	TH_LOG("%lu times paged out behind a sweep, the last one of %u ms; %lu stores lost", told->paged_out,
	       told->sweep_ms, told->lost);
	EXPECT_LT(0, told->lost);
}

KST_MAIN
