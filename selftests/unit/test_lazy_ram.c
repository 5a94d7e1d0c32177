// SPDX-License-Identifier: GPL-2.0-only
/* RAM that comes after its guest: processes with real userfaultfds touch pages before they are there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include <cmocka.h>

#include "lazy_rig.h"

static struct wire_extent want[WIRE_WANTED_MAX + WIRE_WANT_MAX];
static struct lazy_unit part;

static void begin(struct lazy_rig *rig, unsigned int guests)
{
	int file = memfd_create("ram", MFD_CLOEXEC);

	assert_return_code(ftruncate(file, (off_t)PAGES * PAGE_BYTES), 0);
	rig_open(rig, file, 1, guests, PAGES / 2);
}

static uint64_t allocated(const struct lazy_rig *rig)
{
	struct stat st;

	assert_return_code(fstat(rig->vm.blocks[0].fd, &st), 0);
	return (uint64_t)st.st_blocks * 512 / PAGE_BYTES;
}

static void a_fault_waits_for_its_page(void **state)
{
	struct lazy_rig rig;

	(void)state;
	begin(&rig, 1);
	rig_owe(&rig, 10, 20);
	rig_punch(&rig, NULL);
	assert_int_equal(allocated(&rig), PAGES / 2 - 20);
	/* What is not owed is there as before. */
	rig_act(&rig, 0, 0, ACT_LOOK, 0, 10);
	rig_ends(&rig, 0, 0);
	assert_int_equal(rig.faults.seen, 0);
	rig_act(&rig, 0, 0, ACT_LOOK, 12, 1);
	rig_act(&rig, 0, 1, ACT_LOOK, 12, 1);
	rig_waits(&rig, 0, 0, want, 1);
	assert_true(want[0].block == 0 && want[0].first == 12 && want[0].pages == 1);
	assert_int_equal(rig.faults.nr_asked, 1);
	assert_return_code(faults_answered(&rig.faults, &want[0], &rig.e), 0);
	assert_return_code(rig_put(&rig, 12, 1, &part, &rig.e), 0);
	rig_ends(&rig, 0, 0);
	rig_ends(&rig, 0, 1);
	assert_int_equal(rig.ram.owed.left, 19);
	assert_return_code(rig_put(&rig, 10, 20, &part, &rig.e), 0);
	assert_int_equal(rig.ram.owed.left, 0);
	assert_int_equal(rig.ram.twice, 1);
	rig_act(&rig, 0, 0, ACT_LOOK, 0, PAGES / 2);
	rig_ends(&rig, 0, 0);
	assert_int_equal(allocated(&rig), PAGES / 2);
	rig_close(&rig);
}

static void all_that_is_owed_is_taken_away_and_nothing_else(void **state)
{
	struct lazy_rig rig;

	(void)state;
	begin(&rig, 1);
	rig_owe(&rig, 0, 1);
	rig_owe(&rig, 3, 70);
	rig_owe(&rig, 100, 1);
	rig_owe(&rig, PAGES / 2 + 3, 1);	/* a hole already */
	rig_punch(&rig, NULL);
	assert_int_equal(allocated(&rig), PAGES / 2 - 72);
	rig_act(&rig, 0, 0, ACT_LOOK, 1, 2);
	rig_act(&rig, 0, 1, ACT_LOOK, 73, 27);
	rig_act(&rig, 0, 2, ACT_LOOK, 101, PAGES / 2 - 101);
	for (unsigned int i = 0; i < THREADS; i++)
		rig_ends(&rig, 0, i);
	assert_int_equal(rig.faults.seen, 0);
	rig_close(&rig);
}

