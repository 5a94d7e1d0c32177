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

#include "ram_process_rig.h"

static unsigned char child_sees(struct rig *rig, unsigned char page)
{
	return child_does(rig, 'r', page);
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

/* What another process has under the same number and address is not the guest's. */
static void test_its_number_is_used_again(void **state)
{
	struct rig *rig = rig_new(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	static uint8_t page[PAGE_BYTES];
	struct err e = { 0 };
	int status;

	(void)state;
	assert_int_equal(kill(rig->pid, SIGKILL), 0);
	assert_int_equal(waitpid(rig->pid, &status, 0), rig->pid);
	rig->pid = -1;
	rig->b.pid = getpid();
	assert_int_equal(ram_ops(&rig->b)->read(&rig->b, 0, 1, page, &e), -ESRCH);
	assert_int_equal(e.exit, GW_VM_GONE);
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
		cmocka_unit_test(test_the_process_ends),
		cmocka_unit_test(test_its_memory_goes_first),
		cmocka_unit_test(test_its_number_is_used_again),
		cmocka_unit_test(test_no_memory_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
