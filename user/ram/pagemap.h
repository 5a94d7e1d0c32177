/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which pages a process has, by its /proc/PID/pagemap. Looking makes none: no page, and no page
 * table.
 */
#ifndef GODWIT_PAGEMAP_H
#define GODWIT_PAGEMAP_H

#include <stdint.h>

/**
 * pagemap_next() - the first pages in a range that are there
 * @fd: /proc/PID/pagemap
 * @from: @end: addresses in that process, multiples of 4 KiB
 * @run: @len: bytes; where they begin and how many follow each other, not always all that do
 * A page that is swapped out is there. The kernel's page of zeros is none; but before 6.7
 * (PAGEMAP_SCAN) it cannot be told from others. Pages of a file that the process has not touched
 * are not there: ask the file.
 * Return: 1, 0: none, or -errno
 */
int pagemap_next(int fd, uint64_t from, uint64_t end, uint64_t *run, uint64_t *len);

#endif
