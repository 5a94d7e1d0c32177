// SPDX-License-Identifier: GPL-2.0-only
/*
 * The destination's QEMU has exited while the link was down: what a sender that comes back hears, of the receiver that saw it, of
 * one that had taken over and does not know yet for whom, and of one that is started later. And that a guest which only lacks RAM
 * is neither lost nor complete.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "channel_rig.h"
#include "qmp_peer.h"
#include "receive/receiver_internal.h"

#define LOST	"{\"state\":\"runs\",\"resumed-ns\":7,\"vmm\":\"doubt-7-7\",\"owing\":true,\"lost\":true}"
#define OWING	"{\"state\":\"runs\",\"resumed-ns\":7,\"vmm\":\"doubt-7-7\",\"owing\":true,\"lost\":false}"
#define SENT	"{\"state\":\"sent\",\"resumed-ns\":0,\"vmm\":\"doubt-7-7\",\"owing\":true,\"lost\":false}"
#define SENT_RUNS "{\"state\":\"sent\",\"qmp\":\"/tmp/godwit-none\",\"vmm\":\"doubt-7-7\",\"runs\":true,\"owing\":true,\"lost\":false}"
#define WHOLE	"{\"state\":\"runs\",\"resumed-ns\":7,\"vmm\":\"doubt-7-7\",\"owing\":false,\"lost\":false}"
#define SILENCE	0

static const uint8_t token[WIRE_SECRET] = "the guest's own", other[WIRE_SECRET] = "of another one", zeros[WIRE_SECRET];
static char dir[] = "/tmp/godwit-lost-XXXXXX";

int __wrap_postcopy_take(struct receiver *r, const uint8_t with[WIRE_SECRET], struct err *e);
int __wrap_receiver_wait_again(struct receiver *r, uint64_t until, receiver_serve_fn *serve, struct err *e);

/* The module keeps nothing of it. */
int __wrap_postcopy_take(struct receiver *r, const uint8_t with[WIRE_SECRET], struct err *e)
{
	(void)r, (void)with;
	return err_set(e, GW_NO_MIGRATION, ENOENT, "none is kept");
}

/* A receiver as it is when its migration is over, or before one has come; the peer has sent a frame with a token. */
struct scene {
	struct receiver_options o;
	struct receiver r;
	int peer;
	struct wire_header h, said;
};

static void no_record(void)
{
	char path[256], name[RECORD_NAME];

	record_name_verdict(name, token, sizeof(token));
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	unlink(path);
}

/* Of a receiver that has ended. */
static void have_record(const char *text)
{
	struct record rec;
	char name[RECORD_NAME];

	no_record();
	record_name_verdict(name, token, sizeof(token));
	assert_int_equal(record_open(&rec, dir, name), 0);
	assert_int_equal(record_write(&rec, json_loads(text, 0, NULL)), 0);
	record_close(&rec);
}

static void assert_record_names(const char *vmm)
{
	char name[RECORD_NAME];
	json_auto_t *record = NULL;
	bool held;

	record_name_verdict(name, token, sizeof(token));
	record = record_read(dir, name, &held);
	assert_string_equal(json_string_value(json_object_get(record, "vmm")), vmm);
}

static void open_scene(struct scene *s, enum wire_type asks, const uint8_t *with)
{
	uint8_t frame[WIRE_HEADER + WIRE_SECRET];
	struct wire_header h = { .type = (uint16_t)asks, .length = WIRE_SECRET };
	struct err e = { 0 };
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	*s = (struct scene) {
		.o = { .resolve_s = 1 },
		.r = { .lfd = -1, .vm = { .pidfd = -1 }, .postcopy = POSTCOPY_NONE, .commit = COMMIT_RUNS, .record = RECORD_NONE,
		       .features = WIRE_POSTCOPY | WIRE_LOSSES, .sender = SENDER_MAY_NOT_KNOW },
		.peer = pair[1],
	};
	s->r.o = &s->o;
	assert_int_equal(channel_new(pair[0], engine, TIMEOUT_MS, &s->r.ch, &e), 0);
	wire_put_header(frame, &h);
	memcpy(frame + WIRE_HEADER, with, WIRE_SECRET);
	assert_int_equal(send(s->peer, frame, sizeof(frame), 0), sizeof(frame));
	assert_int_equal(channel_recv(s->r.ch, &s->h, false, &e), 0);
}

/* The first frame that it says, and whether that was read is confirmed, as a godwit does. */
static void *hear(void *arg)
{
	const struct wire_header done = { .type = WIRE_DONE };
	struct scene *s = arg;
	uint8_t head[WIRE_HEADER], text[WIRE_TEXT_MAX];

	if (recv(s->peer, head, sizeof(head), MSG_WAITALL) == sizeof(head)) {
		wire_get_header(head, &s->said);
		recv(s->peer, text, s->said.length, MSG_WAITALL);
		wire_put_header(head, &done);
		send(s->peer, head, sizeof(head), MSG_NOSIGNAL);
	}
	shutdown(s->peer, SHUT_RDWR);
	return NULL;
}

/* What answers: recover_tell(), recover_refuse() or verdict_reply(). Return: its own, if it has one. */
static int answer(struct scene *s, int (*how)(struct scene *s))
{
	pthread_t thread;
	int ret;

	assert_int_equal(pthread_create(&thread, NULL, hear, s), 0);
	ret = how(s);
	channel_free(s->r.ch);
	s->r.ch = NULL;
	pthread_join(thread, NULL);
	close(s->peer);
	return ret;
}

