// SPDX-License-Identifier: GPL-2.0-only
/*
 * RAM above 4 GiB, on the other side of the PCI hole: a window to it, by PSE-36.
 * All else stays where it is without paging.
 */
#include "guest.h"

enum {
	PRESENT		= 0x01,
	WRITABLE	= 0x02,
	BIG		= 0x80,
	BIT_32		= 1 << 13,	/* of the address, in a PDE of 4 MiB */
	ENTRIES		= 1024,
	BIG_MIB		= 4,
	WINDOW_MIB	= 3072,		/* the memory of PCI devices, of which nothing here uses any */
};

static uint32_t table[ENTRIES] __attribute__((aligned(PAGE_SIZE)));

void *high_window(void)
{
	return (void *)(uintptr_t)((uint32_t)WINDOW_MIB * MIB);
}

/* One table for all vCPUs. */
void high_init(void)
{
	uint32_t i;

	if (!opt.high)
		return;
	if (opt.high > mem_high_mib())
		die("there is less RAM above 4 GiB than high= says");
	for (i = 0; i < ENTRIES; i++)
		table[i] = i * BIG_MIB * MIB | BIG | WRITABLE | PRESENT;
	for (i = 0; i < HIGH_MAX / BIG_MIB; i++)
		table[WINDOW_MIB / BIG_MIB + i] = i * BIG_MIB * MIB | BIT_32 | BIG | WRITABLE | PRESENT;
	high_map();
}

/* On each vCPU. */
void high_map(void)
{
	uint32_t r;

	if (!opt.high)
		return;
	__asm__ volatile("mov %%cr4, %0\n\t"
			 "or $0x10, %0\n\t"		/* PSE */
			 "mov %0, %%cr4\n\t"
			 "mov %1, %%cr3\n\t"
			 "mov %%cr0, %0\n\t"
			 "or $0x80000000, %0\n\t"	/* PG */
			 "mov %0, %%cr0"
			 : "=&r"(r) : "r"(table) : "memory");
}
