/* SPDX-License-Identifier: GPL-2.0-only */
/* Text from QEMU, the peer or the kernel, made fit for one line of ours. */
#ifndef GODWIT_TEXT_H
#define GODWIT_TEXT_H

#include <stddef.h>

/*
 * Copies as much of src as fits. A control character, also one of U+0080 to U+009F, becomes a
 * space, a byte that is part of no UTF-8 character becomes '?'. A character that does not fit whole
 * is left out. Return: dst.
 */
char *one_line(char *dst, size_t size, const char *src);

#endif
