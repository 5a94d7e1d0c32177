/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A libvirt domain: its QEMU's process, and a QMP socket that libvirt does not hold itself. libvirt's own monitor serves
 * one client, libvirt; the domain needs a second one in its XML (<qemu:commandline>). The daemon is not asked: all is read from
 * the files that it keeps of running domains, /run/libvirt/qemu/NAME.xml and NAME.pid (the system instance).
 */
#ifndef GODWIT_LIBVIRT_H
#define GODWIT_LIBVIRT_H

#include <sys/types.h>

#include "err.h"

#define LIBVIRT_RUN	"/run/libvirt/qemu"

/**
 * struct domain - what is needed of a running domain
 * @pid: its QEMU
 * @qmp_path: the second QMP socket
 */
struct domain {
	pid_t pid;
	char qmp_path[108];
};

/**
 * libvirt_find() - a running domain by its name
 * @run: LIBVIRT_RUN, or what a test puts in its place
 * Errors: GW_USAGE (no domain can have that name), GW_NO_SOCKET (not running, or no second QMP socket), GW_RAM_PRIVATE (its
 * memory is not in shared files), GW_INTERNAL (files that cannot be read, or are not libvirt's). The texts name the lines of XML
 * that are needed.
 */
int libvirt_find(const char *run, const char *name, struct domain *out, struct err *e);

#endif
