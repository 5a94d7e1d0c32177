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
int cmd_resolve(int argc, char **argv);
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

/* A command that names a VM has these in its table, and its own from CMD_OWN on. */
enum { CMD_QMP = 1, CMD_DOMAIN, CMD_PID, CMD_OWN };
#define CMD_VM_OPTIONS \
	{ "qmp", required_argument, NULL, CMD_QMP }, \
	{ "domain", required_argument, NULL, CMD_DOMAIN }, \
	{ "pid", required_argument, NULL, CMD_PID }

/* One of them. */
int cmd_vm_option(struct cmd_vm *vm, int opt, const char *text, struct err *e);
/* With --domain: fills in the socket, and the pid unless there was a --pid. */
int cmd_find_domain(struct cmd_vm *vm, struct err *e);

/* --peer-timeout: seconds, into milliseconds. */
int cmd_peer_timeout(const char *text, unsigned int *timeout_ms, struct err *e);

/*
 * The arguments of a command that knows --json and --help, and takes nothing else. false: it is done, with this exit
 * status. argv[0] is the command's name.
 */
bool cmd_parse_json(int argc, char **argv, const char *usage, bool *json, int *status);

#endif
