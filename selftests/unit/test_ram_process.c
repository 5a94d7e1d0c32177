// SPDX-License-Identifier: GPL-2.0-only
/* RAM in another process: what is there, reading and writing it, and that looking makes nothing. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

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

static unsigned char child_sees(struct rig *rig, unsigned char page)
{
	return child_does(rig, 'r', page);
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

static void test_nothing_is_there(void **state)
{
	struct rig *rig = rig_new(MAP_PRIVATE | MAP_ANONYMOUS, -1);

	(void)state;
	expect_run(rig, 0, 0, 0);
	assert_int_equal(ram_ops(&rig->b)->allocated(&rig->b), 0);
	rig_end(rig);
}

static void test_written_and_read_back(void **state)
{
	struct rig *rig = rig_new(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	const struct ram_ops *ops = ram_ops(&rig->b);
	static uint8_t out[3 * PAGE_BYTES], in[3 * PAGE_BYTES];
	struct err e = { 0 };

	(void)state;
	memset(out, 0x5a, sizeof(out));
	assert_int_equal(ops->write(&rig->b, 7, 3, out), 0);
	assert_int_equal(ops->write(&rig->b, 200, 1, out), 0);
	expect_run(rig, 0, 7, 3);
	expect_run(rig, 8, 8, 2);
	expect_run(rig, 10, 200, 1);
	expect_run(rig, 201, 0, 0);
	assert_int_equal(ops->allocated(&rig->b), 4);
	assert_int_equal(ops->read(&rig->b, 7, 3, in, &e), 0);
	assert_memory_equal(in, out, sizeof(in));
	assert_int_equal(child_sees(rig, 9), 0x5a);
	assert_int_equal(rig->ram[9 * PAGE_BYTES], 0);	/* the child's, not ours */
	rig_end(rig);
}

