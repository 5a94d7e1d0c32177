// SPDX-License-Identifier: GPL-2.0-only
/*
 * RAM of the destination is empty before the first page comes: holes, or zeros where all of it is preallocated, whichever thread looks at
 * it. Meanwhile the caller's step is called, and may end it.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/thread.h"
#include "place/ram_write.h"

#define MIB_PAGES	256ull
#define WHOLE		(200 * MIB_PAGES + 3)	/* preallocated: four slices of 64 MiB, the last one short */
#define SPARSE		(2500 * MIB_PAGES + 1)	/* three slices of 1 GiB */

/* link: -Wl,--wrap=read */
ssize_t __real_read(int fd, void *buf, size_t len);
ssize_t __wrap_read(int fd, void *buf, size_t len);

static atomic_bool broken;

ssize_t __wrap_read(int fd, void *buf, size_t len)
{
	if (!atomic_load(&broken))
		return __real_read(fd, buf, len);
	errno = EIO;
	return -1;
}

struct rig {
	struct vm vm;
	struct ram_writer writer;
	struct ram_alive alive;
	unsigned int steps, most;
	struct err e;
};

static int step(void *arg, struct err *e)
{
	struct rig *rig = arg;

	return ++rig->steps > rig->most ? err_set(e, GW_CANCELLED, EINTR, "enough") : 0;
}

/* What firmware has left: at both ends of slices, and in between. */
static const uint64_t written[] = {
	0, 1, 64 * MIB_PAGES - 1, 64 * MIB_PAGES, 100 * MIB_PAGES + 7, 192 * MIB_PAGES, WHOLE - 1,
};

static void open_block(struct rig *rig, uint64_t pages, bool whole)
{
	struct ram_block *b = &rig->vm.blocks[0];

	*rig = (struct rig) { .alive = { step, rig }, .most = ~0u, .vm.nblocks = 1 };
	*b = (struct ram_block) { .name = "ram0", .pages = pages, .page_size = PAGE_BYTES, .fd = memfd_create("ram0", MFD_CLOEXEC) };
	assert_true(b->fd >= 0);
	assert_return_code(ftruncate(b->fd, (off_t)(pages * PAGE_BYTES)), errno);
	if (whole)
		assert_return_code(fallocate(b->fd, 0, 0, (off_t)(pages * PAGE_BYTES)), errno);
	/* One byte, the last one. */
	for (size_t i = 0; i < sizeof(written) / sizeof(written[0]); i++)
		assert_int_equal(pwrite(b->fd, "x", 1, (off_t)((written[i] + 1) * PAGE_BYTES - 1)), 1);
}

static void close_block(struct rig *rig)
{
	ram_writer_close(&rig->writer);
	close(rig->vm.blocks[0].fd);
}

static int empty(struct rig *rig)
{
	return ram_writer_open(&rig->writer, &rig->vm, &rig->alive, &rig->e);
}

static uint64_t there(const struct rig *rig)
{
	struct stat st;

	assert_return_code(fstat(rig->vm.blocks[0].fd, &st), errno);
	return (uint64_t)st.st_blocks * 512 / PAGE_BYTES;
}

static bool is_zero(const struct rig *rig, uint64_t page)
{
	static const uint8_t zeros[PAGE_BYTES];
	uint8_t bytes[PAGE_BYTES];

	assert_int_equal(pread(rig->vm.blocks[0].fd, bytes, sizeof(bytes), (off_t)(page * PAGE_BYTES)), sizeof(bytes));
	return !memcmp(bytes, zeros, sizeof(bytes));
}

static void preallocated(void **state)
{
	struct rig rig;

	(void)state;
	open_block(&rig, WHOLE, true);
	assert_int_equal(empty(&rig), 0);
	for (size_t i = 0; i < sizeof(written) / sizeof(written[0]); i++)
		assert_true(is_zero(&rig, written[i]));
	assert_int_equal(there(&rig), WHOLE);
	assert_true(rig.steps || thread_cpus_usable() > 1);
	close_block(&rig);
}

static void with_holes(void **state)
{
	struct rig rig;

	(void)state;
	open_block(&rig, SPARSE, false);
	assert_int_equal(empty(&rig), 0);
	assert_int_equal(there(&rig), 0);
	assert_int_equal(rig.steps, 3);
	close_block(&rig);
}

/* The step's error is what the caller hears, and no thread is left. */
static void ended(void **state)
{
	struct rig rig;

	(void)state;
	for (int whole = 0; whole < 2; whole++) {
		open_block(&rig, whole ? WHOLE : SPARSE, whole);
		rig.most = 0;
		/* Others may have taken all slices but one. */
		if (!empty(&rig) && whole && !rig.steps) {
			close_block(&rig);
			continue;
		}
		assert_int_equal(rig.e.exit, GW_CANCELLED);
		assert_string_equal(rig.e.text, "enough");
		assert_int_equal(rig.steps, 1);
		close_block(&rig);
	}
}

/* Whichever thread finds a page that it cannot zero says so. */
static void no_zeros(void **state)
{
	struct rig rig;

	(void)state;
	open_block(&rig, WHOLE, true);
	broken = true;
	assert_int_not_equal(empty(&rig), 0);
	broken = false;
	assert_int_equal(rig.e.exit, GW_INTERNAL);
	assert_string_equal(rig.e.text, "cannot empty the destination's RAM \"ram0\": Input/output error");
	close_block(&rig);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(preallocated),
		cmocka_unit_test(with_holes),
		cmocka_unit_test(ended),
		cmocka_unit_test(no_zeros),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
