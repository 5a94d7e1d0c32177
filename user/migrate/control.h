/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Control of a running migration: a UNIX socket at which its sender answers one line of JSON with another (io/local.h).
 * Served from the sender's own waits (io/stop.h), so an answer takes up to STOP_SLICE_NS, or as long as QEMU takes to answer
 * a command.
 *
 *	{"execute": "query"}				what it is: "pid" of the sender, "vm" (pid), "qmp", "to", "phase",
 *							"round", "limits"
 *	{"execute": "set", "arguments": {LIMIT: ...}}	limits.h; answers with all limits as they are now
 *	{"execute": "cancel"}				answered when it has ended: "exit", "status", "message"
 *
 * An answer is {"return": {...}} or {"error": {"exit": N, "message": "..."}}.
 */
#ifndef GODWIT_CONTROL_H
#define GODWIT_CONTROL_H

#include <limits.h>
#include <sys/types.h>

#include "err.h"
#include "io/local.h"
#include "migrate/limits.h"
#include "migrate/pace.h"
#include "migrate/report.h"

#define CONTROL_DIR	"/run/godwit"

/**
 * struct control
 * @qmp_path: absolute
 * @limits: @pace: what "set" changes
 * @local: the socket; lfd -1: there is none
 */
struct control {
	pid_t vm_pid;
	char qmp_path[PATH_MAX];
	const char *addr;
	const struct report *report;
	struct limits *limits;
	struct pace *pace;
	struct local local;
};

/*
 * Listens at path; NULL: CONTROL_DIR/PID.sock, and where that is not to be had a line on stderr says so, and it goes on
 * without. Errors: GW_USAGE for a path that cannot be used.
 */
int control_open(struct control *c, const char *path, struct err *e);
/* Serves who is there, without waiting. */
void control_serve(struct control *c);
/* A local_fn; arg: struct control. */
bool control_answer(void *arg, const char *line, char answer[LOCAL_LINE]);
/* Tells those who wait for the end how it went. */
void control_close(struct control *c, const struct err *outcome);

#endif
