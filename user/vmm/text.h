/* SPDX-License-Identifier: GPL-2.0-only */
/* Other people's text inside our one line. */
#ifndef GODWIT_TEXT_H
#define GODWIT_TEXT_H

#include <stddef.h>

/* Copies what fits, with a space for each control character, and '?' for a byte that is part of no character of UTF-8; returns dst. */
char *one_line(char *dst, size_t size, const char *src);

#endif
