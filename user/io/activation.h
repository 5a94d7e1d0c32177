/* SPDX-License-Identifier: GPL-2.0-only */
/* The listening socket that systemd, or who else speaks its protocol (sd_listen_fds(3)), has opened for us. */
#ifndef GODWIT_ACTIVATION_H
#define GODWIT_ACTIVATION_H

#include "err.h"

#define ACTIVATION_NAME	56	/* "[V6]:PORT" and its end */

/**
 * activation_socket() - take the socket that was passed to this process; a second call finds none
 * @fd: the listener, non-blocking and close-on-exec, the caller's; -1: none was passed
 * @name: where it listens, "ADDR:PORT" or "[V6]:PORT"; empty: none was passed
 * @e: GW_USAGE when it is more than one, or no TCP socket that listens
 * Return: 0 or -errno with *@e set. Changes the environment, so call it before there are threads.
 */
int activation_socket(int *fd, char name[ACTIVATION_NAME], struct err *e);

#endif
