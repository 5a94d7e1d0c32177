// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two guests touch pages while they come: on two streams, some twice, and on request. Each page is right at each touch, and
 * no fault waits for ever. And units of 2 MiB, on hugetlbfs where the host has pages of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/file.h>

#include <cmocka.h>

#define PAGES	2048u
#include "lazy_rig.h"

#define OWED	1536u
#define STEP	8u

static struct lazy_rig rig;

struct pusher {
	pthread_t thread;
	uint64_t from;
	int r;
	struct err e;
};

/* Pushes all that is owed in small runs, from a place of its own: so each comes twice, and is put once. */
static void *pusher_main(void *arg)
{
	struct pusher *p = arg;
	struct lazy_unit none = { 0 };

	for (uint64_t i = 0; i < OWED && !p->r; i += STEP) {
		p->r = rig_put(&rig, (p->from + i) % OWED, STEP, &none, &p->e);
		if (i % 64 == 0)
			usleep(300);
	}
	return NULL;
}

/* What is asked for comes a little later, as over a link. */
static void answer(const struct wire_extent *want, unsigned int n)
{
	struct lazy_unit none = { 0 };

	for (unsigned int i = 0; i < n; i++) {
		assert_return_code(faults_answered(&rig.faults, &want[i], &rig.e), 0);
		assert_return_code(rig_put(&rig, want[i].first, want[i].pages, &none, &rig.e), 0);
	}
}

static bool all_idle(void)
{
	for (unsigned int g = 0; g < rig.guests; g++)
		for (unsigned int t = 0; t < THREADS; t++)
			if (rig.guest[g]->actor[t].busy)
				return false;
	return true;
}

static void race(void)
{
	struct wire_extent want[WIRE_WANTED_MAX + WIRE_WANT_MAX];
	struct pusher p[2] = { { .from = 0 }, { .from = OWED / 2 } };
	int file = memfd_create("ram", MFD_CLOEXEC);
	uint64_t until = deadline_ms(SOON_MS);

	assert_return_code(ftruncate(file, (off_t)PAGES * PAGE_BYTES), errno);
	rig_open(&rig, file, 1, 2, OWED);
	rig_owe(&rig, 0, OWED);
	rig_punch(&rig, NULL);
	for (unsigned int g = 0; g < rig.guests; g++)
		for (unsigned int t = 0; t < THREADS; t++)
			rig_act(&rig, g, t, ACT_LOOK, 0, PAGES);
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&p[i].thread, NULL, pusher_main, &p[i]), 0);
	while (!all_idle() && now_ns() < until)
		answer(want, rig_serve(&rig, NULL, 1, want));
	assert_true(all_idle());
	for (unsigned int i = 0; i < 2; i++) {
		pthread_join(p[i].thread, NULL);
		assert_return_code(p[i].r, 0);
	}
	for (unsigned int g = 0; g < rig.guests; g++)
		for (unsigned int t = 0; t < THREADS; t++)
			assert_int_equal(rig.guest[g]->actor[t].wrong, 0);
	assert_int_equal(rig.ram.owed.left, 0);
	assert_int_equal(rig.ram.units, OWED);
	assert_true(rig.ram.twice >= OWED);
	rig_close(&rig);
}

static void each_page_is_right_at_each_touch(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 12; i++)
		race();
}

