// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "io/sock.h"
#include "io/stop.h"
#include "vmm/qmp_internal.h"

#define CHUNK	(64u << 10)

static int bad(struct qmp_stream *s, const char *complaint)
{
	s->complaint = complaint;
	return -EPROTO;
}

/* QEMU writes uint64_t values as they are, jansson has 63 bits: then all integers become doubles. */
static json_t *parse(const char *line, size_t len)
{
	json_error_t why;
	json_t *j = json_loadb(line, len, 0, &why);

	if (!j && json_error_code(&why) == json_error_numeric_overflow)
		j = json_loadb(line, len, JSON_DECODE_INT_AS_REAL, &why);
	return j;
}

static void skip_blanks(struct qmp_stream *s)
{
	while (s->start < s->end && strchr(" \t\r\n", s->buf[s->start]) && s->buf[s->start])
		s->start++;
	if (s->seen < s->start)
		s->seen = s->start;
}

/* 1 and a message, 0: more bytes are needed, -EPROTO. */
static int take_line(struct qmp_stream *s, json_t **out)
{
	const char *line, *nl;

	skip_blanks(s);
	if (s->start == s->end)
		return 0;
	line = s->buf + s->start;
	/* Known at the first byte, and another program may never send a newline. */
	if (*line != '{')
		return bad(s, "no JSON object");
	nl = memchr(s->buf + s->seen, '\n', s->end - s->seen);
	if (!nl) {
		s->seen = s->end;
		return s->end - s->start >= QMP_LINE_MAX ? bad(s, "an endless line") : 0;
	}
	s->line_bytes = (size_t)(nl - line);
	*out = parse(line, s->line_bytes);
	if (!*out)
		return bad(s, "malformed JSON");
	s->start = s->seen = (size_t)(nl - s->buf) + 1;
	return 1;
}

/* Room for at least a byte behind end. */
static int make_room(struct qmp_stream *s)
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

/* In slices, as others want to be served meanwhile (stop_look()). */
static int wait_readable(struct qmp_stream *s, uint64_t deadline)
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

static int fill(struct qmp_stream *s, uint64_t deadline)
{
	ssize_t n;
	int r = make_room(s);

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
		r = wait_readable(s, deadline);
		if (r)
			return r;
	}
}

int qmp_stream_next(struct qmp_stream *s, uint64_t deadline, json_t **out)
{
	int r;

	*out = NULL;
	while ((r = take_line(s, out)) == 0) {
		r = fill(s, deadline);
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
