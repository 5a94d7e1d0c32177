// SPDX-License-Identifier: GPL-2.0-only
/*
 * ramholder FILE: a process beside a VMM that does with its RAM file what it reads line by line, and says "done":
 *
 *	map		maps all of it
 *	pin		gives a page of it to an io_uring as a fixed buffer
 *	write MIB	writes to the page that is so far in it
 *	open PATH	opens another file
 *	trace PID	traces that process, without stopping it
 */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static void *ram = MAP_FAILED;

static int map(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -1;
	ram = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	return ram == MAP_FAILED ? -1 : 0;
}

static int pin(void)
{
	struct io_uring_params params = { 0 };
	struct iovec page = { ram, 4096 };
	int ring = (int)syscall(SYS_io_uring_setup, 1, &params);

	return ring < 0 ? -1 : (int)syscall(SYS_io_uring_register, ring, IORING_REGISTER_BUFFERS, &page, 1);
}

static int obey(const char *path, char *line)
{
	line[strcspn(line, "\n")] = '\0';
	if (!strcmp(line, "map"))
		return map(path);
	if (!strcmp(line, "pin"))
		return pin();
	if (!strncmp(line, "write ", 6) && ram != MAP_FAILED) {
		((volatile uint64_t *)ram)[strtoull(line + 6, NULL, 10) << 17]++;
		return 0;
	}
	if (!strncmp(line, "open ", 5))
		return open(line + 5, O_RDWR | O_CLOEXEC) < 0 ? -1 : 0;
	if (!strncmp(line, "trace ", 6))
		return ptrace(PTRACE_SEIZE, (pid_t)atoi(line + 6), NULL, NULL) < 0 ? -1 : 0;
	return -1;
}

int main(int argc, char **argv)
{
	char line[256];

	if (argc != 2) {
		fprintf(stderr, "usage: ramholder FILE\n");
		return 2;
	}
	while (fgets(line, sizeof(line), stdin)) {
		if (obey(argv[1], line)) {
			perror(line);
			return 1;
		}
		puts("done");
		fflush(stdout);
	}
	return 0;
}