static int tell(struct scene *s)
{
	recover_tell(&s->r, &s->h);
	return 0;
}

static int reply(struct scene *s)
{
	return verdict_reply(&s->r);
}

static int refuse(struct scene *s)
{
	struct err e = { 0 };

	recover_refuse(&s->r, &e);
	return (int)e.exit;
}

static struct channel *comes;

/* The one peer that comes while it waits. */
int __wrap_receiver_wait_again(struct receiver *r, uint64_t until, receiver_serve_fn *serve, struct err *e)
{
	const struct wire_header h = { .type = WIRE_RECOVER, .length = WIRE_SECRET };

	(void)until;
	r->ch = comes;
	return serve(r, &h, e);
}

static int wait_for(struct scene *s)
{
	struct err e = { 0 };

	err_set(&e, GW_LINK_LOST, ECONNRESET, "the link was lost");
	comes = s->r.ch;
	s->r.ch = NULL;
	return recover(&s->r, -ECONNRESET, &e);
}

static void assert_said(const struct scene *s, unsigned int type, unsigned int arg, bool knows)
{
	assert_string_equal(wire_type_name(s->said.type), wire_type_name(type));
	assert_int_equal(s->said.arg, arg);
	assert_int_equal(s->r.sender, knows ? SENDER_KNOWS : SENDER_MAY_NOT_KNOW);
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

/* receive --recover, whose QEMU exited before its sender came: the record says which migration had that QEMU. */
static void the_receiver_that_took_over(void **state)
{
	const struct {
		const char *record, *vmm;
		const uint8_t *token;
		unsigned int status;
	} each[] = {
		{ OWING, "doubt-7-7", token, GW_GUEST_LOST },
		{ OWING, "doubt-7-8", token, GW_NO_MIGRATION },	/* the record is of another QEMU */
		{ OWING, "", token, GW_NO_MIGRATION },
		{ SENT, "doubt-7-7", token, GW_NO_MIGRATION },	/* nobody knows whether it ran */
		{ WHOLE, "doubt-7-7", token, GW_NO_MIGRATION },
		{ LOST, "doubt-7-7", token, GW_GUEST_LOST },
		{ LOST, "doubt-7-8", token, GW_GUEST_LOST },	/* so is another guest, whose sender has come here */
		{ OWING, "doubt-7-7", other, GW_NO_MIGRATION },
		{ OWING, "doubt-7-7", zeros, GW_NO_MIGRATION },	/* as its own token is, as long as it knows none */
	};
	struct scene s;

	(void)state;
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		have_record(each[i].record);
		open_scene(&s, WIRE_RECOVER, each[i].token);
		s.o.recover = s.r.lost = true;
		snprintf(s.r.vmm, sizeof(s.r.vmm), "%s", each[i].vmm);
		answer(&s, tell);
		assert_said(&s, WIRE_ABORT, each[i].status,
			    each[i].status == GW_GUEST_LOST && !strcmp(each[i].vmm, "doubt-7-7"));
		record_close(&s.r.record);
		assert_record_names("doubt-7-7");
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
		{ OWING, "", token, false }, { WHOLE, "doubt-7-7", token, false }, { OWING, "doubt-7-7", other, false },
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
		{ WHOLE, token, GW_NO_MIGRATION },
	};
	struct scene s;

	(void)state;
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		have_record(each[i].record);
		open_scene(&s, WIRE_RECOVER, each[i].token);
		assert_int_equal(answer(&s, refuse), each[i].status);
	}
}

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
	const struct {
		const struct peer_answer *qemu;
		const char *vmm;
		unsigned int verdict;
	} each[] = {
		{ running, "doubt-7-7", COMMIT_RUNS },
		{ paused, "doubt-7-7", COMMIT_SENT },	/* the guest is to run */
		{ running, "doubt-7-8", COMMIT_SENT },	/* of another QEMU, which is not there */
	};
	struct err e = { 0 };
	struct scene s;

	(void)state;
	have_record(SENT_RUNS);
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		struct peer qemu;

		open_scene(&s, WIRE_ASK, token);
		s.o.recover = true;
		snprintf(s.r.vmm, sizeof(s.r.vmm), "%s", each[i].vmm);
		s.r.qmp = peer_qemu(&qemu, each[i].qemu, &e);
		assert_non_null(s.r.qmp);
		answer(&s, reply);
		peer_qemu_end(&qemu, s.r.qmp);
		assert_said(&s, WIRE_VERDICT, each[i].verdict, false);
		assert_int_equal(s.said.flags, each[i].verdict == COMMIT_RUNS ? WIRE_OWING : 0);
	}
}

static int make_dir(void **state)
{
	(void)state;
	return !mkdtemp(dir) || setenv("RUNTIME_DIRECTORY", dir, 1);
}

static int remove_dir(void **state)
{
	(void)state;
	no_record();
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_receiver_that_saw_it),
		cmocka_unit_test(a_guest_that_lacks_ram),
		cmocka_unit_test(a_guest_that_has_all),
		cmocka_unit_test(the_receiver_that_took_over),
		cmocka_unit_test(a_qemu_that_is_about_to_exit),
		cmocka_unit_test(the_loss_of_another_guest),
		cmocka_unit_test(another_receiver),
		cmocka_unit_test(the_verdict),
		cmocka_unit_test(the_verdict_of_one_that_took_over),
	};

	engine = &engine_poll;
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