/* A page that came by itself is not asked for. */
static void a_page_that_is_pushed_ends_the_fault(void **state)
{
	struct lazy_rig rig;

	(void)state;
	begin(&rig, 1);
	rig_owe(&rig, 0, PAGES / 2);
	rig_punch(&rig, NULL);
	assert_int_equal(allocated(&rig), 0);
	rig_act(&rig, 0, 0, ACT_LOOK, 40, 1);
	rig_waits(&rig, 0, 0, want, 1);
	assert_return_code(rig_put(&rig, 0, 64, &part, &rig.e), 0);
	rig_ends(&rig, 0, 0);
	rig_act(&rig, 0, 0, ACT_LOOK, 0, 64);
	rig_ends(&rig, 0, 0);
	rig_close(&rig);
}

static void what_was_never_touched_is_zero_at_once(void **state)
{
	struct lazy_rig rig;

	(void)state;
	begin(&rig, 1);
	rig_owe(&rig, PAGES - 64, 1);
	rig_punch(&rig, NULL);
	rig_act(&rig, 0, 0, ACT_LOOK, PAGES - 63, 63);
	rig_ends(&rig, 0, 0);
	assert_int_equal(rig.faults.seen, 63);
	assert_int_equal(rig.faults.zeros, 63);
	assert_int_equal(rig.faults.nr_asked, 0);
	/* And can be written. */
	rig_act(&rig, 0, 0, ACT_WRITE, PAGES - 63, 63);
	rig_ends(&rig, 0, 0);
	rig_act(&rig, 0, 0, ACT_LOOK, PAGES - 63, 63);
	rig_ends(&rig, 0, 0);
	rig_close(&rig);
}

/* The source may have found that an owed page is zero. It becomes no page until it is touched. */
static void owed_zeros(void **state)
{
	struct lazy_rig rig;

	(void)state;
	begin(&rig, 1);
	rig_owe(&rig, 100, 8);
	rig_punch(&rig, NULL);
	for (uint64_t p = 100; p < 108; p++)
		rig.want[p] = V_ZERO;
	rig_act(&rig, 0, 0, ACT_LOOK, 103, 1);
	rig_waits(&rig, 0, 0, want, 1);
	assert_return_code(lazy_put(&rig.ram, 0, 100, 8, NULL, &part, &rig.e), 0);
	assert_int_equal(rig.ram.owed.left, 0);
	rig_ends(&rig, 0, 0);
	assert_int_equal(allocated(&rig), PAGES / 2 - 7);
	rig_close(&rig);
}

/* The first writer wins, and the guest after it: what comes again changes nothing, even where there is no page any more. */
static void nothing_comes_over_what_the_guest_wrote(void **state)
{
	struct lazy_rig rig;

	(void)state;
	begin(&rig, 1);
	rig_owe(&rig, 200, 4);
	rig_punch(&rig, NULL);
	assert_return_code(rig_put(&rig, 200, 2, &part, &rig.e), 0);
	rig_act(&rig, 0, 0, ACT_WRITE, 200, 1);
	rig_ends(&rig, 0, 0);
	rig_act(&rig, 0, 0, ACT_PUNCH, 201, 1);
	rig_ends(&rig, 0, 0);
	assert_return_code(rig_put(&rig, 200, 4, &part, &rig.e), 0);
	assert_int_equal(rig.ram.twice, 2);
	assert_int_equal(rig.ram.units, 4);
	rig_act(&rig, 0, 0, ACT_LOOK, 200, 4);
	rig_ends(&rig, 0, 0);
	assert_int_equal(rig.faults.nr_asked, 0);
	rig_close(&rig);
}

/* All processes that wait for a page go on, also those through whose userfaultfd it did not come. */
static void every_process_goes_on(void **state)
{
	struct lazy_rig rig;

	(void)state;
	begin(&rig, 2);
	rig_owe(&rig, 5, 3);
	rig_punch(&rig, NULL);
	rig_act(&rig, 0, 0, ACT_LOOK, 6, 1);
	rig_act(&rig, 1, 0, ACT_LOOK, 6, 1);
	rig_act(&rig, 1, 1, ACT_LOOK, 7, 1);
	rig_waits(&rig, 0, 0, want, 2);
	rig_waits(&rig, 1, 0, want, 0);
	assert_return_code(rig_put(&rig, 5, 2, &part, &rig.e), 0);
	rig_ends(&rig, 0, 0);
	rig_ends(&rig, 1, 0);
	rig_waits(&rig, 1, 1, want, 0);
	assert_return_code(rig_put(&rig, 7, 1, &part, &rig.e), 0);
	rig_ends(&rig, 1, 1);
	rig_close(&rig);
}

