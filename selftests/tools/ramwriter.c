// SPDX-License-Identifier: GPL-2.0-only
/*
 * ramwriter FILE OFFSET_MIB MIB RATE SECONDS: maps a guest's RAM file as a vhost-user backend does, and writes numbered
 * pages into it, RATE a second, for SECONDS; then it only keeps the mapping. Prints a line when it begins.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	uint64_t n = 0, pages;
	long rate;
	time_t end;
	volatile uint64_t *ram;
	int fd;

	if (argc != 6) {
		fprintf(stderr, "usage: ramwriter FILE OFFSET_MIB MIB RATE SECONDS\n");
		return 2;
	}
	fd = open(argv[1], O_RDWR | O_CLOEXEC);
	pages = strtoull(argv[3], NULL, 10) << 8;
	rate = atol(argv[4]);
	end = time(NULL) + atol(argv[5]);
	ram = mmap(NULL, pages << 12, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(strtoull(argv[2], NULL, 10) << 20));
	if (ram == MAP_FAILED || rate < 1) {
		perror("ramwriter");
		return 1;
	}
	puts("writing");
	fflush(stdout);
	while (time(NULL) < end) {
		struct timespec ts = { .tv_nsec = 10000000 };

		for (long i = 0; i < rate / 100 + 1; i++, n++)
			ram[n % pages << 9] = n + 1;
		nanosleep(&ts, NULL);
	}
	pause();
	return 0;
}
