// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/stop.h"
#include "net/sock.h"
#include "qmp/qmp_internal.h"

#define CHUNK	(64u << 10)	/* bytes of a read */

static int qmp_stream_malformed(struct qmp_stream *s, const char *complaint)
{
	s->complaint = complaint;
	return -EPROTO;
}

/*
 * QEMU writes a uint64_t in full, jansson's integers have 63 bits: a message with a larger number
 * is parsed again with all integers as doubles.
 */
static json_t *qmp_parse(const char *line, size_t len)
{
	json_error_t why;
	json_t *j = json_loadb(line, len, 0, &why);

	if (!j && json_error_code(&why) == json_error_numeric_overflow)
		j = json_loadb(line, len, JSON_DECODE_INT_AS_REAL, &why);
	return j;
}

static void qmp_skip_blanks(struct qmp_stream *s)
{
	while (s->start < s->end && strchr(" \t\r\n", s->buf[s->start]) && s->buf[s->start])
		s->start++;
	if (s->seen < s->start)
		s->seen = s->start;
}

/* 1 and a message, 0: more bytes are needed, -EPROTO. */
static int qmp_take_line(struct qmp_stream *s, json_t **out)
{
	const char *line, *nl;

	qmp_skip_blanks(s);
	if (s->start == s->end)
		return 0;
	line = s->buf + s->start;
	/* Decided at the first byte, as another program may never send a newline. */
	if (*line != '{')
		return qmp_stream_malformed(s, "no JSON object");
	nl = memchr(s->buf + s->seen, '\n', s->end - s->seen);
	if (!nl) {
		s->seen = s->end;
		if (s->end - s->start >= QMP_LINE_MAX)
			return qmp_stream_malformed(s, "an endless line");
		return 0;
	}
	s->line_bytes = (size_t)(nl - line);
	*out = qmp_parse(line, s->line_bytes);
	if (!*out)
		return qmp_stream_malformed(s, "malformed JSON");
	s->start = s->seen = (size_t)(nl - s->buf) + 1;
	return 1;
}

/* Room for at least a byte after end. */
static int qmp_make_room(struct qmp_stream *s)
{
	size_t cap;
	char *buf;

	if (s->start) {
		memmove(s->buf, s->buf + s->start, s->end - s->start);
		s->end -= s->start;
		s->seen -= s->start;
		s->start = 0;
	}
	if (s->end < s->cap)
		return 0;
	cap = s->cap ? s->cap * 2 : CHUNK;
	buf = realloc(s->buf, cap);
	if (!buf)
		return -ENOMEM;
	s->buf = buf;
	s->cap = cap;
	return 0;
}

/* In slices, as stop_requested() serves the control socket meanwhile (stop_set_hook()). */
static int qmp_wait_readable(struct qmp_stream *s, uint64_t deadline)
{
	uint64_t slice;
	int r;

	do {
		if (stop_requested() && s->heed_stop)
			return -EINTR;
		slice = now_ns() + STOP_SLICE_NS;
		r = sock_wait(s->fd, POLLIN, slice < deadline ? slice : deadline);
	} while (r == -ETIMEDOUT && now_ns() < deadline);
	return r;
}

static int qmp_stream_fill(struct qmp_stream *s, uint64_t deadline)
{
	ssize_t n;
	int r = qmp_make_room(s);

	if (r)
		return r;
	for (;;) {
		size_t room = s->cap - s->end;

		n = sock_recv_some(s->fd, s->buf + s->end, room < CHUNK ? room : CHUNK);
		if (n > 0) {
			s->end += (size_t)n;
			return 0;
		}
		if (n != -EAGAIN)
			return -ECONNRESET;
		r = qmp_wait_readable(s, deadline);
		if (r)
			return r;
	}
}

int qmp_stream_next(struct qmp_stream *s, uint64_t deadline, json_t **out)
{
	int r;

	*out = NULL;
	while ((r = qmp_take_line(s, out)) == 0) {
		r = qmp_stream_fill(s, deadline);
		if (r)
			return r;
	}
	return r < 0 ? r : 0;
}

void qmp_stream_free(struct qmp_stream *s)
{
	free(s->buf);
	s->buf = NULL;
}
