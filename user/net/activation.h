/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The listening socket that systemd, or another program with its protocol (sd_listen_fds(3)), opens
 * and passes to godwit.
 */
#ifndef GODWIT_ACTIVATION_H
#define GODWIT_ACTIVATION_H

#include "base/err.h"
#include "net/address.h"

/**
 * activation_socket() - take the socket that was passed to this process; a second call finds none
 * @fd: the listener, non-blocking and close-on-exec, the caller's; -1: none was passed
 * @name: where the listener listens, as address.h has it; empty: none was passed
 * @e: GW_USAGE: more than one was passed, or something that is no listening TCP or UNIX socket
 * Return: 0 or -errno with *@e set. The function changes the environment, so call it before there
 * are threads.
 */
int activation_socket(int *fd, char name[ADDRESS_MAX], struct err *e);

#endif
