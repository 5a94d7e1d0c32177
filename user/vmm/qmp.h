/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A QMP client: one command at a time, events kept in order until they are asked for.
 * Source: QEMU docs/interop/qmp-spec. JSON by jansson.
 */
#ifndef GODWIT_QMP_H
#define GODWIT_QMP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"

struct qmp;

/**
 * qmp_open() - connect, read the greeting, negotiate capabilities
 * @path: QEMU's -qmp unix:PATH,server=on socket
 * @timeout_ms: for the greeting and for each command
 * Errors: GW_NO_SOCKET (no such socket, refused, no permission), GW_NOT_QEMU (no QMP greeting, or not JSON;
 * HMP monitors, other programs), GW_TIMEOUT (nothing said; the message tells that a QMP socket serves one
 * client at a time, and that another client may hold it).
 */
int qmp_open(const char *path, unsigned int timeout_ms, struct qmp **out, struct err *e);
void qmp_close(struct qmp *q);		/* NULL is fine */

/* QEMU's version from the greeting: major * 10000 + minor * 100 + micro. */
unsigned int qmp_version(const struct qmp *q);
/* pid of who listens on the socket (SO_PEERCRED), in our pid namespace; 0 when unknown. */
pid_t qmp_peer_pid(const struct qmp *q);
/* For poll, when qmp_event() has nothing more: readable means that an event or the end may have come. */
int qmp_fd(const struct qmp *q);

/**
 * qmp_call() - one command
 * @args: stolen; NULL for none
 * @ret: where the "return" value goes, a new reference; NULL when not wanted
 * Errors: GW_QMP with QEMU's class and desc in the text, errno -EREMOTEIO; GW_VM_GONE when the socket closed
 * (-ECONNRESET); GW_TIMEOUT.
 */
int qmp_call(struct qmp *q, const char *command, json_t *args, json_t **ret, struct err *e);

/**
 * struct qmp_batch - one of many commands
 * @args: for it; stolen by qmp_call_all(), also after an error. NULL: none
 * @ret: its "return" value, a new reference; NULL: QEMU refused it
 */
struct qmp_batch {
	const char *command;
	json_t *args;
	json_t *ret;
};

/**
 * qmp_call_all() - many commands that change nothing, some under way at a time
 * QEMU takes them one by one and serves its guest in between. Errors: those of qmp_call() but GW_QMP; the @ret of all are
 * the caller's to drop, also after an error.
 */
int qmp_call_all(struct qmp *q, struct qmp_batch *b, size_t n, struct err *e);

/*
 * A line for the human monitor; *text: what it says, for free(), NULL if QEMU refuses it, which is no error.
 * Errors: those of qmp_call() but GW_QMP.
 */
int qmp_monitor(struct qmp *q, const char *line, char **text, struct err *e);
/* qmp_call() with a descriptor attached ("getfd"). The caller keeps its own copy of fd. */
int qmp_call_fd(struct qmp *q, const char *command, json_t *args, int fd, json_t **ret, struct err *e);

/**
 * qmp_begin() - one command whose answer is not waited for
 * Whoever waits for it may keep QEMU from giving it. qmp_event() hears that: if QEMU refuses the command, that is its error.
 * @args: stolen; NULL for none
 */
int qmp_begin(struct qmp *q, const char *command, json_t *args, struct err *e);

/* Has every command had its answer? Looked at after qmp_event(). */
bool qmp_answered(const struct qmp *q);

/**
 * struct qmp_event - one event
 * @name: "STOP", "RESUME", "MIGRATION", ...
 * @data: its data object, or NULL; borrowed until the next qmp_event() call
 * @realtime_ns: QEMU's own timestamp, CLOCK_REALTIME
 */
struct qmp_event {
	const char *name;
	const json_t *data;
	uint64_t realtime_ns;
};

/**
 * qmp_event() - the next event
 * @deadline: CLOCK_MONOTONIC ns; 0: do not wait
 * Of more than 1024 events that wait the oldest are lost.
 * Return: 1 an event, 0 none until then, -errno with *e set (GW_VM_GONE: QEMU closed the socket; GW_QMP: it refused what
 * was begun).
 */
int qmp_event(struct qmp *q, uint64_t deadline, struct qmp_event *ev, struct err *e);

#endif
