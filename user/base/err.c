// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"

static const char *const exit_names[] = {
	[GW_OK] = "ok",
	[GW_INTERNAL] = "internal",
	[GW_USAGE] = "usage",
	[GW_NO_SOCKET] = "no-socket",
	[GW_NOT_QEMU] = "not-qemu",
	[GW_QMP] = "qmp",
	[GW_VM_STATE] = "vm-state",
	[GW_NO_MODULE] = "no-module",
	[GW_RAM_PRIVATE] = "ram-private",
	[GW_RAM_DIFFERS] = "ram-differs",
	[GW_DIRTY_RING] = "dirty-ring",
	[GW_PINNED] = "pinned",
	[GW_BUSY] = "busy",
	[GW_UNREACHABLE] = "unreachable",
	[GW_VERSION] = "version",
	[GW_BAD_PEER] = "bad-peer",
	[GW_TIMEOUT] = "timeout",
	[GW_LINK_LOST] = "link-lost",
	[GW_DEVICE_STATE] = "device-state",
	[GW_VERIFY] = "verify",
	[GW_NOT_CONVERGED] = "not-converged",
	[GW_VM_GONE] = "vm-gone",
	[GW_CANCELLED] = "cancelled",
	[GW_UNKNOWN] = "unknown",
	[GW_PEER_FAILED] = "peer-failed",
	[GW_TIME_LIMIT] = "time-limit",
	[GW_NO_MIGRATION] = "no-migration",
	[GW_NOT_PUT_BACK] = "not-put-back",
	[GW_RAM_IN_USE] = "ram-in-use",
	[GW_MISFIT] = "misfit",
	[GW_NO_ROOM] = "no-room",
	[GW_TLS] = "tls",
	[GW_INCOMPLETE] = "incomplete",
	[GW_GUEST_LOST] = "guest-lost",
	[GW_RAN_TWICE] = "ran-twice",
};
static_assert(sizeof(exit_names) / sizeof(exit_names[0]) == GW_EXITS, "an exit status has no name");

static void err_vset(struct err *e, enum gw_exit exit, bool silent, const char *fmt, va_list ap)
{
	if (e->exit != GW_OK)
		return;
	e->exit = exit;
	e->silent = silent;
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
}

int err_set(struct err *e, enum gw_exit exit, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	err_vset(e, exit, false, fmt, ap);
	va_end(ap);
	return -code;
}

int err_set_silent(struct err *e, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	err_vset(e, GW_TIMEOUT, true, fmt, ap);
	va_end(ap);
	return -ETIMEDOUT;
}

bool err_is_link(const struct err *e)
{
	return e->exit == GW_LINK_LOST || (e->exit == GW_TIMEOUT && e->silent);
}

const char *gw_exit_name(enum gw_exit exit)
{
	return exit < GW_EXITS ? exit_names[exit] : "?";
}