/* A unit comes in parts, each connection's in order, and is there when it is whole, not before. */
static void check_units(int file)
{
	struct lazy_unit a = { 0 }, b = { 0 };
	struct wire_extent want[WIRE_WANTED_MAX + WIRE_WANT_MAX], x;

	rig_open(&rig, file, 512, 1, PAGES);
	rig_owe(&rig, 512, 1536);
	rig_punch(&rig, NULL);
	rig_act(&rig, 0, 0, ACT_LOOK, 700, 1);
	rig_act(&rig, 0, 1, ACT_LOOK, 1000, 1);
	rig_waits(&rig, 0, 0, want, 1);
	assert_true(want[0].first == 512 && want[0].pages == 512);
	assert_return_code(rig_put(&rig, 512, 300, &a, &rig.e), 0);
	/* On another connection another one; then the whole of the first, and a part of a third. */
	assert_return_code(rig_put(&rig, 1024, 512, &b, &rig.e), 0);
	rig_waits(&rig, 0, 0, want, 0);
	assert_return_code(rig_put(&rig, 512, 512 + 1, &b, &rig.e), -EPROTO);
	rig_ends(&rig, 0, 0);
	rig_ends(&rig, 0, 1);
	assert_int_equal(rig.ram.owed.left, 1);
	rig_act(&rig, 0, 0, ACT_LOOK, 512, 1024);
	rig_ends(&rig, 0, 0);
	/* The answer comes in parts, in their order. */
	rig.faults.nr_asked = 0;
	rig_act(&rig, 0, 0, ACT_LOOK, 2047, 1);
	rig_waits(&rig, 0, 0, want, 1);
	x = (struct wire_extent) { .first = 1536, .pages = 64 };
	assert_return_code(faults_answered(&rig.faults, &x, &rig.e), 0);
	assert_int_equal(faults_answered(&rig.faults, &x, &rig.e), -EPROTO);
	x.first = 1600, x.pages = 449;
	assert_int_equal(faults_answered(&rig.faults, &x, &rig.e), -EPROTO);
	x.pages = 448;
	assert_return_code(faults_answered(&rig.faults, &x, &rig.e), 0);
	assert_int_equal(rig.faults.nr_asked, 0);
	/* Out of order, and in the middle of another unit. */
	lazy_unit_free(&a);
	assert_int_equal(rig_put(&rig, 1537, 1, &a, &rig.e), -EPROTO);
	assert_return_code(rig_put(&rig, 1536, 64, &a, &rig.e), 0);
	assert_int_equal(rig_put(&rig, 1601, 64, &a, &rig.e), -EPROTO);
	assert_int_equal(rig_put(&rig, 1088, 64, &a, &rig.e), -EPROTO);
	assert_return_code(rig_put(&rig, 1600, 448, &a, &rig.e), 0);
	rig_ends(&rig, 0, 0);
	assert_int_equal(rig.ram.owed.left, 0);
	assert_int_equal(rig.ram.units, 3);
	lazy_unit_free(&a);
	lazy_unit_free(&b);
	rig_close(&rig);
}

/* A unit of zeros stays a hole, unless one page of it is not. */
static void check_zero_units(int file)
{
	struct lazy_unit a = { 0 };
	struct stat st;

	rig_open(&rig, file, 512, 1, 0);
	rig_owe(&rig, 0, 1024);
	assert_return_code(lazy_put(&rig.ram, 0, 0, 400, NULL, &a, &rig.e), 0);
	assert_return_code(lazy_put(&rig.ram, 0, 400, 112, NULL, &a, &rig.e), 0);
	assert_int_equal(rig.ram.owed.left, 1);
	assert_return_code(fstat(file, &st), errno);
	assert_int_equal(st.st_blocks, 0);
	memset((void *)(uintptr_t)rig.want, V_ZERO, 1024);
	rig.want[700] = V_NEW;
	assert_return_code(lazy_put(&rig.ram, 0, 512, 188, NULL, &a, &rig.e), 0);
	assert_return_code(rig_put(&rig, 700, 1, &a, &rig.e), 0);
	assert_return_code(lazy_put(&rig.ram, 0, 701, 323, NULL, &a, &rig.e), 0);
	rig_act(&rig, 0, 0, ACT_LOOK, 0, 1024);
	rig_ends(&rig, 0, 0);
	assert_int_equal(rig.faults.nr_asked, 0);
	lazy_unit_free(&a);
	rig_close(&rig);
}

static void units_of_many_pages(void **state)
{
	int file = memfd_create("ram", MFD_CLOEXEC);

	(void)state;
	assert_return_code(ftruncate(file, (off_t)PAGES * PAGE_BYTES), errno);
	check_units(file);
	file = memfd_create("ram", MFD_CLOEXEC);
	assert_return_code(ftruncate(file, (off_t)PAGES * PAGE_BYTES), errno);
	check_zero_units(file);
}

/* The host may hand out so many that it has not set aside. Return: how many it might until now; -1: it has none to give. */
static long overcommit(FILE *f, long pages)
{
	long before = -1;

	if (!f || fscanf(f, "%ld", &before) != 1)
		return -1;
	rewind(f);
	return fprintf(f, "%ld", pages > before ? pages : before) < 0 || fflush(f) ? -1 : before;
}

static void huge_pages(void **state)
{
	FILE *f = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages", "r+e");
	int file = memfd_create("ram", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);
	void *room = MAP_FAILED;
	long before;

	(void)state;
	/* Another variant of this test may run beside it. */
	if (f)
		flock(fileno(f), LOCK_EX);
	before = overcommit(f, 2 * PAGES / 512);
	if (file >= 0 && !ftruncate(file, (off_t)PAGES * PAGE_BYTES))
		room = mmap(NULL, (size_t)PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (room == MAP_FAILED) {
		print_message("SKIPPED: the host has no %u free huge pages of 2 MiB\n", PAGES / 512);
		skip();
	}
	munmap(room, (size_t)PAGES * PAGE_BYTES);
	check_units(file);
	if (before >= 0) {
		rewind(f);
		fprintf(f, "%ld", before);
	}
	if (f)
		fclose(f);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(each_page_is_right_at_each_touch),
	cmocka_unit_test(units_of_many_pages),
	cmocka_unit_test(huge_pages),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
