/* SPDX-License-Identifier: GPL-2.0-only */
/* A block of RAM in a child process, which does what it is asked to. Include after cmocka.h. */
#ifndef GODWIT_RAM_PROCESS_RIG_H
#define GODWIT_RAM_PROCESS_RIG_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "page/page.h"
#include "ram/ram_block.h"

#define PAGES	1024u
#define BYTES	(PAGES * PAGE_BYTES)
#define GAP	(4 * PAGE_BYTES)	/* behind it, where nothing can be read or written */

/*
 * The child has the RAM and waits; two bytes through the pipe make it do something with a page and answer:
 * 'r': read it, 'w': write to it, 'a': take it away
 */
struct rig {
	struct ram_block b;
	uint8_t *ram;
	int ask[2], answer[2];
	pid_t pid;
};

static void child(struct rig *rig)
{
	unsigned char what[2];

	close(rig->ask[1]);
	close(rig->answer[0]);
	while (read(rig->ask[0], what, 2) == 2) {
		uint8_t *page = rig->ram + (size_t)what[1] * PAGE_BYTES, v = 0;

		if (what[0] == 'r')
			v = *page;
		else if (what[0] == 'a')
			madvise(page, PAGE_BYTES, MADV_DONTNEED);
		else
			*(volatile uint8_t *)page = 0x77;
		if (write(rig->answer[1], &v, 1) != 1)
			break;
	}
	_exit(0);
}

static unsigned char child_does(struct rig *rig, char what, unsigned char page)
{
	unsigned char v, ask[2] = { (unsigned char)what, page };

	assert_int_equal(write(rig->ask[1], ask, 2), 2);
	assert_int_equal(read(rig->answer[0], &v, 1), 1);
	return v;
}

static struct rig *rig_new(int flags, int fd)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct err e = { 0 };

	assert_non_null(rig);
	rig->ram = mmap(NULL, BYTES + GAP, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(rig->ram, MAP_FAILED);
	assert_ptr_equal(mmap(rig->ram, BYTES, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0), rig->ram);
	madvise(rig->ram, BYTES, MADV_NOHUGEPAGE);
	assert_int_equal(pipe(rig->ask) | pipe(rig->answer), 0);
	rig->pid = fork();
	if (!rig->pid)
		child(rig);
	rig->b = (struct ram_block) { .name = "ram0", .pages = PAGES, .page_size = PAGE_BYTES, .fd = fd, .hva = (uintptr_t)rig->ram,
				      .pid = rig->pid, .pidfd = (int)syscall(SYS_pidfd_open, rig->pid, 0) };
	assert_true(rig->b.pidfd >= 0);
	assert_int_equal(ram_process_open(&rig->b, &e), 0);
	return rig;
}

static void rig_end(struct rig *rig)
{
	int status;

	close(rig->ask[1]);
	close(rig->ask[0]);
	close(rig->answer[0]);
	close(rig->answer[1]);
	if (rig->pid > 0)
		assert_int_equal(waitpid(rig->pid, &status, 0), rig->pid);
	close(rig->b.pidfd);
	ram_block_close(&rig->b);
	munmap(rig->ram, BYTES + GAP);
	free(rig);
}

static void expect_run(struct rig *rig, uint64_t first, uint64_t run, uint64_t count)
{
	uint64_t f = 0, n = 0;
	struct err e = { 0 };
	int r = ram_ops(&rig->b)->next_data(&rig->b, first, PAGES, true, &f, &n, &e);

	assert_int_equal(r, count ? 1 : 0);
	if (count) {
		assert_int_equal(f, run);
		assert_int_equal(n, count);
	}
}

#endif
