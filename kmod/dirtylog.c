// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ledger row "vcpu": KVM's dirty log of each memslot, read in place and re-armed with KVM_CLEAR_DIRTY_LOG.
 *
 * Reading takes no lock of KVM's and copies nothing: SRCU keeps the bitmap, KVM sets its bits atomically, and nothing
 * passes through memory that the VMM can write. Clean stretches are skipped a cache line at a time.
 *
 * Each KVM_CLEAR_DIRTY_LOG kicks all vCPUs out of the guest, twice: to empty their PML buffers, and to flush their
 * TLBs. It does so whether it clears one page or a million; and it holds mmu_lock for about as long as there are words
 * with something to clear. So one call takes as much as it may: it goes on over clean stretches and is cut
 *
 *	- at CLEAR_DIRTY words that are not 0: as many as the largest chunk of QEMU's (1 GiB) can have, so that
 *	  no vCPU waits longer for mmu_lock than it would there;
 *	- at a clean stretch of CLEAR_GAP words, which costs more to copy, twice, than another call;
 *	- at GODWIT_CLEAR_PAGES, the size of the bitmap in the borrowed mm.
 *
 * The order is harvest.c's: bits go into the helper's bitmap first, then KVM clears them.
 */
#include <linux/kvm_host.h>
#include <linux/mm.h>

#include "internal.h"

#define CLEAR_WORDS	(GODWIT_CLEAR_PAGES / BITS_PER_LONG)
#define CLEAR_DIRTY	4096
#define CLEAR_GAP	8192
#define SCAN_WORDS	65536	/* between two chances for others to run: 16 GiB of the guest */

/**
 * struct clearing - what the next KVM_CLEAR_DIRTY_LOG shall clear
 * @bits: words [@first, @first + @words) of @slot
 * @dirty: how many of them are not 0
 */
struct clearing {
	struct godwit_session *s;
	struct godwit_scratch *sc;
	const struct godwit_slot *slot;
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
		while (IS_ALIGNED(w, GODWIT_LINE_WORDS) && end - w >= GODWIT_LINE_WORDS && !godwit_line(log + w))
			w += GODWIT_LINE_WORDS;
		if (w < end && READ_ONCE(log[w]))
			break;
	}
	return min(w, end);
}

/*
 * Marks what word w of the log says, and returns what is to be cleared: bits that the helper had pending
 * already are not re-armed, it has yet to take them.
 */
static unsigned long take_word(struct godwit_ram *ram, const struct godwit_piece *p, u64 w, unsigned long word,
			       u64 *pages)
{
	u64 base = w * BITS_PER_LONG;
	unsigned int skip = base < p->first ? p->first - base : 0;
	u64 pgoff = p->pgoff + (base + skip - p->first);
	unsigned long fresh;

	word &= word_mask(w, p->first, p->first + p->npages);
	if (!word)
		return 0;
	fresh = word & ~(marked_word(ram, pgoff) << skip);
	mark_word(ram, pgoff, word >> skip);
	*pages += hweight_long(word);
	return fresh;
}

static bool fits(const struct clearing *c, u64 w)
{
	return !c->words || (c->dirty < CLEAR_DIRTY && w - c->first < CLEAR_WORDS &&
			     w - (c->first + c->words) < CLEAR_GAP);
}

static void add_word(struct clearing *c, u64 w, unsigned long word)
{
	if (!c->words)
		c->first = w;
	memset(c->bits + c->words, 0, (w - c->first - c->words) * sizeof(long));
	c->bits[w - c->first] = word;
	c->words = w - c->first + 1;
	c->dirty++;
}

static int clear_now(struct clearing *c)
{
	u64 first = c->first * BITS_PER_LONG;
	u64 npages = min_t(u64, c->slot->npages - first, (u64)c->words * BITS_PER_LONG);

	if (!c->words)
		return 0;
	c->words = 0;
	c->dirty = 0;
	return godwit_kvm_clear(c->s, c->sc, c->slot, first, npages, c->bits);
}

