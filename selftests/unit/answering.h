/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A receiver that answers one question of a sender that has lost its link. There is no QEMU: link with -Wl,--wrap=journal_undo.
 * Include after cmocka.h.
 */
#ifndef GODWIT_ANSWERING_H
#define GODWIT_ANSWERING_H

#include <sys/un.h>

#include "channel_rig.h"
#include "peer/hello.h"
#include "send/sender_internal.h"

/* QEMU is not there: nothing is undone. */
int __wrap_journal_undo(struct journal *j, struct qmp *q, enum undo_what what, struct err *e);

static enum undo_what undone;
static int undoing;	/* what that ends with: QEMU may not answer */
static bool leaves;	/* the guest as it stands */

int __wrap_journal_undo(struct journal *j, struct qmp *q, enum undo_what what, struct err *e)
{
	(void)q;
	undone = what;
	j->left = leaves;
	return undoing ? err_set(e, GW_TIMEOUT, -undoing, "QEMU does not answer") : 0;
}

/* A receiver at the end of a UNIX socket: some connections it closes, in the next one it answers. */
struct answering {
	char path[64];
	int fd;
	unsigned int closes;
	bool leaves;		/* nobody comes to another one after that */
	struct wire_header says;	/* and a body, the number 1; no type: */
	uint32_t status;	/* gives up; 0: says that the guest does not run there */
	uint16_t asked;		/* the frame that it has answered so */
	uint8_t more[512];	/* what came behind its header */
	size_t n_more;
	enum undo_what undone;	/* by then */
};

static inline void answer_one(struct answering *a, int fd)
{
	const struct wire_header hello = { .type = WIRE_HELLO, .arg = WIRE_VERSION, .length = WIRE_HELLO_BODY };
	const struct wire_header answer = a->says.type ? a->says : (struct wire_header) {
		.type = a->status ? WIRE_ABORT : WIRE_VERDICT, .arg = a->status ? a->status : COMMIT_DEAD, .length = 8,
	};
	uint8_t bytes[WIRE_HEADER + WIRE_HELLO_BODY], text[WIRE_HEADER + 8] = { 0 };
	struct wire_header h;

	recv(fd, bytes, sizeof(bytes), MSG_WAITALL);
	wire_put_header(bytes, &hello);
	wire_put_u64(bytes + WIRE_HEADER, HELLO_FEATURES);
	wire_put_u64(bytes + WIRE_HEADER + 8, HELLO_NEEDS);
	send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
	recv(fd, bytes, WIRE_HEADER, MSG_WAITALL);
	wire_get_header(bytes, &h);
	a->asked = h.type;
	a->undone = undone;
	wire_put_header(text, &answer);
	text[WIRE_HEADER] = 1;
	if (answer.type == WIRE_ABORT)
		memcpy(text + WIRE_HEADER, "it went.", 8);
	send(fd, text, WIRE_HEADER + answer.length, MSG_NOSIGNAL);
	shutdown(fd, SHUT_WR);
	a->n_more = 0;
	for (ssize_t n; (n = recv(fd, a->more + a->n_more, sizeof(a->more) - a->n_more, 0)) > 0; a->n_more += (size_t)n)
		;
}

static inline void *answer_all(void *arg)
{
	struct answering *a = arg;

	for (unsigned int i = 0; i <= a->closes; i++) {
		int fd = accept(a->fd, NULL, NULL);

		if (i == a->closes && a->leaves) {
			close(a->fd);
			a->fd = -1;
		}
		if (i == a->closes)
			answer_one(a, fd);
		close(fd);
	}
	return NULL;
}

static inline void answering_begin(struct answering *a, pthread_t *thread)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	snprintf(a->path, sizeof(a->path), "unix:/tmp/godwit-loss-%d", (int)getpid());
	strcpy(at.sun_path, a->path + strlen("unix:"));
	unlink(at.sun_path);
	a->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(a->fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(a->fd, 8), 0);
	if (thread)
		assert_int_equal(pthread_create(thread, NULL, answer_all, a), 0);
}

static inline void answering_end(struct answering *a, pthread_t *thread)
{
	if (thread)
		pthread_join(*thread, NULL);
	if (a->fd >= 0)
		close(a->fd);
	unlink(a->path + strlen("unix:"));
}

#endif
