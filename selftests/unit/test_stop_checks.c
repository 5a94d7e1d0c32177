// SPDX-License-Identifier: GPL-2.0-only
/* Checks that threads make beside the last round: their result is awaited, and none is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "send/sender_internal.h"

static struct report report;
static struct sender s;
static atomic_bool may_end;

static int begin_test(void **state)
{
	(void)state;
	memset(&s, 0, sizeof(s));
	s.report = &report;
	report.phase = "device state";
	atomic_store(&may_end, false);
	return 0;
}

static int finds_nothing(struct sender *of, struct err *e)
{
	(void)e;
	assert_ptr_equal(of, &s);
	return 0;
}

static int finds_a_writer(struct sender *of, struct err *e)
{
	(void)of;
	while (!atomic_load(&may_end))
		nap_ms(1);
	return err_set(e, GW_PINNED, EBUSY, "a writer");
}

static void nothing_was_found(void **state)
{
	struct err e = { 0 };

	(void)state;
	assert_int_equal(stop_checks_end(&s, &e), 0);
	for (unsigned int i = 0; i < STOP_CHECKS; i++)
		assert_int_equal(stop_check_begin(&s, finds_nothing, &e), 0);
	assert_int_equal(stop_checks_end(&s, &e), 0);
	assert_int_equal(e.exit, GW_OK);
	assert_string_equal(report.phase, "device state");
}

/* Whichever of them it is; it is not overtaken by the commit, nor forgotten when another has found nothing. */
static void a_late_result_is_waited_for(void **state)
{
	(void)state;
	for (unsigned int which = 0; which < STOP_CHECKS; which++) {
		struct err e = { 0 };

		begin_test(NULL);
		for (unsigned int i = 0; i < STOP_CHECKS; i++)
			assert_int_equal(stop_check_begin(&s, i == which ? finds_a_writer : finds_nothing, &e), 0);
		for (unsigned int i = 0; i < 20; i++, nap_ms(1))
			assert_int_equal(stop_checks_look(&s, &e), 0);
		atomic_store(&may_end, true);
		assert_int_equal(stop_checks_end(&s, &e), -EBUSY);
		assert_int_equal(e.exit, GW_PINNED);
		assert_string_equal(e.text, "a writer");
		assert_string_equal(report.phase, "switchover");
		/* Once more, as the session ends. */
		assert_int_equal(stop_checks_end(&s, NULL), 0);
	}
}

/* One of them, once; the other goes on. */
static void one_is_waited_for(void **state)
{
	struct err e = { 0 };

	(void)state;
	assert_int_equal(stop_check_begin(&s, finds_nothing, &e), 0);
	assert_int_equal(stop_check_begin(&s, finds_a_writer, &e), 0);
	assert_int_equal(stop_check_wait(&s, finds_nothing, &e), 0);
	assert_false(atomic_load(&s.stop_checks[1].over));
	assert_int_equal(stop_check_wait(&s, finds_nothing, &e), 0);
	atomic_store(&may_end, true);
	assert_int_equal(stop_check_wait(&s, finds_a_writer, &e), -EBUSY);
	assert_string_equal(e.text, "a writer");
	/* And it is not forgotten. */
	e = (struct err) { 0 };
	assert_int_equal(stop_checks_end(&s, &e), -EBUSY);
	assert_string_equal(e.text, "a writer");
}

/* A long last round is not sent to its end. */
static void a_result_ends_the_round(void **state)
{
	uint64_t end = deadline_ms(20000);
	struct err e = { 0 };
	int r;

	(void)state;
	assert_int_equal(stop_check_begin(&s, finds_a_writer, &e), 0);
	atomic_store(&may_end, true);
	while (!(r = stop_checks_look(&s, &e)) && now_ns() < end)
		nap_ms(1);
	assert_int_equal(r, -EBUSY);
	assert_string_equal(e.text, "a writer");
	/* It was told. */
	report.phase = "pre-copy";
	assert_int_equal(stop_checks_end(&s, NULL), 0);
	assert_string_equal(report.phase, "pre-copy");
}

#define VMM	77

int __wrap_vm_check_devices(struct qmp *q, pid_t pid, pid_t brake, struct err *e);
int __wrap_vm_check_open_devices(pid_t pid, pid_t brake, struct err *e);
int __wrap_vm_check_direct_io(pid_t pid, struct err *e);

static const char *came;	/* since the preflight check; NULL: nothing */

static int looked_at(pid_t pid, const char *what, struct err *e)
{
	assert_int_equal(pid, VMM);
	return came && !strcmp(came, what) ? err_set(e, GW_PINNED, EBUSY, "%s", what) : 0;
}

int __wrap_vm_check_devices(struct qmp *q, pid_t pid, pid_t brake, struct err *e)
{
	(void)q;
	return __wrap_vm_check_open_devices(pid, brake, e);
}

int __wrap_vm_check_open_devices(pid_t pid, pid_t brake, struct err *e)
{
	(void)brake;
	return looked_at(pid, "a device", e);
}

int __wrap_vm_check_direct_io(pid_t pid, struct err *e)
{
	return looked_at(pid, "a disk by O_DIRECT on NFS", e);
}

/* Behind a harvest that saw a change, and at the stop. */
static void what_came_meanwhile_is_found(void **state)
{
	static const char *const each[] = { "a device", "a disk by O_DIRECT on NFS", NULL };

	(void)state;
	s.vm.pid = VMM;
	for (unsigned int i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		struct err in_round = { 0 }, at_stop = { 0 };

		came = each[i];
		assert_int_equal(sender_check_writers(&s, &in_round), came ? -EBUSY : 0);
		assert_int_equal(stop_check_begin(&s, stop_check_files, &at_stop), 0);
		assert_int_equal(stop_checks_end(&s, &at_stop), came ? -EBUSY : 0);
		assert_string_equal(in_round.text, came ? came : "");
		assert_string_equal(at_stop.text, came ? came : "");
	}
}

/* RAM that is read from a file: QEMU maps another one by now. */
static void ram_that_was_exchanged(void **state)
{
	static const struct dirty_ops no_mappers = { .name = "none" };
	struct dirty_source source = { .ops = &no_mappers };
	struct err e = { 0 };

	(void)state;
	s.source = &source;
	s.vm.pid = getpid();
	s.vm.nblocks = 1;
	s.vm.blocks[0] = (struct ram_block) { .name = "ram0", .dev = 1, .ino = 2, .hva = 4096 };
	assert_int_equal(stop_check_begin(&s, stop_check_mappers, &e), 0);
	assert_int_equal(stop_checks_end(&s, &e), 0);
	s.vm.blocks[0].hva = 0;
	assert_int_equal(stop_check_begin(&s, stop_check_mappers, &e), 0);
	assert_int_equal(stop_checks_end(&s, &e), -EAGAIN);
	assert_int_equal(e.exit, GW_VM_STATE);
	assert_non_null(strstr(e.text, "RAM \"ram0\" any more"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(nothing_was_found, begin_test),
		cmocka_unit_test_setup(a_late_result_is_waited_for, begin_test),
		cmocka_unit_test_setup(one_is_waited_for, begin_test),
		cmocka_unit_test_setup(a_result_ends_the_round, begin_test),
		cmocka_unit_test_setup(what_came_meanwhile_is_found, begin_test),
		cmocka_unit_test_setup(ram_that_was_exchanged, begin_test),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
