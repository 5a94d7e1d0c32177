// SPDX-License-Identifier: GPL-2.0-only
/* Which RAM there is, and a bump allocator for tables and buffers after the image. */
#include "guest.h"

enum { MULTIBOOT_MMAP = 1 << 6, MULTIBOOT_RAM = 1 };

#define FOUR_GIB	(1ull << 32)
#define TOP		(3072u * MIB)	/* below the PCI hole of every machine type */

struct multiboot_info {
	uint32_t flags, mem_lower, mem_upper, boot_device, cmdline;
	uint32_t mods_count, mods_addr, syms[4];
	uint32_t mmap_length, mmap_addr;
};

struct multiboot_mmap {
	uint32_t size;		/* of the rest of this entry */
	uint64_t base, length;
	uint32_t type;
} __attribute__((packed));

extern char image_end[];
static uintptr_t next, end;
static uint32_t high_mib;

void mem_init(const struct multiboot_info *mb)
{
	uintptr_t at = mb->mmap_addr, stop = at + mb->mmap_length;
	const struct multiboot_mmap *m;
	uint64_t last;

	if (!(mb->flags & MULTIBOOT_MMAP))
		die("no memory map");
	for (; at < stop; at += m->size + sizeof(m->size)) {
		m = (const void *)at;
		last = m->base + m->length;
		if (m->type == MULTIBOOT_RAM && m->base == FOUR_GIB)
			high_mib = m->length / MIB;
		if (m->type != MULTIBOOT_RAM || m->base > MIB || last <= MIB)
			continue;
		end = last < TOP ? last : TOP;
	}
	if (!end)
		die("no RAM at 1 MiB");
	next = (uintptr_t)image_end;
}

/* Whole pages, not cleared: clearing would touch them. */
void *mem_alloc(size_t n)
{
	uintptr_t at = (next + PAGE_SIZE - 1) & ~(uintptr_t)(PAGE_SIZE - 1);

	next = at + ((n + PAGE_SIZE - 1) & ~(size_t)(PAGE_SIZE - 1));
	if (next > opt.start * MIB)
		die("tables and buffers reach into the pattern's region: raise start=");
	return (void *)at;
}

uintptr_t mem_end(void)
{
	return end & ~(uintptr_t)(PAGE_SIZE - 1);
}

/* What the PCI hole has put above 4 GiB. */
uint32_t mem_high_mib(void)
{
	return high_mib;
}
