/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A libvirt domain: its QEMU's process, and a QMP socket that libvirt does not hold itself.
 * libvirt's own QMP socket serves one client, libvirt; the domain needs a second socket in its XML
 * (<qemu:commandline>). godwit does not ask the daemon: it reads the files that libvirt keeps of
 * running domains, /run/libvirt/qemu/NAME.xml and NAME.pid (the system instance).
 */
#ifndef GODWIT_LIBVIRT_H
#define GODWIT_LIBVIRT_H

#include <sys/types.h>

#include "base/err.h"

#define LIBVIRT_RUN	"/run/libvirt/qemu"

/**
 * struct domain - what godwit needs of a running domain
 * @pid: its QEMU
 * @qmp_path: the second QMP socket
 */
struct domain {
	pid_t pid;
	char qmp_path[108];
};

/**
 * libvirt_find() - a running domain by its name
 * @run: LIBVIRT_RUN, or a test's directory
 * Errors: GW_USAGE (no domain can have that name), GW_NO_SOCKET (not running, or no second QMP
 * socket), GW_INTERNAL (files that cannot be read, or are not libvirt's). The message of a missing
 * socket has the lines of XML that the domain needs.
 */
int libvirt_find(const char *run, const char *name, struct domain *out, struct err *e);

#endif