static void test_cleared(void **state)
{
	struct rig *rig = rig_new(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	const struct ram_ops *ops = ram_ops(&rig->b);
	static uint8_t out[40 * PAGE_BYTES];

	(void)state;
	memset(out, 1, sizeof(out));
	assert_int_equal(ops->write(&rig->b, 30, 40, out), 0);
	assert_int_equal(ops->clear(&rig->b, 0, 50), 0);
	assert_int_equal(child_sees(rig, 30), 0);
	assert_int_equal(child_sees(rig, 49), 0);
	assert_int_equal(child_sees(rig, 50), 1);
	assert_int_equal(ops->allocated(&rig->b), 40);	/* and what was not there has not come */
	rig_end(rig);
}

/* What the child has not written is the file's; what is written here goes to the child alone. */
static void test_private_file(void **state)
{
	int fd = memfd_create("ram", MFD_CLOEXEC);
	static uint8_t page[PAGE_BYTES];
	struct err e = { 0 };
	struct rig *rig;

	(void)state;
	assert_int_equal(ftruncate(fd, BYTES), 0);
	memset(page, 0x11, sizeof(page));
	assert_int_equal(pwrite(fd, page, sizeof(page), 5 * PAGE_BYTES), PAGE_BYTES);
	assert_int_equal(pwrite(fd, page, sizeof(page), 90 * PAGE_BYTES), PAGE_BYTES);
	rig = rig_new(MAP_PRIVATE, fd);
	expect_run(rig, 0, 5, 1);
	memset(page, 0x22, sizeof(page));
	assert_int_equal(ram_ops(&rig->b)->write(&rig->b, 5, 1, page), 0);
	assert_int_equal(ram_ops(&rig->b)->write(&rig->b, 60, 1, page), 0);
	expect_run(rig, 0, 5, 1);
	expect_run(rig, 6, 60, 1);
	expect_run(rig, 61, 90, 1);
	assert_int_equal(child_sees(rig, 5), 0x22);
	assert_int_equal(pread(fd, page, sizeof(page), 5 * PAGE_BYTES), PAGE_BYTES);
	assert_int_equal(page[0], 0x11);
	/* The file's pages are zeroed in the process alone. */
	assert_int_equal(ram_ops(&rig->b)->clear(&rig->b, 0, PAGES), 0);
	assert_int_equal(child_sees(rig, 90), 0);
	assert_int_equal(ram_ops(&rig->b)->read(&rig->b, 90, 1, page, &e), 0);
	assert_int_equal(page[0], 0);
	assert_int_equal(pread(fd, page, sizeof(page), 90 * PAGE_BYTES), PAGE_BYTES);
	assert_int_equal(page[0], 0x11);
	rig_end(rig);
}

/* Pages of the process's own in the middle of the file's, and between them: each page is found once. */
static void test_pages_between_the_file_s(void **state)
{
	static const unsigned int copied[] = { 0, 3, 9, 10, 63, 64, 305, 700 };
	int fd = memfd_create("ram", MFD_CLOEXEC);
	static uint8_t page[PAGE_BYTES];
	uint64_t from = 0, first, n;
	uint8_t found[PAGES] = { 0 }, want[PAGES] = { 0 };
	struct err e = { 0 };
	struct rig *rig;

	(void)state;
	assert_int_equal(ftruncate(fd, BYTES), 0);
	memset(page, 7, sizeof(page));
	for (unsigned int i = 0; i < 310; i += i == 255 ? 45 : 1) {
		assert_int_equal(pwrite(fd, page, sizeof(page), i * PAGE_BYTES), PAGE_BYTES);
		want[i] = 1;
	}
	rig = rig_new(MAP_PRIVATE, fd);
	for (unsigned int i = 0; i < sizeof(copied) / sizeof(copied[0]); i++) {
		assert_int_equal(ram_ops(&rig->b)->write(&rig->b, copied[i], 1, page), 0);
		want[copied[i]] = 1;
	}
	while (ram_ops(&rig->b)->next_data(&rig->b, from, PAGES, true, &first, &n, &e) > 0) {
		assert_true(first >= from && n && first + n <= PAGES);
		for (uint64_t i = first; i < first + n; i++)
			found[i]++;
		from = first + n;
	}
	assert_memory_equal(found, want, sizeof(want));
	rig_end(rig);
}

/* What happens during the naps that a look at hugetlb takes, instead of sleeping; and how many there were. */
static struct {
	unsigned int nr;
	void (*meanwhile)(struct rig *rig);
	struct rig *rig;
} naps;

void __wrap_nap_ms(unsigned int ms);
void __wrap_nap_ms(unsigned int ms)
{
	(void)ms;
	if (naps.meanwhile)
		naps.meanwhile(naps.rig);
	naps.nr++;
}

static struct rig *hugetlb_new(void (*meanwhile)(struct rig *rig))
{
	struct rig *rig = rig_new(MAP_PRIVATE | MAP_ANONYMOUS, -1);

	rig->b.hugetlb = true;
	naps.nr = 0;
	naps.meanwhile = meanwhile;
	naps.rig = rig;
	return rig;
}

/* 128 pages with a hole behind each: one nap for a walk over all of them, none to count them. */
static void test_one_nap_for_all_holes(void **state)
{
	struct rig *rig = hugetlb_new(NULL);
	static uint8_t page[PAGE_BYTES];

	(void)state;
	for (unsigned int i = 0; i < 256; i += 2)
		assert_int_equal(ram_ops(&rig->b)->write(&rig->b, i, 1, page), 0);
	assert_int_equal(ram_ops(&rig->b)->allocated(&rig->b), 128);
	assert_int_equal(naps.nr, 0);
	for (unsigned int i = 0; i < 254; i += 2)
		expect_run(rig, i + 1, i + 2, 1);
	expect_run(rig, 255, 0, 0);
	assert_int_equal(naps.nr, 1);
	rig_end(rig);
}

static void page_10_comes(struct rig *rig)
{
	if (!naps.nr)
		child_does(rig, 'w', 10);
}

/* A page that the kernel was moving when it was looked for is there. */
static void test_looked_for_twice(void **state)
{
	struct rig *rig = hugetlb_new(page_10_comes);
	static uint8_t page[PAGE_BYTES];

	(void)state;
	assert_int_equal(ram_ops(&rig->b)->write(&rig->b, 20, 1, page), 0);
	expect_run(rig, 0, 10, 1);
	assert_int_equal(naps.nr, 1);
	rig_end(rig);
}

static void page_20_comes_back(struct rig *rig)
{
	child_does(rig, naps.nr ? 'w' : 'a', 20);
}

/* One that was there at the first look, and is moved at the second, is looked for once more. */
static void test_moved_at_the_second_look(void **state)
{
	struct rig *rig = hugetlb_new(page_20_comes_back);
	static uint8_t page[PAGE_BYTES];

	(void)state;
	assert_int_equal(ram_ops(&rig->b)->write(&rig->b, 20, 1, page), 0);
	assert_int_equal(ram_ops(&rig->b)->write(&rig->b, 30, 1, page), 0);
	expect_run(rig, 0, 20, 1);
	assert_int_equal(naps.nr, 2);
	rig_end(rig);
}

/* What this process writes makes a look void that has found nothing there. */
static void test_written_since_the_look(void **state)
{
	struct rig *rig = hugetlb_new(NULL);
	static uint8_t page[PAGE_BYTES];

	(void)state;
	expect_run(rig, 0, 0, 0);
	expect_run(rig, 10, 0, 0);
	assert_int_equal(naps.nr, 1);
	assert_int_equal(ram_ops(&rig->b)->write(&rig->b, 20, 1, page), 0);
	child_does(rig, 'a', 20);	/* as the kernel does just now */
	naps.meanwhile = page_20_comes_back;
	expect_run(rig, 0, 20, 1);
	assert_int_equal(naps.nr, 2);
	rig_end(rig);
}

static void test_the_process_ends(void **state)
{
	struct rig *rig = rig_new(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	struct ram_block again = rig->b;
	static uint8_t page[PAGE_BYTES];
	struct err e = { 0 }, opening = { 0 };
	int status;

	(void)state;
	assert_int_equal(kill(rig->pid, SIGKILL), 0);
	assert_int_equal(waitpid(rig->pid, &status, 0), rig->pid);
	rig->pid = -1;
	assert_int_equal(ram_ops(&rig->b)->write(&rig->b, 0, 1, page), -ESRCH);
	assert_int_not_equal(ram_ops(&rig->b)->read(&rig->b, 0, 1, page, &e), 0);
	assert_int_equal(e.exit, GW_VM_GONE);
	assert_int_equal(ram_process_open(&again, &opening), -ESRCH);
	assert_int_equal(opening.exit, GW_VM_GONE);
	rig_end(rig);
}

/* The memory of a process that ends goes before its pidfd tells: here that tells of another process. */
static void test_its_memory_goes_first(void **state)
{
	struct rig *rig = rig_new(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	static uint8_t page[PAGE_BYTES];
	struct err e = { 0 }, by_mem = { 0 };
	siginfo_t ended;
	char path[64];

	(void)state;
	close(rig->b.pidfd);
	rig->b.pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)rig->pid);
	rig->b.mem = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(rig->b.mem >= 0);
	assert_int_equal(kill(rig->pid, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)rig->pid, &ended, WEXITED | WNOWAIT), 0);	/* a zombie keeps its pid */
	assert_int_not_equal(ram_ops(&rig->b)->read(&rig->b, 0, 1, page, &by_mem), 0);
	assert_int_equal(by_mem.exit, GW_VM_GONE);
	close(rig->b.mem);
	rig->b.mem = -1;
	assert_int_not_equal(ram_ops(&rig->b)->read(&rig->b, 0, 1, page, &e), 0);
	assert_int_equal(e.exit, GW_VM_GONE);
	assert_int_equal(ram_ops(&rig->b)->write(&rig->b, 0, 1, page), -ESRCH);
	rig_end(rig);
}

/* The range ends in the middle: what could not be written is an error, not a short success. */
static void test_no_memory_there(void **state)
{
	struct rig *rig = rig_new(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	static uint8_t pages[4 * PAGE_BYTES];
	struct err e = { 0 };

	(void)state;
	rig->b.pages = PAGES + 2;
	assert_int_equal(ram_ops(&rig->b)->write(&rig->b, PAGES - 2, 4, pages) < 0, 1);
	assert_int_not_equal(ram_ops(&rig->b)->read(&rig->b, PAGES - 2, 4, pages, &e), 0);
	assert_int_equal(e.exit, GW_INTERNAL);
	rig_end(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_there),
		cmocka_unit_test(test_written_and_read_back),
		cmocka_unit_test(test_cleared),
		cmocka_unit_test(test_private_file),
		cmocka_unit_test(test_pages_between_the_file_s),
		cmocka_unit_test(test_one_nap_for_all_holes),
		cmocka_unit_test(test_looked_for_twice),
		cmocka_unit_test(test_moved_at_the_second_look),
		cmocka_unit_test(test_written_since_the_look),
		cmocka_unit_test(test_the_process_ends),
		cmocka_unit_test(test_its_memory_goes_first),
		cmocka_unit_test(test_no_memory_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
