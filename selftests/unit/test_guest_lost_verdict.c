// SPDX-License-Identifier: GPL-2.0-only
/* What ASK hears of a guest whose QEMU has exited before all of its RAM was there, or may have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "guest_lost_scene.h"
#include "qmp_peer.h"

#define SENT_RUNS "{\"state\":\"sent\",\"qmp\":\"/tmp/godwit-none\",\"vmm\":\"doubt-7-7\",\"runs\":true,\"owing\":true,\"lost\":false}"

/* To ASK, as resolve does; a peer that does not know the flag hears what it always did. */
static void the_verdict(void **state)
{
	struct scene s;

	(void)state;
	have_record(LOST);
	open_scene(&s, WIRE_ASK, token);
	answer(&s, reply);
	assert_said(&s, WIRE_VERDICT, COMMIT_RUNS, false);
	assert_int_equal(s.said.flags, WIRE_OWING | WIRE_LOST);
	open_scene(&s, WIRE_ASK, token);
	s.r.features = WIRE_POSTCOPY;
	answer(&s, reply);
	assert_int_equal(s.said.flags, WIRE_OWING);
	have_record(OWING);
	open_scene(&s, WIRE_ASK, token);
	answer(&s, reply);
	assert_int_equal(s.said.flags, WIRE_OWING);
}

/* receive --recover has the only connection that its QEMU serves, and its record is from before that QEMU had its device state. */
static void the_verdict_of_one_that_took_over(void **state)
{
	static const struct peer_answer running[] = { { "query-status", "", "{\"status\": \"running\"}" }, { 0 } };
	static const struct peer_answer paused[] = { { "query-status", "", "{\"status\": \"paused\"}" }, { 0 } };
	static const struct peer_answer nothing[] = { { 0 } };
	const struct {
		const struct peer_answer *qemu;
		const char *vmm;
		unsigned int verdict;
		bool ran;
	} each[] = {
		{ running, "doubt-7-7", COMMIT_RUNS, false },
		{ paused, "doubt-7-7", COMMIT_SENT, false },	/* the guest is to run */
		{ running, "doubt-7-8", COMMIT_SENT, false },	/* of another QEMU, which is not there */
		{ nothing, "doubt-7-7", COMMIT_SENT, false },
		{ nothing, "doubt-7-7", COMMIT_RUNS, true },	/* it may wait for a page now: it need not answer */
		{ nothing, "doubt-7-8", COMMIT_SENT, true },
	};
	struct err e = { 0 };
	struct scene s;

	(void)state;
	have_record(SENT_RUNS);
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		struct peer qemu;

		open_scene(&s, WIRE_ASK, token);
		s.o.recover = true;
		s.r.ran = each[i].ran;
		snprintf(s.r.vmm, sizeof(s.r.vmm), "%s", each[i].vmm);
		s.r.qmp = peer_qemu(&qemu, each[i].qemu, &e);
		assert_non_null(s.r.qmp);
		answer(&s, reply);
		peer_qemu_end(&qemu, s.r.qmp);
		assert_said(&s, WIRE_VERDICT, each[i].verdict, false);
		assert_int_equal(s.said.flags, each[i].verdict == COMMIT_RUNS ? WIRE_OWING : 0);
	}
}

/* Nor must its path be UTF-8 for the receiver that asks it after the one that wrote the record. */
static void the_verdict_of_a_qemu_at_an_odd_path(void **state)
{
	static const struct peer_answer running[] = { { "query-status", "", "{\"status\": \"running\"}" }, { 0 } };
	struct receiver killed;
	struct peer qemu;
	struct scene s;
	char odd[96];

	(void)state;
	no_record();
	assert_int_equal(peer_start(&qemu, peer_serve, running, 4), 0);
	snprintf(odd, sizeof(odd), "%.60s/qmp\xff", qemu.dir);
	assert_int_equal(rename(qemu.path, odd), 0);
	strcpy(qemu.path, odd);
	open_scene(&s, WIRE_ASK, token);
	s.o.qmp_path = odd;
	killed = s.r;
	killed.verdicts = killed.runs = true;
	killed.commit = COMMIT_SENT;
	memcpy(killed.token, token, sizeof(token));
	record_name_vm(killed.vmm, "doubt", getpid());
	verdict_open(&killed);
	assert_true(killed.record.fd >= 0);
	record_close(&killed.record);
	answer(&s, reply);
	assert_said(&s, WIRE_VERDICT, COMMIT_RUNS, false);
	peer_stop(&qemu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_verdict),
		cmocka_unit_test(the_verdict_of_one_that_took_over),
		cmocka_unit_test(the_verdict_of_a_qemu_at_an_odd_path),
	};

	engine = &engine_poll;
	return cmocka_run_group_tests(tests, run_dir_make, remove_records);
}
