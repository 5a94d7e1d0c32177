// SPDX-License-Identifier: GPL-2.0-only
/* A page of hugetlb is missing for a moment while the kernel moves it: two looks must agree, with a nap in between. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ram_process_rig.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_nap_for_all_holes),
		cmocka_unit_test(test_looked_for_twice),
		cmocka_unit_test(test_moved_at_the_second_look),
		cmocka_unit_test(test_written_since_the_look),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
