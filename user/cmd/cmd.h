/* SPDX-License-Identifier: GPL-2.0-only */
/* Subcommands: parse, one call, report. */
#ifndef GODWIT_CMD_H
#define GODWIT_CMD_H

#include "cmd/option.h"
#include "cmd/shared.h"

extern const struct command cmd_send, cmd_receive, cmd_check, cmd_estimate, cmd_report, cmd_cancel,
	cmd_set, cmd_resolve, cmd_rate, cmd_list, cmd_watch;

/* Prints "godwit: TEXT" to stderr, unless there is no error, and returns the exit status. */
int cmd_fail(const struct err *e);

#endif
