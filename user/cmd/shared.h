/* SPDX-License-Identifier: GPL-2.0-only */
/* Options that more than one command has. */
#ifndef GODWIT_SHARED_H
#define GODWIT_SHARED_H

#include <sys/types.h>

#include "cmd/option.h"
#include "vmm/libvirt.h"

/**
 * struct cmd_vm - which VM, as options name it
 * @qmp, @pid: --qmp, --pid
 * @domain: --domain; @found says what that means
 */
struct cmd_vm {
	const char *qmp;
	const char *domain;
	pid_t pid;
	struct domain found;
};

/* Of a source, in a struct cmd_vm. */
enum { CMD_QMP, CMD_DOMAIN, CMD_PID, CMD_VM_OPTIONS };
extern const struct cmd_option cmd_vm_options[CMD_VM_OPTIONS];
/* With --domain: fills in the socket, and the pid unless there was a --pid. */
int cmd_find_domain(struct cmd_vm *vm, struct err *e);
/* The same for a command that needs one of --qmp and --domain. GW_USAGE: there is none, or both. */
int cmd_find_vm(const struct command *c, struct cmd_vm *vm, struct err *e);

/* In a struct limits. */
enum {
	CMD_DOWNTIME_LIMIT,
	CMD_DOWNTIME_RAMP,
	CMD_MAX_ROUNDS,
	CMD_TIMEOUT,
	CMD_ON_TIMEOUT,
	CMD_BANDWIDTH,
	CMD_COMPRESS,
	CMD_POSTCOPY,
	CMD_THROTTLE,
	CMD_LIMITS
};
extern const struct cmd_option cmd_limits[CMD_LIMITS];

/* In a struct tls_options; --tls-hostname and --insecure are not for a receiver. */
enum { CMD_TLS_CREDS, CMD_TLS_PSK, CMD_TLS_HOSTNAME, CMD_TLS_INSECURE, CMD_TLS_OPTIONS };
extern const struct cmd_option cmd_tls_options[CMD_TLS_OPTIONS];
#define CMD_TLS_RECEIVER	CMD_TLS_HOSTNAME	/* how many of them a receiver has */

/*
 * Each alone, its place its group's base: enum mode_wish, differences, milliseconds, name, bool,
 * number.
 */
extern const struct cmd_option cmd_device_state, cmd_accept, cmd_peer_timeout, cmd_io, cmd_json,
	cmd_compress_threads;

#define CMD_ONE(option, type, member)                                                              \
	{                                                                                          \
		.options = &(option), .n = 1, .base = offsetof(type, member)                       \
	}

#endif
