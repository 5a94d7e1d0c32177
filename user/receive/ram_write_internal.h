/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by ram_write.c (emptying, zeros, what is said of failures) and ram_data.c (page bytes). */
#ifndef GODWIT_RAM_WRITE_INTERNAL_H
#define GODWIT_RAM_WRITE_INTERNAL_H

#include "receive/ram_write.h"

/* Names what is full and how to make it larger. code: the kernel's error. */
int ram_no_room(const struct ram_block *b, int code, struct err *e);
int ram_failed(const struct ram_block *b, const char *what, int code, struct err *e);
/* code: of ram_ops' write or clear. */
int ram_write_failed(const struct ram_block *b, const char *what, int code, struct err *e);
/* A hole stays one. */
int ram_write_zeros(const struct ram_writer *p, const struct wire_extent *x, struct err *e);

#endif
