// SPDX-License-Identifier: GPL-2.0-only
/*
 * The destination's QEMU has exited while the link was down: what a sender that comes back with RECOVER hears, of the receiver
 * that saw it, of one that had taken over and does not know yet for whom, and of one that is started later. And that a guest
 * which only lacks RAM is neither lost nor complete.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "recover_scene.h"

#define SENT	"{\"state\":\"sent\",\"resumed-ns\":0,\"vmm\":\"doubt-7-7\",\"owing\":true,\"lost\":false}"
#define WHOLE	"{\"state\":\"runs\",\"resumed-ns\":7,\"vmm\":\"doubt-7-7\",\"owing\":false,\"lost\":false}"

/* The module keeps nothing of it. */
int __wrap_postcopy_take(struct receiver *r, const uint8_t with[WIRE_SECRET], struct err *e);
int __wrap_postcopy_take(struct receiver *r, const uint8_t with[WIRE_SECRET], struct err *e)
{
	(void)r, (void)with;
	return err_set(e, GW_NO_MIGRATION, ENOENT, "none is kept");
}

static void assert_record_names(const char *vmm)
{
	char name[RECORD_NAME];
	json_auto_t *record = NULL;
	bool held;

	record_name_verdict(name, token, sizeof(token));
	record = record_read(run_dir, name, &held);
	assert_string_equal(json_string_value(json_object_get(record, "vmm")), vmm);
}

static int tell(struct scene *s)
{
	recover_tell(&s->r, &s->h);
	return 0;
}

static int refuse(struct scene *s)
{
	struct err e = { 0 };

	recover_refuse(&s->r, &e);
	return (int)e.exit;
}

/* It has seen its QEMU exit; nothing depends on its record. */
static void the_receiver_that_saw_it(void **state)
{
	struct scene s;

	(void)state;
	no_record();
	open_scene(&s, WIRE_RECOVER, token);
	s.r.lost = s.r.verdicts = s.r.lacks_ram = true;
	memcpy(s.r.token, token, sizeof(token));
	answer(&s, tell);
	assert_said(&s, WIRE_ABORT, GW_GUEST_LOST, true);
	open_scene(&s, WIRE_RECOVER, other);
	s.r.lost = s.r.verdicts = s.r.lacks_ram = true;
	memcpy(s.r.token, token, sizeof(token));
	answer(&s, tell);
	assert_said(&s, WIRE_ABORT, GW_NO_MIGRATION, false);
}

/* RAM is still owed, and another receiver can take over: no word of this one may end the sender, least of all COMPLETE. */
static void a_guest_that_lacks_ram(void **state)
{
	struct scene s;

	(void)state;
	have_record(OWING);
	open_scene(&s, WIRE_RECOVER, token);
	s.r.verdicts = s.r.lacks_ram = true;
	memcpy(s.r.token, token, sizeof(token));
	answer(&s, tell);
	assert_said(&s, SILENCE, 0, true);
}

static void a_guest_that_has_all(void **state)
{
	struct scene s;

	(void)state;
	have_record(WHOLE);
	open_scene(&s, WIRE_RECOVER, token);
	s.r.verdicts = true;
	memcpy(s.r.token, token, sizeof(token));
	answer(&s, tell);
	assert_said(&s, WIRE_COMPLETE, 0, true);
}

/* The sender may not have read the last word: the receiver does not wait for it, but the record stays. */
static void a_link_that_dies_in_silence(void **state)
{
	struct scene s;

	(void)state;
	have_record(WHOLE);
	for (unsigned int silent = 0; silent < 2; silent++) {
		const enum sender_knowledge heard = silent ? SENDER_TOLD : SENDER_KNOWS;

		open_scene(&s, WIRE_RECOVER, token);
		s.silent = silent;
		s.r.verdicts = true;
		memcpy(s.r.token, token, sizeof(token));
		answer(&s, tell);
		assert_told(&s, WIRE_COMPLETE, 0);
		assert_int_equal(s.r.sender, heard);
		open_scene(&s, WIRE_ASK, token);
		s.silent = silent;
		memcpy(s.r.token, token, sizeof(token));
		assert_int_equal(answer(&s, reply), heard);
		assert_told(&s, WIRE_VERDICT, COMMIT_RUNS);
		/* Of another migration. */
		open_scene(&s, WIRE_ASK, token);
		s.silent = silent;
		assert_int_equal(answer(&s, reply), SENDER_MAY_NOT_KNOW);
	}
}

