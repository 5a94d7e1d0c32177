/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Control of a running migration: a UNIX socket at which its sender answers one line of JSON with
 * another (line_socket.h). The sender serves it from its own waits (base/stop.h), so an answer
 * takes up to STOP_SLICE_NS, or as long as QEMU takes to answer a command.
 *
 *	{"execute": "query"}		answers "pid" of the sender, "vm" (pid), "qmp", "to",
 *					"phase", "round", "limits"
 *	{"execute": "set",		changes limits (limits.h), and answers with all of them as
 *	 "arguments": {LIMIT: ...}}	they are now
 *	{"execute": "cancel"}		answers when the migration has ended: "exit", "status",
 *					"message"
 *
 * An answer is {"return": {...}} or {"error": {"exit": N, "message": "..."}}.
 */
#ifndef GODWIT_SERVER_H
#define GODWIT_SERVER_H

#include <limits.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/err.h"
#include "control/line_socket.h"
#include "net/pace.h"
#include "plan/limits.h"
#include "report/report.h"

#define CONTROL_DIR	"/run/godwit"

/**
 * struct control
 * @qmp_path: absolute
 * @limits, @pace, @compress: what "set" changes; the last is as codec_wish_word()
 * @features: those that both ends offer; 0: the receiver has not been asked yet
 * @no_postcopy: why "set" cannot choose post-copy; no error: it can, or it is not known yet
 * @socket: lfd -1: there is none
 */
struct control {
	pid_t vm_pid;
	char qmp_path[PATH_MAX];
	const char *addr;
	const struct report *report;
	struct limits *limits;
	struct pace *pace;
	_Atomic uint32_t *compress;
	const uint64_t *features;
	const struct err *no_postcopy;
	struct line_socket socket;
};

/*
 * Listens at path; NULL: at CONTROL_DIR/PID.sock, and if that fails the sender says so on stderr
 * and goes on without a socket. Errors: GW_USAGE: the path cannot be used.
 */
int control_open(struct control *c, const char *path, struct err *e);
/* Serves the clients that have connected, without waiting. */
void control_serve(struct control *c);
/* A line_socket_fn; arg: struct control. */
bool control_answer(void *arg, const char *line, char answer[LINE_SOCKET_LINE]);
/* Answers the clients that wait for the end with the outcome, and closes the socket. */
void control_close(struct control *c, const struct err *outcome);

#endif
