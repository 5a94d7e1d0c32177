// SPDX-License-Identifier: GPL-2.0-only
/*
 * memory MIB FILE: what this machine's memory allows, in GiB/s, as lines "name value". FILE is made on
 * tmpfs and removed: new pages are what a destination needs.
 *
 *	memcpy		from one buffer to another, both there already
 *	populate	MADV_POPULATE_WRITE of a new file
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static size_t bytes;
static const char *path;

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void say(const char *name, double since)
{
	printf("%s %.3f\n", name, (double)bytes / (seconds() - since) / (1 << 30));
}

static int new_file(void)
{
	int fd;

	unlink(path);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
	check(fd >= 0 && !ftruncate(fd, (off_t)bytes), path);
	return fd;
}

static void measure_memcpy(void)
{
	size_t half = bytes / 2;
	char *a = malloc(half), *b = malloc(half);
	double t;

	check(a && b, "malloc");
	memset(a, 1, half);
	memset(b, 2, half);
	t = seconds();
	memcpy(a, b, half);
	/* The asm claims to read it: else the compiler copies nothing. */
	__asm__ volatile("" : : "r"(a), "r"(b) : "memory");
	memcpy(b, a, half);
	__asm__ volatile("" : : "r"(a), "r"(b) : "memory");
	say("memcpy", t);
	free(a);
	free(b);
}

static void measure_populate(void)
{
	int fd = new_file();
	char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	double t = seconds();

	/* Where the file system has huge pages, they come. */
	check(p != MAP_FAILED && !madvise(p, bytes, MADV_HUGEPAGE) && !madvise(p, bytes, MADV_POPULATE_WRITE), "populate");
	say("populate", t);
	munmap(p, bytes);
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc != 3 || atoi(argv[1]) < 1) {
		fputs("usage: memory MIB FILE\n", stderr);
		return 2;
	}
	bytes = (size_t)atoi(argv[1]) << 20;
	path = argv[2];
	measure_memcpy();
	measure_populate();
	unlink(path);
	return 0;
}
