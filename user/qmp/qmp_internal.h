/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Inside the QMP client: messages out of a byte stream (qmp_stream.c), events that wait
 * (qmp_events.c), the greeting (qmp_open.c), commands (qmp.c).
 * Any program may listen on that socket: sizes are bounded and every field is checked.
 */
#ifndef GODWIT_QMP_INTERNAL_H
#define GODWIT_QMP_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "qmp/qmp.h"

#define QMP_LINE_MAX	(16u << 20)	/* bytes of a message; those of large VMs stay far below */
#define QMP_EVENT_MAX	(64u << 10)	/* bytes of one event; with the next bounds the queue */
#define QMP_EVENTS_MAX	1024		/* events in the queue */

/**
 * struct qmp_stream - newline-terminated JSON objects from a socket
 * @heed_stop: a stop request ends a wait, with -EINTR: nothing has begun that would need QMP to end
 * @buf: bytes read, of @cap; grows up to QMP_LINE_MAX
 * @start: the bytes [start, end) are not parsed yet
 * @end: see @start
 * @seen: no newline in [start, seen)
 * @line_bytes: length of the message parsed last
 * @complaint: after -EPROTO, what is wrong with the message
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
 * The next message, an object; a new reference. deadline 0: does not wait. -ETIMEDOUT, -ECONNRESET
 * (end of file; stream->start != end: in the middle of a message), -EPROTO (the stream is of no use
 * any more), -EINTR (see heed_stop), -ENOMEM.
 */
int qmp_stream_next(struct qmp_stream *s, uint64_t deadline, json_t **out);
void qmp_stream_free(struct qmp_stream *s);

/**
 * struct qmp_events - events that qmp_event() has not returned yet, the oldest first
 * @queue: messages; when the queue is full the oldest is dropped: a guest that makes QEMU send many
 *	events must not end the migration
 * @current: the event that qmp_event() returned last, which its caller still reads
 */
struct qmp_events {
	json_t *queue;
	json_t *current;
};

bool qmp_is_event(const json_t *msg);
/* Takes msg over. -EPROTO: a malformed event, or one that is too long. */
int qmp_events_add(struct qmp_events *q, json_t *msg, size_t bytes);
/* Drops the current event; the next one becomes current and goes to *ev. false: there is none. */
bool qmp_events_take(struct qmp_events *q, struct qmp_event *ev);
void qmp_events_free(struct qmp_events *q);

/**
 * struct qmp - a connection
 * @id: of the command sent last; the first command has 1
 * @owed: commands without a reply yet: no more replies than that can come
 * @begun: the command sent last, if it was sent by qmp_begin()
 * @peer: pid of the process that listens; 0: unknown
 * @socket: what the path led to, held (unix.h); negative: not known
 * @broken: 0, or -errno: nothing more can be sent or received
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
	int socket;
	int broken;
};

/* Turns an error r of the stream, while "what" goes on, into *e. Return: an -errno. */
int qmp_fail(struct qmp *q, int r, const char *what, struct err *e);

#endif
