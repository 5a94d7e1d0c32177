// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "vmm/huge.h"

/* THPeligible of the mapping that begins there. Its page tables are empty, so nothing is walked for the rest. */
static bool eligible(const void *base)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	bool ours = false, yes = false;
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		unsigned long start, end;
		int value;

		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			ours = start == (unsigned long)base;
		else if (ours && sscanf(line, "THPeligible: %d", &value) == 1)
			yes = value;
	}
	if (f)
		fclose(f);
	return yes;
}

void *huge_map(const struct ram_block *b, int prot)
{
	size_t bytes = b->pages * WIRE_PAGE;
	void *base;

	if (b->hugetlb)
		return NULL;
	base = mmap(NULL, bytes, prot, MAP_SHARED, b->fd, 0);
	if (base == MAP_FAILED)
		return NULL;
	/* Asked first: with huge=advise only this makes it eligible. */
	if (!madvise(base, bytes, MADV_HUGEPAGE) && eligible(base))
		return base;
	munmap(base, bytes);
	return NULL;
}
