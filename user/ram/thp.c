// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "page/page.h"
#include "ram/thp.h"

/*
 * Reads THPeligible of the mapping that begins at base. The mapping's page tables are empty, so the
 * kernel walks nothing for its other values.
 */
static bool thp_eligible(const void *base)
{
	CLEANUP_FCLOSE FILE *f = fopen("/proc/self/smaps", "re");
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
	return yes;
}

void *thp_map(const struct ram_block *b, int prot)
{
	size_t bytes = b->pages * PAGE_BYTES;
	void *base;

	if (b->hugetlb || b->hva)
		return NULL;
	base = mmap(NULL, bytes, prot, MAP_SHARED, b->fd, 0);
	if (base == MAP_FAILED)
		return NULL;
	/* madvise() comes first: with huge=advise only this makes the mapping eligible. */
	if (!madvise(base, bytes, MADV_HUGEPAGE) && thp_eligible(base))
		return base;
	munmap(base, bytes);
	return NULL;
}
