// SPDX-License-Identifier: GPL-2.0-only
/*
 * The Linux guest's workload: writes and checks patterns in anonymous memory on
 * each CPU and, where there is a disk, reads it with O_DIRECT. Prints the lines of
 * the tiny guest. Options from the kernel's command line, for all CPUs together:
 * size= (MiB), rate= (pages per second), disk= (reads per second).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "content.h"

enum {
	PAGE		= 4096,
	PAGE_WORDS	= PAGE / sizeof(uint32_t),
	SECTOR_WORDS	= CONTENT_SECTOR_BYTES / sizeof(uint32_t),
	SECTORS		= PAGE / CONTENT_SECTOR_BYTES,
	BUFFERS		= 512,		/* a read page is checked until it is reused */
	SLICES		= 20,		/* of a second */
	NAPS		= 50,		/* of a second: how finely a gap is seen */
};

static unsigned int errors, reads;
static unsigned long option_size = 32, option_rate = 500, option_disk = 100;

static void complain(const char *what, unsigned long where)
{
	if (__atomic_fetch_add(&errors, 1, __ATOMIC_RELAXED) < 20)
		printf("error: %s %lu\n", what, where);
}

static void read_options(void)
{
	char line[4096], *word, *rest;
	FILE *f = fopen("/proc/cmdline", "r");

	if (!f || !fgets(line, sizeof(line), f))
		return;
	fclose(f);
	for (word = strtok_r(line, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) {
		sscanf(word, "size=%lu", &option_size);
		sscanf(word, "rate=%lu", &option_rate);
		sscanf(word, "disk=%lu", &option_disk);
	}
}

static void slice(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 1000000000 / SLICES }, NULL);
}

static void check_buffer(const unsigned char *at, unsigned long page)
{
	unsigned int i;

	for (i = 0; i < SECTORS; i++)
		if (content_check(at + i * CONTENT_SECTOR_BYTES, SECTOR_WORDS,
				  CONTENT_SECTOR, page * SECTORS + i, 0) >= 0)
			complain("disk sector", page * SECTORS + i);
}

