// SPDX-License-Identifier: GPL-2.0-only
/*
 * ramwriter FILE OFFSET_MIB MIB [protect]: maps a guest's RAM file as a vhost-user backend does. Writes every page of
 * the stretch, says "written", waits for a line, writes all of them anew, says "again", and keeps the mapping. With
 * "protect" it makes the mapping read-only before it says "again".
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void write_all(volatile uint64_t *ram, uint64_t pages, uint64_t value)
{
	for (uint64_t p = 0; p < pages; p++)
		ram[p << 9] = value << 32 | p;
}

static void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	volatile uint64_t *ram;
	uint64_t pages;
	int fd;

	if (argc != 4 && !(argc == 5 && !strcmp(argv[4], "protect"))) {
		fprintf(stderr, "usage: ramwriter FILE OFFSET_MIB MIB [protect]\n");
		return 2;
	}
	fd = open(argv[1], O_RDWR | O_CLOEXEC);
	pages = strtoull(argv[3], NULL, 10) << 8;
	ram = mmap(NULL, pages << 12, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(strtoull(argv[2], NULL, 10) << 20));
	if (ram == MAP_FAILED) {
		perror("ramwriter");
		return 1;
	}
	write_all(ram, pages, getpid());
	say("written");
	getchar();
	write_all(ram, pages, getpid() + 1);
	if (argc == 5 && mprotect((void *)ram, pages << 12, PROT_READ)) {
		perror("ramwriter");
		return 1;
	}
	say("again");
	pause();
	return 0;
}
