/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What godwit says while a guest waits for it. A terminal that is held (Ctrl-S), the session of a
 * link that is away, a pipe or a journal that is not read take nothing any more, without an end. No
 * line waits for them: what they do not take at once is dropped.
 */
#ifndef GODWIT_SAY_H
#define GODWIT_SAY_H

#include <stddef.h>

/* "godwit: ", the text and a newline, to standard error. */
__attribute__((format(printf, 1, 2)))
void say(const char *fmt, ...);
/* The same to standard output. */
__attribute__((format(printf, 1, 2)))
void say_out(const char *fmt, ...);

/*
 * Bytes, as they are, to a descriptor of this process. A pipe takes up to PIPE_BUF of them whole or
 * not at all. Return: 0, -EAGAIN (not all of them) or -errno.
 */
int say_bytes(int fd, const char *bytes, size_t len);

#endif