/* Words [*w, end) of a piece's log, until the next clearing is full; *w is how far it came. */
static int read_words(struct clearing *c, const struct godwit_piece *p, u64 *w, u64 end, u64 *pages)
{
	struct godwit_ram *ram = c->s->rams[p->ram];
	const struct kvm_memory_slot *ks;
	const unsigned long *log;
	int idx, r = 0;

	idx = srcu_read_lock(&c->s->kvm->srcu);
	ks = godwit_slot_find(c->s, c->slot);
	log = ks ? READ_ONCE(ks->dirty_bitmap) : NULL;
	if (!log)
		r = -EAGAIN;		/* changed since the view was taken */
	while (!r && (*w = skip_clean(log, *w, end)) < end && fits(c, *w)) {
		unsigned long fresh = take_word(ram, p, *w, READ_ONCE(log[*w]), pages);

		if (fresh && c->bits)
			add_word(c, *w, fresh);
		++*w;
	}
	srcu_read_unlock(&c->s->kvm->srcu, idx);
	return r;
}

static int harvest_piece(struct clearing *c, const struct godwit_piece *p, u64 *pages)
{
	u64 w = p->first / BITS_PER_LONG, stop;
	u64 end = DIV_ROUND_UP(p->first + p->npages, BITS_PER_LONG);
	int r = 0;

	c->slot = &c->s->view.slots[p->slot];
	if (!(c->slot->flags & KVM_MEM_LOG_DIRTY_PAGES))
		return 0;	/* not yet: all of it counts as written, see slots.c */
	while (w < end && !r) {
		stop = min_t(u64, end, w + SCAN_WORDS);
		r = read_words(c, p, &w, stop, pages);
		if (!r && (w < stop || w == end))
			r = clear_now(c);
		cond_resched();
	}
	c->words = 0;
	c->dirty = 0;
	return r == -ENOENT || r == -EINVAL ? -EAGAIN : r;
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

/**
 * godwit_dirtylog_harvest() - put what KVM's log says into the helper's bitmaps
 * @rearm: and clear it in KVM
 * @pages: added to: how many pages are in the log
 *
 * Return: 0; -EAGAIN: slots have changed, take a new view; what KVM answers. What was found is marked in any case.
 */
int godwit_dirtylog_harvest(struct godwit_session *s, struct godwit_scratch *sc, bool rearm, u64 *pages)
{
	struct clearing c = { .s = s, .sc = sc };
	unsigned int i;
	int r = 0;

	if (!godwit_row_on(GODWIT_ROW_VCPU))
		return 0;
	if (rearm) {
		c.bits = bits_for(s, GODWIT_CLEAR_PAGES);
		if (!c.bits)
			return -ENOMEM;
	}
	for (i = 0; i < s->view.nr_pieces && !r; i++)
		r = harvest_piece(&c, &s->view.pieces[i], pages);
	kvfree(c.bits);
	return r;
}

static int clear_piece(struct clearing *c, const struct godwit_piece *p, u64 first, u64 end)
{
	u64 w = first / BITS_PER_LONG, stop = DIV_ROUND_UP(end, BITS_PER_LONG);
	int r = 0;

	c->slot = &c->s->view.slots[p->slot];
	for (; w < stop && !r; w++) {
		if (!fits(c, w))
			r = clear_now(c);
		add_word(c, w, word_mask(w, first, end));
	}
	if (!r)
		r = clear_now(c);
	/* A slot that is gone or new is found by the next harvest, which counts all of it as written. */
	return r == -ENOENT || r == -EINVAL ? 0 : r;
}

/* Forgets and re-arms a range of a RAM file, wherever slots show it. */
int godwit_dirtylog_clear(struct godwit_session *s, struct godwit_scratch *sc, const struct godwit_range *a)
{
	struct clearing c = { .s = s, .sc = sc };
	unsigned int i;
	int r = 0;

	c.bits = bits_for(s, min_t(u64, a->npages, CLEAR_DIRTY * BITS_PER_LONG));
	if (!c.bits)
		return -ENOMEM;
	for (i = 0; i < s->view.nr_pieces && !r; i++) {
		const struct godwit_piece *p = &s->view.pieces[i];
		u64 lo = max(a->first_page, p->pgoff);
		u64 hi = min(a->first_page + a->npages, p->pgoff + p->npages);

		c.words = 0;
		c.dirty = 0;
		if (p->ram == a->ram && lo < hi)
			r = clear_piece(&c, p, lo - p->pgoff + p->first, hi - p->pgoff + p->first);
	}
	kvfree(c.bits);
	return r;
}
