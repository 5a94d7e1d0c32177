// SPDX-License-Identifier: GPL-2.0-only
/* Faults on RAM that comes after its guest: processes with real userfaultfds touch pages before they are there. */
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

static void a_fault_waits_for_its_page(void **state)
{
	struct lazy_rig rig;

	(void)state;
	rig_begin(&rig, 1);
	rig_owe(&rig, 10, 20);
	rig_punch(&rig, NULL);
	assert_int_equal(rig_allocated(&rig), PAGES / 2 - 20);
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
	assert_int_equal(rig_allocated(&rig), PAGES / 2);
	rig_close(&rig);
}

/* A page that came by itself is not asked for. */
static void a_page_that_is_pushed_ends_the_fault(void **state)
{
	struct lazy_rig rig;

	(void)state;
	rig_begin(&rig, 1);
	rig_owe(&rig, 0, PAGES / 2);
	rig_punch(&rig, NULL);
	assert_int_equal(rig_allocated(&rig), 0);
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
	rig_begin(&rig, 1);
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
	rig_begin(&rig, 1);
	rig_owe(&rig, 100, 8);
	rig_punch(&rig, NULL);
	for (uint64_t p = 100; p < 108; p++)
		rig.want[p] = V_ZERO;
	rig_act(&rig, 0, 0, ACT_LOOK, 103, 1);
	rig_waits(&rig, 0, 0, want, 1);
	assert_return_code(lazy_put(&rig.ram, 0, 100, 8, NULL, &part, &rig.e), 0);
	assert_int_equal(rig.ram.owed.left, 0);
	rig_ends(&rig, 0, 0);
	assert_int_equal(rig_allocated(&rig), PAGES / 2 - 7);
	rig_close(&rig);
}

/* All processes that wait for a page go on, also those through whose userfaultfd it did not come. */
static void every_process_goes_on(void **state)
{
	struct lazy_rig rig;

	(void)state;
	rig_begin(&rig, 2);
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

/* No more is asked for than fits into the sockets: the other faults wait in the kernel. */
static void questions_are_bounded(void **state)
{
	struct lazy_rig rig;

	(void)state;
	rig_begin(&rig, 1);
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
	rig_begin(&rig, 1);
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
	rig_begin(&rig, 1);
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

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_page_is_owed_until_it_is_there),
	cmocka_unit_test(a_fault_waits_for_its_page),
	cmocka_unit_test(a_page_that_is_pushed_ends_the_fault),
	cmocka_unit_test(what_was_never_touched_is_zero_at_once),
	cmocka_unit_test(owed_zeros),
	cmocka_unit_test(every_process_goes_on),
	cmocka_unit_test(questions_are_bounded),
	cmocka_unit_test(afterwards_nothing_remains),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
