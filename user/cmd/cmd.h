/* SPDX-License-Identifier: GPL-2.0-only */
/* Subcommands: parse, one call, report. Each returns the process's exit status. */
#ifndef GODWIT_CMD_H
#define GODWIT_CMD_H

#include <stdbool.h>

#include "err.h"
#include "vmm/libvirt.h"

int cmd_send(int argc, char **argv);
int cmd_receive(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_cancel(int argc, char **argv);
int cmd_set(int argc, char **argv);
int cmd_rate(int argc, char **argv);
int cmd_list(int argc, char **argv);
int cmd_watch(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_estimate(int argc, char **argv);

/* Prints "godwit: TEXT" to stderr and returns the exit status. */
int cmd_fail(const struct err *e);
/* A number in [min, max], or -EINVAL with *e set. what: the option's name. */
int cmd_number(const char *what, const char *text, unsigned int min, unsigned int max, unsigned int *out, struct err *e);

/**
 * struct cmd_vm - which VM, as options name it
 * @qmp, @pid: --qmp, --pid
 * @domain: --domain; @found says what that means
 */
struct cmd_vm {
	const char *qmp;
	const char *domain;
	unsigned int pid;
	struct domain found;
};

/* With --domain: fills in the socket, and the pid unless there was a --pid. */
int cmd_find_domain(struct cmd_vm *vm, struct err *e);

/*
 * The arguments of a command that knows --json and --help, and takes nothing else. false: it is done, with this exit
 * status. argv[0] is the command's name.
 */
bool cmd_parse_json(int argc, char **argv, const char *usage, bool *json, int *status);

#endif
