// SPDX-License-Identifier: GPL-2.0-only
/* A link that was away for less than it may be, and whose connections come back late, each as TCP has it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "postcopy_rig.h"

#define TIMEOUT_MS	2000u	/* a busy host keeps to it, where it counts once */
#define STALL_MS	(TIMEOUT_MS * 3 / 2)

/* In the middle of a frame of RAM, which the sender cannot finish, and the receiver waits for. */
static void streams_come_back_late(void **state)
{
	struct stall stalls[2 * STREAMS] = { { .after = 0 } };
	int fds[2];

	(void)state;
	timeout_ms = TIMEOUT_MS;
	for (unsigned int i = 0; i < STREAMS; i++)
		stalls[2 * i] = (struct stall) { .after = 400000, .ms = STALL_MS };
	open_both(1, 0);
	open_streams_that_stall(0, 0, stalls);
	last_round();
	pair(fds);
	begin_requests(fds[0]);
	receive_streams_release(l.in);
	begin_answers(fds[1]);
	begin_push();
	assert_return_code(send_streams_wait(l.out, NULL, &l.e), 0);
	round_end(&l.round);
	for (uint64_t end = deadline_ms(SOON_MS); atomic_load(&rig.ram.owed.left) && now_ns() < end;)
		nap_ms(1);
	assert_int_equal(rig.ram.owed.left, 0);
	assert_false(atomic_load(receive_streams_failed(l.in)));
	close_both();
	for (unsigned int i = 0; i < STREAMS; i++)
		stalled_end(&stalls[2 * i], &stalls[2 * i + 1]);
}

/* A page of 2 MiB that the guest waits for: before it, or in the middle of it. */
static void page_comes_late(uint64_t after)
{
	struct stall stall = { .after = after, .ms = STALL_MS }, back;
	int fds[2];

	timeout_ms = TIMEOUT_MS;
	open_both(512, 0);
	open_streams(0, 0);
	last_round();
	stalled_pair(fds, &stall, &back);
	begin_requests(fds[1]);
	receive_streams_release(l.in);
	begin_answers(fds[0]);
	guests_look(PAGES);
	guests_end();
	assert_return_code(answers_check(l.answers, &l.e), 0);
	assert_int_equal(rig.ram.owed.left, 0);
	close_both();
	stalled_end(&stall, &back);
}

static void a_page_comes_late(void **state)
{
	(void)state;
	page_comes_late(1);
}

static void the_rest_of_a_page_comes_late(void **state)
{
	(void)state;
	page_comes_late(1000000);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(streams_come_back_late),
	cmocka_unit_test(a_page_comes_late),
	cmocka_unit_test(the_rest_of_a_page_comes_late),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
