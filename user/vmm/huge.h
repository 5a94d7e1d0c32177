/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * RAM files on a tmpfs with huge pages. Such pages come to whoever maps the file and asks for them (MADV_HUGEPAGE,
 * which QEMU does), not to whoever writes to it; and where they are, a mapping costs next to nothing.
 */
#ifndef GODWIT_HUGE_H
#define GODWIT_HUGE_H

#include "vmm/vm.h"

#define HUGE_PAGES	512u	/* of 4 KiB in one of x86-64's: 2 MiB */

/**
 * huge_map() - all of a block, if the kernel would give it huge pages
 * @prot: PROT_READ, PROT_WRITE
 * Return: the mapping, shared, for munmap(); NULL where there would be none: a tmpfs mounted with huge=never (the
 * default), hugetlbfs, whose mappings reserve. What the kernel would do it says itself, in /proc/self/smaps
 * (THPeligible; Documentation/filesystems/proc.rst).
 */
void *huge_map(const struct ram_block *b, int prot);

#endif
