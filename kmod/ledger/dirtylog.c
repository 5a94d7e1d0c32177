// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ledger row "vcpu": KVM's dirty log of each memslot, read in place and re-armed
 * with KVM_CLEAR_DIRTY_LOG.
 *
 * Reading takes no lock of KVM's and copies nothing: SRCU keeps the bitmap, KVM sets its bits
 * atomically, and nothing passes through memory that the VMM can write. Clean stretches are
 * skipped a cache line at a time.
 *
 * Each KVM_CLEAR_DIRTY_LOG kicks all vCPUs out of the guest, twice: to empty their PML buffers, and
 * to flush their TLBs. It does so whether it clears one page or a million; and it holds mmu_lock
 * for about as long as there are words with something to clear. So one call takes as much as it
 * may: it goes on over clean stretches and is cut
 *
 *	- at CLEAR_DIRTY words that are not 0: as many as the largest chunk of QEMU's (1 GiB) can
 *	  have, so that no vCPU waits longer for mmu_lock than it would there;
 *	- at a clean stretch of CLEAR_GAP words, which costs more to copy, twice, than another call;
 *	- at GODWIT_CLEAR_PAGES, the size of the bitmap in the borrowed mm.
 *
 * A harvest reads the log and marks what it says in the helper's bitmap; CLEAR has KVM clear what
 * is marked there. Both are this walk over the log's words that are not 0. What is marked and not
 * in the log needs no clearing: KVM protects the page, or sets its bit from now on. What is in the
 * log and not marked was written since the harvest, and is found by the next one.
 */
#include <linux/kvm_host.h>
#include <linux/mm.h>

#include "internal.h"

#define CLEAR_WORDS	(GODWIT_CLEAR_PAGES / BITS_PER_LONG)
#define CLEAR_DIRTY	4096
#define CLEAR_GAP	8192
#define SCAN_WORDS	65536	/* between two chances for others to run: 16 GiB of the guest */

/**
 * struct walk - over the log of pages [@lo, @hi) of @slot, which are part of @piece
 * @pages: a harvest: how many are in the log
 * @bits: CLEAR: words [@first, @first + @words) of @slot, for the next
 *	KVM_CLEAR_DIRTY_LOG; NULL: a harvest
 * @dirty: how many of them are not 0
 */
struct walk {
	struct godwit_session *s;
	const struct godwit_piece *piece;
	const struct godwit_slot *slot;
	u64 lo, hi;
	u64 pages;
	struct godwit_scratch *sc;
	unsigned long *bits;
	u64 first;
	unsigned int words;
	unsigned int dirty;
};

/* Sets bits of a slot's word in the file's bitmap; the two need not be aligned to each other. */
static void mark_word(struct godwit_ram *ram, u64 pgoff, unsigned long word)
{
	unsigned int shift = pgoff % BITS_PER_LONG;
	unsigned long i = pgoff / BITS_PER_LONG;

	ram->dirty[i] |= word << shift;
	if (shift && word >> (BITS_PER_LONG - shift))
		ram->dirty[i + 1] |= word >> (BITS_PER_LONG - shift);
}

/* The bits of the file's bitmap at pgoff, as a slot's word. */
static unsigned long marked_word(const struct godwit_ram *ram, u64 pgoff)
{
	unsigned int shift = pgoff % BITS_PER_LONG;
	unsigned long i = pgoff / BITS_PER_LONG;
	unsigned long word = READ_ONCE(ram->dirty[i]) >> shift;

	if (shift && i + 1 < ram->words)
		word |= READ_ONCE(ram->dirty[i + 1]) << (BITS_PER_LONG - shift);
	return word;
}

/* The bits of word number w that lie within pages [first, end) of the slot. */
static unsigned long word_mask(u64 w, u64 first, u64 end)
{
	u64 base = w * BITS_PER_LONG;
	unsigned long mask = ~0UL;

	if (first > base)
		mask &= ~0UL << (first - base);
	if (end < base + BITS_PER_LONG)
		mask &= ~0UL >> (base + BITS_PER_LONG - end);
	return mask;
}

/* The first word from w on that is not 0, or end. */
static u64 skip_clean(const unsigned long *log, u64 w, u64 end)
{
	for (; w < end; w++) {
		while (IS_ALIGNED(w, GODWIT_LINE_WORDS) && end - w >= GODWIT_LINE_WORDS &&
		       !godwit_line(log + w))
			w += GODWIT_LINE_WORDS;
		if (w < end && READ_ONCE(log[w]))
			break;
	}
	return min(w, end);
}

static bool fits(const struct walk *k, u64 w)
{
	return !k->words || (k->dirty < CLEAR_DIRTY && w - k->first < CLEAR_WORDS &&
			     w - (k->first + k->words) < CLEAR_GAP);
}

static void add_word(struct walk *k, u64 w, unsigned long word)
{
	if (!k->words)
		k->first = w;
	memset(k->bits + k->words, 0, (w - k->first - k->words) * sizeof(long));
	k->bits[w - k->first] = word;
	k->words = w - k->first + 1;
	k->dirty++;
}