#define BLOCKS_BYTES	8192u

/* A peer that has sent BLOCKS before it hears the last word, and takes its time for that. */
static void *trickle(void *arg)
{
	const struct wire_header blocks = { .type = WIRE_BLOCKS, .arg = WIRE_BLOCKS_MAX, .length = BLOCKS_BYTES };
	uint8_t head[WIRE_HEADER], part[512] = { 0 };
	struct scene *s = arg;

	wire_put_header(head, &blocks);
	for (unsigned int sent = 0; send(s->peer, sent ? part : head, sent ? sizeof(part) : sizeof(head), MSG_NOSIGNAL) > 0 &&
				    sent < BLOCKS_BYTES; sent += sizeof(part))
		nap_ms(TIMEOUT_MS * 3 / 4);
	shutdown(s->peer, SHUT_RDWR);
	return NULL;
}

/* Each part of it comes in time, and the whole does not: nothing says that the last word was read, and others wait. */
static void a_peer_that_trickles(void **state)
{
	uint8_t asked[WIRE_SECRET];
	struct err e = { 0 };
	pthread_t thread;
	struct scene s;

	(void)state;
	no_record();
	open_scene(&s, WIRE_ASK, other);
	assert_int_equal(channel_body(s.r.ch, asked, sizeof(asked), &e), 0);
	channel_set_timeout(s.r.ch, TIMEOUT_MS);
	assert_int_equal(pthread_create(&thread, NULL, trickle, &s), 0);
	assert_int_equal(receiver_was_read(&s.r), SENDER_TOLD);
	channel_free(s.r.ch);
	pthread_join(thread, NULL);
	close(s.peer);
}

/* receive --recover, whose QEMU exited before its sender came: the record says which migration had that QEMU. */
static void the_receiver_that_took_over(void **state)
{
	const struct {
		const char *record, *vmm;
		const uint8_t *token;
		unsigned int status;
		bool ran;
	} each[] = {
		{ OWING, "doubt-7-7", token, GW_GUEST_LOST, false },
		{ OWING, "doubt-7-8", token, GW_NO_MIGRATION, false },	/* the record is of another QEMU */
		{ OWING, "", token, GW_NO_MIGRATION, false },
		{ SENT, "doubt-7-7", token, GW_NO_MIGRATION, false },	/* nobody knows whether it ran */
		{ SENT, "doubt-7-7", token, GW_GUEST_LOST, true },
		{ SENT, "doubt-7-8", token, GW_NO_MIGRATION, true },
		{ WHOLE, "doubt-7-7", token, GW_OK, false },
		{ WHOLE, "doubt-7-8", token, GW_OK, false },	/* another guest is, whose sender has come here */
		{ LOST, "doubt-7-7", token, GW_GUEST_LOST, false },
		{ LOST, "doubt-7-8", token, GW_GUEST_LOST, false },	/* so is another guest, whose sender has come here */
		{ OWING, "doubt-7-7", other, GW_NO_MIGRATION, false },
		{ OWING, "doubt-7-7", zeros, GW_NO_MIGRATION, false },	/* as its own token is, as long as it knows none */
	};
	struct scene s;

	(void)state;
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		have_record(each[i].record);
		open_scene(&s, WIRE_RECOVER, each[i].token);
		s.o.recover = s.r.lost = true;
		s.r.ran = each[i].ran;
		snprintf(s.r.vmm, sizeof(s.r.vmm), "%s", each[i].vmm);
		answer(&s, tell);
		assert_said(&s, each[i].status ? WIRE_ABORT : WIRE_COMPLETE, each[i].status,
			    each[i].status == GW_GUEST_LOST && !strcmp(each[i].vmm, "doubt-7-7"));
		record_close(&s.r.record);
		assert_record_names("doubt-7-7");
	}
}

