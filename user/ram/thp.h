/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * RAM files on a tmpfs with huge pages. The kernel gives huge pages to a process that maps the file
 * and asks for them (MADV_HUGEPAGE, as QEMU does), not to a process that calls write(); and where
 * the file has huge pages, a mapping costs next to nothing.
 */
#ifndef GODWIT_THP_H
#define GODWIT_THP_H

#include "ram/ram_block.h"

#define THP_PAGES	512u	/* 4 KiB pages in a huge page of x86-64, 2 MiB */

/**
 * thp_map() - map all of a block, if the kernel would give the mapping huge pages
 * @prot: PROT_READ, PROT_WRITE
 * Return: the mapping, shared, for munmap(). NULL where the kernel would give none: a tmpfs mounted
 * with huge=never (the default); also on hugetlbfs, where a mapping reserves pages. The kernel says
 * what it would do in /proc/self/smaps (THPeligible; Documentation/filesystems/proc.rst).
 */
void *thp_map(const struct ram_block *b, int prot);

#endif
