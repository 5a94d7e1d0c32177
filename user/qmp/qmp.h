/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A QMP client: one command at a time; events wait in order until the caller asks for them.
 * Source: QEMU docs/interop/qmp-spec. JSON by jansson.
 */
#ifndef GODWIT_QMP_H
#define GODWIT_QMP_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct qmp;

/**
 * qmp_open() - connect, read the greeting, negotiate capabilities
 * @path: QEMU's -qmp unix:PATH,server=on socket
 * @timeout_ms: for the greeting and for each command
 * Errors: GW_NO_SOCKET (no such socket, refused, no permission), GW_NOT_QEMU (no QMP greeting, or
 * not JSON: an HMP monitor, another program), GW_TIMEOUT (no greeting in time; the message explains
 * that a QMP socket serves one client at a time, and that another client may hold it).
 */
int qmp_open(const char *path, unsigned int timeout_ms, struct qmp **out, struct err *e);

/**
 * struct qmp_place - where one QEMU's monitor is, to find that QEMU again, and no other
 * A QEMU that is started with the same path takes the path. The one before still listens, at a
 * socket that has no name any more.
 * @path: for words, and for a monitor whose socket is not known, or that has a new one
 * @socket: its socket, held (unix.h); negative: not known
 * @vmm: QEMU's process, if that is what listened there; 0: it was another one (a relay, or what
 *	passed the socket to QEMU), or one in another pid namespace
 */
struct qmp_place {
	const char *path;
	int socket;
	pid_t vmm;
};

#define QMP_PLACE_NONE ((struct qmp_place) { .socket = -1 })

/* Where q is connected to. vmm: its QEMU's process. path: stays the caller's. */
struct qmp_place qmp_place(const struct qmp *q, const char *path, pid_t vmm);
void qmp_place_forget(struct qmp_place *at);
/* Has another socket its path by now? */
bool qmp_place_is_taken(const struct qmp_place *at);
/*
 * As qmp_open(), at that place. Also GW_NO_SOCKET if another process listens there now: it is left
 * alone.
 */
int qmp_open_at(const struct qmp_place *at, unsigned int timeout_ms, struct qmp **out,
		struct err *e);
void qmp_set_timeout(struct qmp *q, unsigned int ms);	/* for each command from now on */
void qmp_close(struct qmp *q);		/* NULL is fine */

/* QEMU's version from the greeting: major * 10000 + minor * 100 + micro. */
unsigned int qmp_version(const struct qmp *q);
/* pid of the process that listens on the socket (SO_PEERCRED), in our pid namespace; 0: unknown. */
pid_t qmp_peer_pid(const struct qmp *q);
/*
 * For poll(), after qmp_event() returned 0: the descriptor becomes readable when an event, or the
 * end of the connection, may have come.
 */
int qmp_fd(const struct qmp *q);

/**
 * qmp_call() - one command
 * @args: stolen; NULL for none
 * @ret: where the "return" value goes, a new reference; NULL when not wanted
 * Errors: GW_QMP with QEMU's class and desc in the text, errno -EREMOTEIO; GW_VM_GONE when the
 * socket closed (-ECONNRESET); GW_TIMEOUT.
 */
int qmp_call(struct qmp *q, const char *command, json_t *args, json_t **ret, struct err *e);

/**
 * struct qmp_batch - one of many commands
 * @args: its arguments, stolen by qmp_call_all(), also after an error; NULL for none
 * @must: if QEMU refuses the command, qmp_call_all() fails
 * @ret: its "return" value, a new reference; NULL: QEMU refused the command
 */
struct qmp_batch {
	const char *command;
	json_t *args;
	bool must;
	json_t *ret;
};

/**
 * qmp_call_all() - many commands that change nothing, several under way at a time
 * QEMU runs the commands one by one and serves its guest in between. Errors: those of qmp_call(),
 * GW_QMP only for one with @must, when the others have been answered as well. The caller drops the
 * @ret of every command, also after an error.
 */
int qmp_call_all(struct qmp *q, struct qmp_batch *b, size_t n, struct err *e);

/*
 * A line for the human monitor; *text: its output, for free(), NULL if QEMU refuses the line, which
 * is no error. Errors: those of qmp_call() but GW_QMP.
 */
int qmp_monitor(struct qmp *q, const char *line, char **text, struct err *e);
/* qmp_call() with a descriptor attached ("getfd"). The caller keeps its own copy of fd. */
int qmp_call_fd(struct qmp *q, const char *command, json_t *args, int fd, json_t **ret,
		struct err *e);

/**
 * qmp_begin() - send one command and do not wait for its reply
 * @args: stolen; NULL for none
 * A caller that waited could keep QEMU from replying, see migration_continue(). qmp_event() reads
 * the reply; if QEMU refuses the command, qmp_event() returns that error.
 */
int qmp_begin(struct qmp *q, const char *command, json_t *args, struct err *e);

/*
 * The reply to the last qmp_begin(), if no call was made since, instead of qmp_event(). Does not
 * wait. 1: *ret is its "return" value, a new reference; 0: it has not come; errors: those of
 * qmp_call().
 */
int qmp_take_reply(struct qmp *q, json_t **ret, struct err *e);

/* Has QEMU replied to every command? Only qmp_event() and the calls bring this up to date. */
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
 * At most 1024 events wait; when one more comes, the oldest is lost.
 * Return: 1 an event, 0 none before the deadline, -errno with *e set (GW_VM_GONE: QEMU closed the
 * socket; GW_QMP: QEMU refused the command of qmp_begin()).
 */
int qmp_event(struct qmp *q, uint64_t deadline, struct qmp_event *ev, struct err *e);

#endif
