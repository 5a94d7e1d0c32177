// SPDX-License-Identifier: GPL-2.0-only
/*
 * The rows of the ledger that are told of writes note them here, from any context, until
 * a harvest collects them.
 *
 * Notes are few and guests are large, so a summary says which stripes of the bitmap to look at. A
 * note sets its bit, then the stripe's, always: another note of the same page may have set the bit
 * and not come to the stripe yet. The harvest takes the stripe, then the bits: a note that ends
 * before it begins has its stripe set.
 */
#include <linux/bitops.h>

#include "internal.h"
#include "trace.h"

/* log2 of the pages in a stripe: at least a word, at most GODWIT_STRIPES stripes. */
static unsigned int stripe_shift(const struct godwit_ram *ram)
{
	return max(fls64(ram->npages - 1), ilog2(GODWIT_STRIPES) + ilog2(BITS_PER_LONG)) -
	       ilog2(GODWIT_STRIPES);
}

static void set_stripes(struct godwit_ram *ram, u64 first, u64 end)
{
	unsigned long stripe, last = (end - 1) >> stripe_shift(ram);

	for (stripe = first >> stripe_shift(ram); stripe <= last; stripe++)
		set_bit(stripe, ram->stripes);	/* after the bits: fetch_or was a full barrier */
}

void godwit_ledger_note(struct godwit_ram *ram, enum godwit_row row, u64 first, u64 npages)
{
	u64 end, page, fresh = 0;

	if (first >= ram->npages || !npages)
		return;
	end = first + min(npages, ram->npages - first);
	/* Before the bits: the harvest that takes one of them knows of it. */
	if (row == GODWIT_ROW_UNMAP)
		WRITE_ONCE(ram->unmapped, true);
	for (page = first; page < end; ) {
		unsigned long *word = &ram->pending[page / BITS_PER_LONG];
		unsigned int from = page % BITS_PER_LONG;
		unsigned int to = min_t(u64, BITS_PER_LONG, from + (end - page));
		unsigned long mask = GENMASK(to - 1, from);

		/* A full barrier, even where nothing is new: the write before, the note after. */
		fresh += hweight_long(mask & ~(unsigned long)
				      atomic_long_fetch_or(mask, (atomic_long_t *)word));
		page += to - from;
	}
	set_stripes(ram, first, end);
	trace_godwit_ledger_hit(ram, row, first, end - first, fresh);
	if (fresh)
		atomic64_add(fresh, &ram->noted[row]);
}

/* Row "unmap", for a harvest that is about to collect: right into the helper's bitmap. */
void godwit_ledger_note_unmapped(struct godwit_ram *ram, u64 first, u64 npages)
{
	npages = godwit_ram_mark(ram, first, npages);
	if (!npages)
		return;
	WRITE_ONCE(ram->unmapped, true);
	trace_godwit_ledger_hit(ram, GODWIT_ROW_UNMAP, first, npages, npages);
	atomic64_add(npages, &ram->noted[GODWIT_ROW_UNMAP]);
}

static bool collect_stripe(struct godwit_ram *ram, unsigned long stripe)
{
	unsigned long words = 1UL << (stripe_shift(ram) - ilog2(BITS_PER_LONG));
	unsigned long i = stripe * words, end = min(i + words, ram->words);
	bool found = false;

	for (; i < end; i++) {
		if (!READ_ONCE(ram->pending[i]))
			continue;
		ram->dirty[i] |= xchg(&ram->pending[i], 0);
		found = true;
	}
	return found;
}

/*
 * Moves what was noted into the helper's bitmap. A note that comes later is for the next harvest.
 * Returns whether there was any.
 */
bool godwit_ledger_collect(struct godwit_ram *ram, u64 *pages)
{
	bool found = false, unmapped;
	unsigned long stripe;
	int row;

	for_each_set_bit(stripe, ram->stripes, GODWIT_STRIPES) {
		/*
		 * A full barrier before the bits are read; pairs with the order
		 * of godwit_ledger_note().
		 */
		if (test_and_clear_bit(stripe, ram->stripes))
			found |= collect_stripe(ram, stripe);
		cond_resched();
	}
	for (row = 0; row < GODWIT_ROWS; row++)
		pages[row] += atomic64_xchg(&ram->noted[row], 0);
	/*
	 * A caller that looks for holes must hear of it, also where the block row
	 * had noted all of the pages.
	 */
	unmapped = xchg(&ram->unmapped, false);
	if (unmapped && !pages[GODWIT_ROW_UNMAP])
		pages[GODWIT_ROW_UNMAP] = 1;
	return found || unmapped;	/* godwit_ledger_note_unmapped() sets no stripe */
}