/* A program that maps the file and is not watched makes a page of zeros. That is found, and no secret. */
static void a_page_that_was_not_put_there_is_an_alarm(void **state)
{
	struct lazy_rig rig;
	volatile uint8_t *map;

	(void)state;
	begin(&rig, 1);
	rig_owe(&rig, 30, 4);
	rig_punch(&rig, NULL);
	map = mmap(NULL, PAGES * PAGE_BYTES, PROT_READ, MAP_SHARED, rig.vm.blocks[0].fd, 0);
	assert_int_equal(map[32 * PAGE_BYTES], 0);
	assert_int_equal(rig_put(&rig, 30, 4, &part, &rig.e), -EEXIST);
	assert_int_equal(rig.e.exit, GW_INTERNAL);
	assert_non_null(strstr(rig.e.text, "page 32 "));
	assert_int_equal(rig.ram.owed.left, 2);
	munmap((void *)map, PAGES * PAGE_BYTES);
	rig_close(&rig);
}

/* After a takeover it is what the receiver before has put there in its last moment. */
static void after_a_takeover_a_page_may_be_there(void **state)
{
	struct lazy_rig rig;
	uint8_t page[PAGE_BYTES];

	(void)state;
	begin(&rig, 1);
	rig_owe(&rig, 30, 4);
	rig_punch(&rig, NULL);
	rig.ram.taken_over = true;
	rig_fill(page, 31, V_NEW);
	assert_int_equal(pwrite(rig.vm.blocks[0].fd, page, sizeof(page), 31 * PAGE_BYTES), sizeof(page));
	assert_return_code(rig_put(&rig, 30, 4, &part, &rig.e), 0);
	assert_int_equal(rig.ram.owed.left, 0);
	rig_act(&rig, 0, 0, ACT_LOOK, 30, 4);
	rig_ends(&rig, 0, 0);
	rig_close(&rig);
}

static void a_page_that_is_not_owed_is_refused(void **state)
{
	struct lazy_rig rig;
	struct wire_extent x = { .block = 0, .first = 61, .pages = 1 };

	(void)state;
	begin(&rig, 1);
	rig_owe(&rig, 60, 2);
	rig_punch(&rig, NULL);
	assert_int_equal(rig_put(&rig, 59, 1, &part, &rig.e), -EPROTO);
	assert_int_equal(rig.e.exit, GW_BAD_PEER);
	rig.e = (struct err) { 0 };
	/* What was owed before it is in place. */
	assert_int_equal(rig_put(&rig, 60, 3, &part, &rig.e), -EPROTO);
	assert_non_null(strstr(rig.e.text, "page 62 "));
	assert_int_equal(rig.ram.owed.left, 0);
	rig_act(&rig, 0, 0, ACT_LOOK, 56, 8);
	rig_ends(&rig, 0, 0);
	/* An answer to no question. */
	assert_int_equal(faults_answered(&rig.faults, &x, &rig.e), -EPROTO);
	rig_close(&rig);
}