static void *read_disk(void *path)
{
	static unsigned long holds[BUFFERS];	/* page + 1 */
	unsigned long pages, page = 0, buffer = 0, check = 0, i;
	int fd = open(path, O_RDONLY | O_DIRECT);
	unsigned char *area;
	uint64_t bytes;

	if (fd < 0)
		return NULL;
	if (ioctl(fd, BLKGETSIZE64, &bytes)) {
		complain("BLKGETSIZE64", errno);
		return NULL;
	}
	/* On its next turn a buffer must get another page, else a stale one looks right. */
	pages = bytes / PAGE;
	if (pages <= BUFFERS) {
		complain("disk too small, pages", pages);
		return NULL;
	}
	area = mmap(NULL, BUFFERS * PAGE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (area == MAP_FAILED || !option_disk)
		return NULL;
	for (;; slice()) {
		for (i = 0; i < (option_disk + SLICES - 1) / SLICES; i++) {
			if (pread(fd, area + buffer * PAGE, PAGE, page * PAGE) != PAGE)
				complain("disk read", page);
			check_buffer(area + buffer * PAGE, page);
			holds[buffer] = page + 1;
			__atomic_fetch_add(&reads, 1, __ATOMIC_RELAXED);
			page = (page + 1) % pages;
			buffer = (buffer + 1) % BUFFERS;
		}
		for (i = 0; i < 4; i++, check = (check + 1) % BUFFERS)
			if (holds[check])
				check_buffer(area + check * PAGE, holds[check] - 1);
	}
}

/* One for each CPU, pinned there; it shares nothing. */
struct writer {
	pthread_t thread;
	int cpu;
	unsigned long first, pages, rate;
	unsigned int seq, verified, sweeps;	/* tell() reads them meanwhile */
	unsigned int *table;
	unsigned char *area;
};

static unsigned int count(const unsigned int *of)
{
	return __atomic_load_n(of, __ATOMIC_RELAXED);
}

static void bump(unsigned int *of)
{
	__atomic_store_n(of, *of + 1, __ATOMIC_RELAXED);
}

static void write_some(struct writer *w)
{
	unsigned long n, page;

	for (n = 0; n < (w->rate + SLICES - 1) / SLICES; n++) {
		page = w->seq % w->pages;
		bump(&w->seq);
		content_fill(w->area + page * PAGE, PAGE_WORDS, CONTENT_PAGE, w->first + page, w->seq);
		w->table[page] = w->seq;
	}
}

static void *work(void *of)
{
	struct writer *w = of;
	unsigned long page = 0;
	cpu_set_t set;
	int i;

	CPU_ZERO(&set);
	CPU_SET(w->cpu, &set);
	if (pthread_setaffinity_np(pthread_self(), sizeof(set), &set))
		complain("no such CPU", w->cpu);
	for (;; slice()) {
		write_some(w);
		for (i = 0; i < 64; i++) {
			if (w->table[page]) {
				bump(&w->verified);
				if (content_check(w->area + page * PAGE, PAGE_WORDS, CONTENT_PAGE,
						  w->first + page, w->table[page]) >= 0)
					complain("page", w->first + page);
			}
			if (++page == w->pages) {
				page = 0;
				bump(&w->sweeps);
			}
		}
	}
	return NULL;
}

static bool start(struct writer *w, int cpu, int cpus)
{
	w->cpu = cpu;
	w->pages = (option_size << 8) / cpus;
	w->first = w->pages * cpu;
	w->rate = (option_rate + cpus - 1) / cpus;
	w->table = calloc(w->pages, sizeof(*w->table));
	w->area = mmap(NULL, w->pages * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return w->table && w->area != MAP_FAILED && !pthread_create(&w->thread, NULL, work, w);
}

static unsigned long now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ul + t.tv_nsec / 1000;
}

/* All writers' counts; least and sweeps are those of the one that has fewest. */
static void tell(const struct writer *all, int cpus, unsigned long gap_us)
{
	unsigned int writes = 0, least = -1, verified = 0, sweeps = -1;
	const struct writer *w;
	static unsigned int tick;

	for (w = all; w < all + cpus; w++) {
		writes += count(&w->seq);
		verified += count(&w->verified);
		least = count(&w->seq) < least ? count(&w->seq) : least;
		sweeps = count(&w->sweeps) < sweeps ? count(&w->sweeps) : sweeps;
	}
	printf("tick=%u pages=%u errors=%u smp=%d least=%u verified=%u sweeps=%u disk=%u gap_us=%lu clock_ms=%lu\n",
	       ++tick, writes, count(&errors), cpus, least, verified, sweeps, count(&reads), gap_us, now_us() / 1000);
}

/* Before all writers: what holds it up is not theirs but the host's. */
static void look_on(const struct writer *all, int cpus)
{
	const struct sched_param first = { .sched_priority = 1 };
	unsigned long before, longest = 0, now;
	unsigned int naps;

	if (sched_setscheduler(0, SCHED_FIFO, &first))
		complain("SCHED_FIFO", errno);
	before = now_us();
	for (;; longest = 0) {
		for (naps = 0; naps < NAPS; naps++) {
			nanosleep(&(struct timespec){ .tv_nsec = 1000000000 / NAPS }, NULL);
			now = now_us();
			longest = now - before > longest ? now - before : longest;
			before = now;
		}
		tell(all, cpus, longest);
	}
}

int main(int argc, char **argv)
{
	static struct writer writers[CPU_SETSIZE];
	int cpus = sysconf(_SC_NPROCESSORS_ONLN), cpu;
	pthread_t disk;

	setvbuf(stdout, NULL, _IOLBF, 0);
	read_options();
	if (argc > 1)
		pthread_create(&disk, NULL, read_disk, argv[1]);
	for (cpu = 0; cpu < cpus; cpu++) {
		if (!start(&writers[cpu], cpu, cpus)) {
			complain("memory or thread for CPU", cpu);
			return 1;
		}
	}
	look_on(writers, cpus);
	return 1;
}
