/* SPDX-License-Identifier: GPL-2.0-only */
/* A receiver whose guest may be lost, its record, and a sender that asks. Include after cmocka.h. */
#ifndef GODWIT_GUEST_LOST_SCENE_H
#define GODWIT_GUEST_LOST_SCENE_H

#include "channel_rig.h"
#include "receive/receiver_internal.h"
#include "run_dir.h"

#define LOST	"{\"state\":\"runs\",\"resumed-ns\":7,\"vmm\":\"doubt-7-7\",\"owing\":true,\"lost\":true}"
#define OWING	"{\"state\":\"runs\",\"resumed-ns\":7,\"vmm\":\"doubt-7-7\",\"owing\":true,\"lost\":false}"

static const uint8_t token[WIRE_SECRET] = "the guest's own";

/* A receiver as it is when its migration is over, or before one has come; the peer has sent a frame with a token. */
struct scene {
	struct receiver_options o;
	struct receiver r;
	int peer;
	bool silent;	/* the link dies under what is said last: neither DONE nor an end of the connection comes back */
	struct wire_header h, said;
};

static void no_record(void)
{
	char path[256], name[RECORD_NAME];

	record_name_verdict(name, token, sizeof(token));
	snprintf(path, sizeof(path), "%s/%s", run_dir, name);
	unlink(path);
}

/* Of a receiver that has ended. */
static void have_record(const char *text)
{
	struct record rec;
	char name[RECORD_NAME];

	no_record();
	record_name_verdict(name, token, sizeof(token));
	assert_int_equal(record_open(&rec, run_dir, name), 0);
	assert_int_equal(record_write(&rec, json_loads(text, 0, NULL)), 0);
	record_close(&rec);
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
	assert_int_equal(channel_new(pair[0], engine, 50 * TIMEOUT_MS, &s->r.ch, &e), 0);
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
		/* For no bytes it would wait. */
		if (s->said.length)
			recv(s->peer, text, s->said.length, MSG_WAITALL);
		wire_put_header(head, &done);
		if (!s->silent)
			send(s->peer, head, sizeof(head), MSG_NOSIGNAL);
	}
	if (!s->silent)
		shutdown(s->peer, SHUT_RDWR);
	return NULL;
}

/* What answers: recover_tell(), recover_refuse() or verdict_reply(). Return: its own, if it has one. */
static int answer(struct scene *s, int (*how)(struct scene *s))
{
	pthread_t thread;
	int ret;

	assert_int_equal(pthread_create(&thread, NULL, hear, s), 0);
	if (s->silent)
		channel_set_timeout(s->r.ch, TIMEOUT_MS);
	ret = how(s);
	channel_free(s->r.ch);
	s->r.ch = NULL;
	pthread_join(thread, NULL);
	close(s->peer);
	return ret;
}

static inline int reply(struct scene *s)
{
	return (int)verdict_reply(&s->r);
}

static void assert_told(const struct scene *s, unsigned int type, unsigned int arg)
{
	assert_string_equal(wire_type_name(s->said.type), wire_type_name(type));
	assert_int_equal(s->said.arg, arg);
}

static void assert_said(const struct scene *s, unsigned int type, unsigned int arg, bool knows)
{
	assert_told(s, type, arg);
	assert_int_equal(s->r.sender, knows ? SENDER_KNOWS : SENDER_MAY_NOT_KNOW);
}

static int remove_records(void **state)
{
	no_record();
	return run_dir_remove(state);
}

#endif