/* The same, and QEMU had said before that its guest had ended of its own accord: that guest lacks nothing. */
static void the_receiver_that_saw_its_guest_end(void **state)
{
	const struct {
		const char *vmm;
		const uint8_t *token;
		bool ours;
	} each[] = {
		{ "doubt-7-7", token, true }, { "doubt-7-8", token, false }, { "", token, false },
		{ "doubt-7-7", other, false }, { "doubt-7-7", zeros, false },
	};
	struct scene s;

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(each) / sizeof(each[0]); i++) {
		const bool ours = each[i / 2].ours, asks = i % 2;
		json_t *whole;

		have_record(OWING);
		open_scene(&s, asks ? WIRE_ASK : WIRE_RECOVER, each[i / 2].token);
		s.o.recover = s.r.whole = s.r.ended = true;
		snprintf(s.r.vmm, sizeof(s.r.vmm), "%s", each[i / 2].vmm);
		if (asks)
			assert_int_equal(answer(&s, reply), ours ? SENDER_KNOWS : SENDER_MAY_NOT_KNOW);
		else
			answer(&s, tell);
		record_close(&s.r.record);
		if (!asks)
			assert_said(&s, ours ? WIRE_COMPLETE : WIRE_ABORT, ours ? 0 : GW_NO_MIGRATION, ours);
		else if (ours)
			assert_int_equal(s.said.flags, 0);
		else if (each[i / 2].token == token)
			assert_int_equal(s.said.flags, WIRE_OWING);
		/* For receivers that are asked later. */
		whole = verdict_whole(token);
		assert_int_equal(whole != NULL, ours);
		json_decref(whole);
	}
}

/* This one's guest runs, and its own sender may not know that; another guest's sender tries the same address. */
static void the_loss_of_another_guest(void **state)
{
	struct scene s;

	(void)state;
	have_record(LOST);
	open_scene(&s, WIRE_RECOVER, token);
	s.r.verdicts = true;
	memcpy(s.r.token, other, sizeof(other));
	answer(&s, tell);
	assert_said(&s, WIRE_ABORT, GW_GUEST_LOST, false);
}

/*
 * receive --recover, whose QEMU was killed, and is still about to exit: the module keeps nothing any more. A word would end the
 * sender, which comes again.
 */
static void a_qemu_that_is_about_to_exit(void **state)
{
	const struct {
		const char *record, *vmm;
		const uint8_t *token;
		bool silent;
	} each[] = {
		{ OWING, "doubt-7-7", token, true }, { SENT, "doubt-7-7", token, true }, { OWING, "doubt-7-8", token, false },
		{ OWING, "", token, false }, { WHOLE, "doubt-7-7", token, false },
		{ WHOLE, "doubt-7-8", token, false }, { OWING, "doubt-7-7", other, false },
	};
	struct scene s;

	(void)state;
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		have_record(each[i].record);
		open_scene(&s, WIRE_RECOVER, each[i].token);
		s.o.recover = true;
		s.o.recover_s = 1;
		snprintf(s.r.vmm, sizeof(s.r.vmm), "%s", each[i].vmm);
		assert_int_not_equal(answer(&s, wait_for), 0);
		/* It waits on for its own. */
		if (!strcmp(each[i].record, WHOLE) && each[i].token == token)
			assert_said(&s, WIRE_COMPLETE, 0, false);
		else
			assert_said(&s, each[i].silent ? SILENCE : WIRE_ABORT, each[i].silent ? 0 : GW_NO_MIGRATION, false);
	}
}

/* One that waits for another guest. */
static void another_receiver(void **state)
{
	const struct {
		const char *record;
		const uint8_t *token;
		int status;
	} each[] = {
		{ LOST, token, GW_GUEST_LOST }, { LOST, other, GW_NO_MIGRATION }, { OWING, token, GW_NO_MIGRATION },
		{ SENT, token, GW_NO_MIGRATION }, { WHOLE, other, GW_NO_MIGRATION }, { WHOLE, token, GW_OK },
	};
	struct scene s;

	(void)state;
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		have_record(each[i].record);
		open_scene(&s, WIRE_RECOVER, each[i].token);
		assert_int_equal(answer(&s, refuse), each[i].status);
		if (!each[i].status)
			assert_told(&s, WIRE_COMPLETE, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_receiver_that_saw_it),
		cmocka_unit_test(a_guest_that_lacks_ram),
		cmocka_unit_test(a_guest_that_has_all),
		cmocka_unit_test(a_link_that_dies_in_silence),
		cmocka_unit_test(a_peer_that_trickles),
		cmocka_unit_test(the_receiver_that_took_over),
		cmocka_unit_test(the_receiver_that_saw_its_guest_end),
		cmocka_unit_test(a_qemu_that_is_about_to_exit),
		cmocka_unit_test(the_loss_of_another_guest),
		cmocka_unit_test(another_receiver),
	};

	engine = &engine_poll;
	return cmocka_run_group_tests(tests, run_dir_make, remove_records);
}
