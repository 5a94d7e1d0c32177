// SPDX-License-Identifier: GPL-2.0-only
/* What a process maps, by the kernel's numbers: the same as in the text, where this kernel has them. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "proc/map_query.h"

#define PAGES	4u
#define BYTES	(PAGES * 4096u)

static unsigned int seen, of_file;
static struct stat file;
static struct proc_map found[PAGES];

static bool note(const struct proc_map *m, void *arg)
{
	seen++;
	if (m->ino == file.st_ino && m->dev == file.st_dev && of_file < PAGES)
		found[of_file++] = *m;
	return seen == *(const unsigned int *)arg;
}

/* Our own mappings, up to so many. */
static int query(bool shared, unsigned int most)
{
	int fd = open("/proc/self/maps", O_RDONLY), r;

	assert_true(fd >= 0);
	seen = of_file = 0;
	r = map_query(fd, shared, note, &most);
	close(fd);
	return r;
}

static uint8_t *map(int fd, int prot, int flags, off_t at)
{
	uint8_t *base = mmap(NULL, BYTES, prot, flags, fd, at);

	assert_ptr_not_equal(base, MAP_FAILED);
	return base;
}

static void is_at(const uint8_t *base, bool writable, bool shared, uint64_t at)
{
	for (unsigned int i = 0; i < of_file; i++)
		if (found[i].start == (uintptr_t)base) {
			assert_int_equal(found[i].end, (uintptr_t)base + BYTES);
			assert_int_equal(found[i].writable, writable);
			assert_int_equal(found[i].shared, shared);
			assert_int_equal(found[i].offset, at);
			return;
		}
	fail_msg("the mapping is not there");
}

static void as_the_text_has_it(void **state)
{
	int fd = memfd_create("ram", 0);
	uint8_t *shared, *private, *readable, *anonymous;
	unsigned int files;
	FILE *f;
	struct proc_maps maps;

	(void)state;
	assert_return_code(fd, 0);
	assert_return_code(ftruncate(fd, 4 * BYTES), 0);
	assert_return_code(fstat(fd, &file), 0);
	shared = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
	private = map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE, BYTES);
	readable = map(fd, PROT_READ, MAP_SHARED, 2 * BYTES);
	anonymous = map(-1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, 0);
	if (query(false, 0) == -ENOTTY)
		skip();
	files = seen;
	assert_int_equal(of_file, 3);
	is_at(shared, true, true, 0);
	is_at(private, true, false, BYTES);
	is_at(readable, false, true, 2 * BYTES);
	assert_int_equal(query(true, 0), 0);
	assert_true(seen < files);
	assert_int_equal(of_file, 2);
	is_at(shared, true, true, 0);
	is_at(readable, false, true, 2 * BYTES);
	f = fopen("/proc/self/maps", "re");
	assert_non_null(f);
	assert_int_equal(proc_read_maps(f, &maps), 0);
	fclose(f);
	assert_int_equal(seen, maps.n);
	proc_free_maps(&maps);
	munmap(shared, BYTES);
	munmap(private, BYTES);
	munmap(readable, BYTES);
	munmap(anonymous, BYTES);
	close(fd);
}

static void it_ends_where_it_is_told(void **state)
{
	(void)state;
	if (query(false, 1) == -ENOTTY)
		skip();
	assert_int_equal(query(false, 2), 1);
	assert_int_equal(seen, 2);
}

/* So does a kernel before 6.11, and a test's own directory. */
static void another_file_does_not_tell(void **state)
{
	unsigned int most = 0;
	int fd = memfd_create("maps", 0);

	(void)state;
	assert_return_code(fd, 0);
	assert_int_equal(map_query(fd, false, note, &most), -ENOTTY);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_the_text_has_it),
		cmocka_unit_test(it_ends_where_it_is_told),
		cmocka_unit_test(another_file_does_not_tell),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
