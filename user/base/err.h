/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A refusal or a failure: what happened, what the operator does next, and the exit status for it.
 */
#ifndef GODWIT_ERR_H
#define GODWIT_ERR_H

#include <stdbool.h>

/* The exit statuses of godwit(1). Numbers are a promise to scripts: append, never renumber. */
enum gw_exit {
	GW_OK = 0,
	GW_INTERNAL = 1,	/* a system call failed that should not */
	GW_USAGE = 2,		/* the command line */
	GW_NO_SOCKET = 3,	/* the QMP socket cannot be reached */
	GW_NOT_QEMU = 4,	/* the program that answers does not speak QMP, or runs no KVM VM */
	GW_QMP = 5,		/* QEMU refused a command */
	GW_VM_STATE = 6,	/* the VM is in a state that does not migrate */
	GW_NO_MODULE = 7,	/* godwit.ko: not loaded, of another version, or we are not root */
	GW_RAM_PRIVATE = 8,	/* RAM of the VM is where it cannot be moved from */
	GW_RAM_DIFFERS = 9,	/* source and destination do not have the same RAM */
	GW_DIRTY_RING = 10,	/* the VM uses KVM's dirty ring, or is confidential */
	GW_PINNED = 11,		/* a device, or a debugger, writes guest RAM unseen by godwit.ko */
	GW_BUSY = 12,		/* another session watches this VM, or one of its RAM files */
	GW_UNREACHABLE = 13,	/* no connection to the other host */
	GW_VERSION = 14,	/* the peer speaks another protocol version */
	GW_BAD_PEER = 15,	/* the peer sent something that makes no sense */
	GW_TIMEOUT = 16,	/* the peer, or QEMU, stopped talking */
	GW_LINK_LOST = 17,	/* the connection broke */
	GW_DEVICE_STATE = 18,	/* the destination QEMU refused the device state */
	GW_VERIFY = 19,		/* --verify found pages that differ */
	GW_NOT_CONVERGED = 20,	/* the guest writes faster than the link carries */
	GW_VM_GONE = 21,	/* QEMU exited, or closed its monitor */
	GW_CANCELLED = 22,	/* a signal or `godwit cancel` asked us to stop */
	GW_UNKNOWN = 23,	/* in doubt, after the commit point: look at both ends */
	GW_PEER_FAILED = 24,	/* the peer gave up; its own message says why */
	GW_TIME_LIMIT = 25,	/* --timeout was over, and --on-timeout says cancel */
	GW_NO_MIGRATION = 26,	/* cancel, set: no migration, or more than one, or too late */
	GW_NOT_PUT_BACK = 27,	/* it failed; the guardian has yet to roll the source VM back */
	GW_RAM_IN_USE = 28,	/* another process maps a RAM file, or the source itself does */
	GW_MISFIT = 29,		/* the destination is another machine than the guest started on */
	GW_NO_ROOM = 30,	/* no memory for the guest there, or for a note of it in /run */
	GW_TLS = 31,		/* wrong, missing or expired credentials, or a changed record */
	GW_INCOMPLETE = 32,	/* post-copy broke: the guest runs, and may lack RAM */
	GW_GUEST_LOST = 33,	/* in post-copy the destination QEMU exited */
	GW_RAN_TWICE = 34,	/* it has moved, and another client has continued it here */
	GW_EXITS
};

/**
 * struct err - the first thing that went wrong
 * @exit: exit status, GW_OK while nothing went wrong
 * @silent: a GW_TIMEOUT that the other host has caused, or the link to it, and not QEMU
 * @text: one line: what happened, to which object, and what to do
 */
struct err {
	enum gw_exit exit;
	bool silent;
	char text[1024];
};

/**
 * err_set() - record a failure, unless @e has one already: the first cause counts
 * @e: the record; may not be NULL
 * @exit: exit status
 * @code: the errno (positive) to return
 * @fmt: printf format of the line, without newline
 * Return: -@code, so that callers can write "return err_set(...)".
 */
int err_set(struct err *e, enum gw_exit exit, int code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* err_set(): GW_TIMEOUT, as the other host is silent. */
int err_set_silent(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Is the link lost, as far as this end can tell? */
bool err_is_link(const struct err *e);

/* The name of an exit status, as in the JSON report: "link-lost". "?": no such status. */
const char *gw_exit_name(enum gw_exit exit);

#endif