/* No more is asked for than fits into the sockets: the other faults wait in the kernel. */
static void questions_are_bounded(void **state)
{
	struct lazy_rig rig;

	(void)state;
	begin(&rig, 1);
	rig_owe(&rig, 0, PAGES / 2);
	rig_punch(&rig, NULL);
	rig.faults.nr_asked = WIRE_WANTED_MAX - 1;
	for (unsigned int i = 0; i < rig.faults.nr_asked; i++)
		rig.faults.asked[i] = (struct wire_extent) { .first = 256 + i, .pages = 1 };
	for (unsigned int i = 0; i < THREADS; i++)
		rig_act(&rig, 0, i, ACT_LOOK, i, 1);
	rig_waits(&rig, 0, 0, want, 1);
	assert_false(faults_room(&rig.faults));
	/* One is answered, so one more is asked for. */
	assert_return_code(faults_answered(&rig.faults, &(struct wire_extent) { .first = 300, .pages = 1 }, &rig.e), 0);
	assert_true(faults_room(&rig.faults));
	rig_waits(&rig, 0, 0, want, 1);
	assert_return_code(rig_put(&rig, 0, THREADS, &part, &rig.e), 0);
	rig_serve(&rig, NULL, 50, want);
	rig.faults.nr_asked = 0;
	for (unsigned int i = 0; i < THREADS; i++)
		rig_ends(&rig, 0, i);
	rig_close(&rig);
}

static void afterwards_nothing_remains(void **state)
{
	struct lazy_rig rig;

	(void)state;
	begin(&rig, 1);
	rig_owe(&rig, 0, 4);
	rig_punch(&rig, NULL);
	rig_act(&rig, 0, 0, ACT_LOOK, PAGES - 1, 1);	/* waits for us, and not for a page */
	assert_return_code(rig_put(&rig, 0, 4, &part, &rig.e), 0);
	nap_ms(20);
	lazy_unregister(&rig.ram);
	for (uint64_t end = deadline_ms(SOON_MS); rig.guest[0]->actor[0].busy && now_ns() < end;)
		nap_ms(1);
	rig_ends(&rig, 0, 0);
	rig_act(&rig, 0, 0, ACT_LOOK, 0, PAGES);
	rig_ends(&rig, 0, 0);
	assert_int_equal(rig.faults.seen, 0);
	rig_close(&rig);
}

struct slow_put {
	pthread_t thread;
	struct lazy_rig *rig;
	const uint8_t *bytes;
	int r;
};

static void *slow_put_main(void *arg)
{
	struct slow_put *s = arg;
	struct lazy_unit none = { 0 };
	struct err e = { 0 };

	s->r = lazy_put(&s->rig->ram, 0, 7, 1, s->bytes, &none, &e);
	return NULL;
}

/*
 * The kernel is in the middle of UFFDIO_COPY: it waits for the bytes, a page of ours that is missing. The page is still
 * owed then. If the server took it for one that is here the guest would read zeros.
 */
static void a_page_is_owed_until_it_is_there(void **state)
{
	int slow = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	void *bytes = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register area = { { (uintptr_t)bytes, PAGE_BYTES }, UFFDIO_REGISTER_MODE_MISSING, 0 };
	struct uffdio_copy copy = { .dst = (uintptr_t)bytes, .len = PAGE_BYTES };
	struct uffdio_api api = { .api = UFFD_API };
	uint8_t page[PAGE_BYTES] __attribute__((aligned(PAGE_BYTES)));
	struct slow_put s = { .bytes = bytes };
	struct lazy_rig rig;
	struct uffd_msg msg;

	(void)state;
	begin(&rig, 1);
	assert_return_code(ioctl(slow, UFFDIO_API, &api), errno);
	assert_return_code(ioctl(slow, UFFDIO_REGISTER, &area), errno);
	rig_owe(&rig, 7, 1);
	rig_punch(&rig, NULL);
	s.rig = &rig;
	assert_int_equal(pthread_create(&s.thread, NULL, slow_put_main, &s), 0);
	assert_int_equal(read(slow, &msg, sizeof(msg)), sizeof(msg));
	rig_act(&rig, 0, 0, ACT_LOOK, 7, 1);
	rig_waits(&rig, 0, 0, want, 1);
	assert_int_equal(rig.faults.zeros, 0);
	assert_int_equal(rig.ram.owed.left, 1);
	rig_fill(page, 7, V_NEW);
	copy.src = (uintptr_t)page;
	assert_return_code(ioctl(slow, UFFDIO_COPY, &copy), errno);
	pthread_join(s.thread, NULL);
	assert_return_code(s.r, 0);
	rig_ends(&rig, 0, 0);
	rig_close(&rig);
	close(slow);
	munmap(bytes, PAGE_BYTES);
}

