/* SPDX-License-Identifier: GPL-2.0-only */
/* The client of server.h: finds a running migration on this host, and asks its sender. */
#ifndef GODWIT_CLIENT_H
#define GODWIT_CLIENT_H

#include <jansson.h>
#include <sys/types.h>

#include "base/err.h"

/**
 * struct control_which - which migration; NULL and 0: any, if there is just one
 * @control: the sender's socket, if not in CONTROL_DIR
 * @qmp_path: the source QEMU's QMP socket
 * @vm_pid: the QEMU process
 */
struct control_which {
	const char *control;
	const char *qmp_path;
	pid_t vm_pid;
};

/**
 * control_ask() - send one command to the sender of the one migration that @which selects
 * @args: stolen; NULL for none
 * @ret: the answer's "return", a new reference
 * Errors: GW_NO_MIGRATION: @which selects no migration, or several (the message lists them), or the
 * sender says that it is too late; GW_TIMEOUT: the sender does not answer; GW_CANCELLED: a signal.
 * If the sender refuses the command, *e has the sender's exit status and message.
 */
int control_ask(const struct control_which *which, const char *what, json_t *args, json_t **ret,
		struct err *e);

#endif
