/* SPDX-License-Identifier: GPL-2.0-only */
/* The other end of control.h: finds a running migration on this host, and asks its sender. */
#ifndef GODWIT_ASK_H
#define GODWIT_ASK_H

#include <jansson.h>
#include <sys/types.h>

#include "err.h"

/**
 * struct ask_which - which migration; NULL and 0: any, if there is just one
 * @control: its socket, if not in CONTROL_DIR
 * @qmp_path: the source QEMU's QMP socket
 * @vm_pid: the QEMU process
 */
struct ask_which {
	const char *control;
	const char *qmp_path;
	pid_t vm_pid;
};

/**
 * ask() - one question to the one migration that is meant
 * @args: stolen; NULL for none
 * @ret: the answer's "return", a new reference
 * Errors: GW_NO_MIGRATION: none is meant, or several (the message lists them), or it is too late; GW_TIMEOUT: it does not
 * answer; GW_CANCELLED: a signal; what the sender refuses has its own exit status and words.
 */
int ask(const struct ask_which *which, const char *what, json_t *args, json_t **ret, struct err *e);

#endif