static int clear_now(struct walk *k)
{
	u64 first = k->first * BITS_PER_LONG;
	u64 npages = min_t(u64, k->slot->npages - first, (u64)k->words * BITS_PER_LONG);

	if (!k->words)
		return 0;
	k->words = 0;
	k->dirty = 0;
	return godwit_kvm_clear(k->s, k->sc, k->slot, first, npages, k->bits);
}

static void take_word(struct walk *k, u64 w, unsigned long word)
{
	const struct godwit_piece *p = k->piece;
	struct godwit_ram *ram = k->s->rams[p->ram];
	u64 base = w * BITS_PER_LONG;
	unsigned int skip = base < p->first ? p->first - base : 0;
	u64 pgoff = p->pgoff + (base + skip - p->first);

	word &= word_mask(w, k->lo, k->hi);
	if (!word)
		return;
	if (!k->bits) {
		mark_word(ram, pgoff, word >> skip);
		k->pages += hweight_long(word);
		return;
	}
	word &= marked_word(ram, pgoff) << skip;
	if (word)
		add_word(k, w, word);
}

/* Words [*w, end) of the log, until the next clearing is full; *w is how far it came. */
static int read_words(struct walk *k, u64 *w, u64 end)
{
	const struct kvm_memory_slot *ks;
	const unsigned long *log;
	int idx, r = 0;

	idx = srcu_read_lock(&k->s->kvm->srcu);
	ks = godwit_slot_find(k->s, k->slot);
	log = ks ? READ_ONCE(ks->dirty_bitmap) : NULL;
	if (!log)
		r = -EAGAIN;		/* changed since the view was taken */
	for (; !r && (*w = skip_clean(log, *w, end)) < end && fits(k, *w); ++*w)
		take_word(k, *w, READ_ONCE(log[*w]));
	srcu_read_unlock(&k->s->kvm->srcu, idx);
	return r;
}

/* Pages [lo, hi) of the piece's slot. -EAGAIN: it is not the slot that it was. */
static int walk_piece(struct walk *k, const struct godwit_piece *p, u64 lo, u64 hi)
{
	u64 w = lo / BITS_PER_LONG, end = DIV_ROUND_UP(hi, BITS_PER_LONG), stop;
	int r = 0;

	k->piece = p;
	k->slot = &k->s->view.slots[p->slot];
	k->lo = lo;
	k->hi = hi;
	k->words = 0;
	k->dirty = 0;
	if (!(k->slot->flags & KVM_MEM_LOG_DIRTY_PAGES))
		return 0;	/* not yet: all of it counts as written, see slots.c */
	while (w < end && !r) {
		stop = min_t(u64, end, w + SCAN_WORDS);
		r = read_words(k, &w, stop);
		if (!r && (w < stop || w == end))
			r = clear_now(k);
		cond_resched();
	}
	return r == -ENOENT || r == -EINVAL ? -EAGAIN : r;
}

/**
 * godwit_dirtylog_harvest() - mark what KVM's log says in the helper's bitmaps
 * @pages: added to: how many pages are in the log
 *
 * Return: 0; -EAGAIN: slots have changed, take a new view. What was found is marked in any case.
 */
int godwit_dirtylog_harvest(struct godwit_session *s, u64 *pages)
{
	struct walk k = { .s = s };
	unsigned int i;
	int r = 0;

	if (!godwit_row_on(GODWIT_ROW_VCPU))
		return 0;
	for (i = 0; i < s->view.nr_pieces && !r; i++) {
		const struct godwit_piece *p = &s->view.pieces[i];

		r = walk_piece(&k, p, p->first, p->first + p->npages);
	}
	*pages += k.pages;
	return r;
}

/* A buffer for the longest clearing of the largest slot, or of npages. */
static unsigned long *bits_for(const struct godwit_session *s, u64 npages)
{
	u64 largest = 0;
	unsigned int i;

	for (i = 0; i < s->view.nr_slots; i++)
		largest = max(largest, s->view.slots[i].npages);
	npages = min3(npages, largest, (u64)GODWIT_CLEAR_PAGES);
	return kvmalloc((npages / BITS_PER_LONG + 2) * sizeof(long), GFP_KERNEL);
}

/* Has KVM forget and re-arm what is marked in a range of a RAM file, wherever slots show it. */
int godwit_dirtylog_clear(struct godwit_session *s, struct godwit_scratch *sc,
			  const struct godwit_range *a)
{
	struct walk k = { .s = s, .sc = sc };
	unsigned int i;
	int r = 0;

	k.bits = bits_for(s, a->npages);
	if (!k.bits)
		return -ENOMEM;
	for (i = 0; i < s->view.nr_pieces && !r; i++) {
		const struct godwit_piece *p = &s->view.pieces[i];
		u64 lo = max(a->first_page, p->pgoff);
		u64 hi = min(a->first_page + a->npages, p->pgoff + p->npages);

		if (p->ram == a->ram && lo < hi)
			r = walk_piece(&k, p, lo - p->pgoff + p->first, hi - p->pgoff + p->first);
		/*
		 * A slot that is gone or new is found by the next harvest, which
		 * counts all of it as written.
		 */
		if (r == -EAGAIN)
			r = 0;
	}
	kvfree(k.bits);
	return r;
}
