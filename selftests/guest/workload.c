// SPDX-License-Identifier: GPL-2.0-only
/*
 * The Linux guest's workload: writes and checks patterns in anonymous memory
 * and, where there is a disk, reads it with O_DIRECT. Prints the lines of the
 * tiny guest. Options from the kernel's command line: size= (MiB), rate= (pages
 * per second), disk= (reads per second).
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
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

static void work(void)
{
	unsigned long pages = option_size << 8, page, verify = 0, n, i;
	unsigned int seq = 0, tick = 0, slices = 0, verified = 0, sweeps = 0;
	unsigned int *table = calloc(pages, sizeof(*table));
	unsigned char *area = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (!table || area == MAP_FAILED) {
		complain("memory, MiB", option_size);
		return;
	}
	for (;; slice()) {
		for (n = 0; n < (option_rate + SLICES - 1) / SLICES; n++) {
			page = seq++ % pages;
			content_fill(area + page * PAGE, PAGE_WORDS, CONTENT_PAGE, page, seq);
			table[page] = seq;
		}
		for (i = 0; i < 64; i++) {
			if (table[verify]) {
				verified++;
				if (content_check(area + verify * PAGE, PAGE_WORDS, CONTENT_PAGE,
						  verify, table[verify]) >= 0)
					complain("page", verify);
			}
			if (++verify == pages) {
				verify = 0;
				sweeps++;
			}
		}
		if (++slices % SLICES)
			continue;
		printf("tick=%u pages=%u errors=%u seq=%u verified=%u sweeps=%u disk=%u\n",
		       ++tick, seq, errors, seq, verified, sweeps, reads);
	}
}

int main(int argc, char **argv)
{
	pthread_t disk;

	setvbuf(stdout, NULL, _IOLBF, 0);
	read_options();
	if (argc > 1)
		pthread_create(&disk, NULL, read_disk, argv[1]);
	work();
	return 1;
}
