// SPDX-License-Identifier: GPL-2.0-only
/* The rows of the ledger that are told of writes note them here, from any context, until a harvest collects them. */
#include <linux/bitops.h>

#include "internal.h"
#include "trace.h"

void godwit_ledger_note(struct godwit_ram *ram, enum godwit_row row, u64 first, u64 npages)
{
	u64 end, page, fresh = 0;

	if (first >= ram->npages || !npages)
		return;
	end = first + min(npages, ram->npages - first);
	for (page = first; page < end; ) {
		unsigned long *word = &ram->pending[page / BITS_PER_LONG];
		unsigned int from = page % BITS_PER_LONG;
		unsigned int to = min_t(u64, BITS_PER_LONG, from + (end - page));
		unsigned long mask = GENMASK(to - 1, from);

		/* A full barrier, even where nothing is new: the write comes before, the note after. */
		fresh += hweight_long(mask & ~(unsigned long)atomic_long_fetch_or(mask, (atomic_long_t *)word));
		page += to - from;
	}
	trace_godwit_ledger_hit(ram, row, first, end - first, fresh);
	if (fresh)
		atomic64_add(fresh, &ram->noted[row]);
}

/* Moves what was noted into the helper's bitmap. A note that comes later is for the next harvest. */
void godwit_ledger_collect(struct godwit_ram *ram, u64 *pages)
{
	unsigned long i, word;
	int row;

	for (i = 0; i < ram->words; i++) {
		if (!READ_ONCE(ram->pending[i]))
			continue;
		word = xchg(&ram->pending[i], 0);
		ram->dirty[i] |= word;
		if (!(i % 4096))
			cond_resched();
	}
	for (row = 0; row < GODWIT_ROWS; row++)
		pages[row] += atomic64_xchg(&ram->noted[row], 0);
}
