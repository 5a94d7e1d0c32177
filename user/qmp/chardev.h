/* SPDX-License-Identifier: GPL-2.0-only */
/* What QEMU says of its character devices. */
#ifndef GODWIT_CHARDEV_H
#define GODWIT_CHARDEV_H

#include <jansson.h>
#include <stdbool.h>

/*
 * Is nothing connected to the socket of this element of query-chardev's answer? It is called
 * "disconnected:unix:/run/vu0.sock,server=on" then.
 */
bool chardev_is_dead(const json_t *chardev);

#endif