/*
 * Early: other units than those that are owed in the end. What was emptied, and has no bit, is left as it is; what has no bit and
 * was not emptied may be anything.
 */
static void what_is_a_hole_is_not_emptied_again(void **state)
{
	uint64_t placed[PAGES / 64 + 1] = { 0 }, pages = PAGES;
	const uint32_t unit = 1;
	struct owed early;
	const struct lazy_punch first = { .what = &early, .placed = (uint64_t *[]) { placed } };
	struct lazy_rig rig;
	char page[PAGE_BYTES];

	(void)state;
	begin(&rig, 1);
	memset(page, 1, sizeof(page));
	bitmap_set(placed, 0, PAGES / 2);
	assert_return_code(owed_init(&early, &pages, &unit, 1, &rig.e), 0);
	assert_return_code(owed_add(&early, 0, 10, 20), 0);
	assert_return_code(owed_add(&early, 0, 40, 1), 0);
	assert_return_code(lazy_punch(&rig.ram, &first, &rig.e), 0);
	owed_free(&early);
	assert_int_equal(allocated(&rig), PAGES / 2 - 21);
	assert_int_equal(rig.ram.owed.left, 0);
	assert_int_equal(bitmap_next_shared(placed, 10, 30), 30);
	assert_int_equal(bitmap_next_shared(placed, 30, 40), 30);
	assert_int_equal(bitmap_next_shared(placed, 40, 41), 41);
	/* A round brings two of them again. The third write is nobody's, and shows what is left. */
	for (unsigned int i = 12; i < 15; i++)
		assert_int_equal(pwrite(rig.vm.blocks[0].fd, page, sizeof(page), i * PAGE_BYTES), sizeof(page));
	bitmap_set(placed, 12, 2);
	rig_owe(&rig, 5, 1);
	rig_owe(&rig, 12, 1);
	rig_owe(&rig, 14, 4);
	rig_owe(&rig, 39, 3);
	/* Nobody has a bit for this one either. */
	bitmap_clear(placed, 50, 1);
	rig_owe(&rig, 50, 1);
	rig_punch(&rig, placed);
	assert_int_equal(allocated(&rig), PAGES / 2 - 21 + 3 - 1 - 1 - 2 - 1);
	rig_act(&rig, 0, 0, ACT_LOOK, 12, 1);
	rig_waits(&rig, 0, 0, want, 1);
	rig_act(&rig, 0, 1, ACT_LOOK, 39, 1);
	rig_waits(&rig, 0, 1, want, 1);
	assert_return_code(rig_put(&rig, 12, 1, &part, &rig.e), 0);
	assert_return_code(rig_put(&rig, 39, 3, &part, &rig.e), 0);
	rig_ends(&rig, 0, 0);
	rig_ends(&rig, 0, 1);
	rig_close(&rig);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_page_is_owed_until_it_is_there),
	cmocka_unit_test(a_fault_waits_for_its_page),
	cmocka_unit_test(all_that_is_owed_is_taken_away_and_nothing_else),
	cmocka_unit_test(what_is_a_hole_is_not_emptied_again),
	cmocka_unit_test(a_page_that_is_pushed_ends_the_fault),
	cmocka_unit_test(what_was_never_touched_is_zero_at_once),
	cmocka_unit_test(owed_zeros),
	cmocka_unit_test(nothing_comes_over_what_the_guest_wrote),
	cmocka_unit_test(every_process_goes_on),
	cmocka_unit_test(a_page_that_was_not_put_there_is_an_alarm),
	cmocka_unit_test(after_a_takeover_a_page_may_be_there),
	cmocka_unit_test(a_page_that_is_not_owed_is_refused),
	cmocka_unit_test(questions_are_bounded),
	cmocka_unit_test(afterwards_nothing_remains),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
