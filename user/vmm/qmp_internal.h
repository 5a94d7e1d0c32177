/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Inside the QMP client: messages out of a byte stream (qmp_stream.c), events that wait (qmp_events.c), the
 * first contact (qmp_open.c), commands (qmp.c).
 * Whoever listens on that socket may be anybody: sizes are bounded and every field is checked.
 */
#ifndef GODWIT_QMP_INTERNAL_H
#define GODWIT_QMP_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "vmm/qmp.h"

#define QMP_LINE_MAX	(16u << 20)	/* bytes of one message; query-* of large VMs stay far below */
#define QMP_EVENT_MAX	(64u << 10)	/* bytes of one event: what waits is bounded by ... */
#define QMP_EVENTS_MAX	1024		/* ... this many of them */

/**
 * struct qmp_stream - newline-terminated JSON objects from a socket
 * @buf, @cap: what was read; grows up to QMP_LINE_MAX
 * @start, @end: not taken yet
 * @seen: no newline in [start, seen)
 * @line_bytes: length of the message taken last
 * @complaint: after -EPROTO, what was wrong with it
 * @heed_stop: a stop ends a wait, with -EINTR: nothing has been begun that QEMU must be spoken to for
 */
struct qmp_stream {
	int fd;
	bool heed_stop;
	char *buf;
	size_t cap;
	size_t start;
	size_t end;
	size_t seen;
	size_t line_bytes;
	const char *complaint;
};

/*
 * The next message, an object; a new reference. deadline 0: only what is there. -ETIMEDOUT, -ECONNRESET (end of
 * file, with stream->start != end in the middle of a message), -EPROTO (and the stream is of no use any more), -ENOMEM.
 */
int qmp_stream_next(struct qmp_stream *s, uint64_t deadline, json_t **out);
void qmp_stream_free(struct qmp_stream *s);

/**
 * struct qmp_events - events that nobody has asked for yet, the oldest first
 * @queue: messages; when it is full the oldest goes: a guest that makes QEMU chatter must not end the migration
 * @current: what the caller of qmp_event() looks at
 */
struct qmp_events {
	json_t *queue;
	json_t *current;
};

bool qmp_is_event(const json_t *msg);
/* Takes msg over. -EPROTO: not an event as it should be. */
int qmp_events_add(struct qmp_events *q, json_t *msg, size_t bytes);
bool qmp_events_take(struct qmp_events *q, struct qmp_event *ev);
void qmp_events_free(struct qmp_events *q);

/**
 * struct qmp - a connection
 * @broken: 0, or -errno: nothing more can be sent or received
 * @id: of the command sent last; the first one has 1
 * @begun: the command sent last, if nobody waits for its answer
 * @owed: commands without an answer yet: no more replies than that can come
 */
struct qmp {
	struct qmp_stream stream;
	struct qmp_events events;
	unsigned int timeout_ms;
	unsigned int version;
	unsigned int id;
	unsigned int owed;
	const char *begun;
	pid_t peer;
	int broken;
};

/* What a code of the stream means while "what" goes on. Return: r. */
int qmp_fail(struct qmp *q, int r, const char *what, struct err *e);

#endif
