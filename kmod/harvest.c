// SPDX-License-Identifier: GPL-2.0-only
/*
 * The harvest: every row of the ledger into one bitmap.
 *
 * Why no write is missed. Take a write to page P by anybody, after the helper's last CLEAR of P or
 * clearing harvest that reported P, and the first harvest H that begins after it. Then H reports P:
 *
 *	vCPU		P's bit in KVM's bitmap is cleared only by KVM_CLEAR_DIRTY_LOG, for bits that H has
 *			read and put into the helper's bitmap before (rearm_piece: read, mark, clear), or in a
 *			range that the helper is about to read (CLEAR). KVM write-protects P and flushes TLBs
 *			before that ioctl returns, so a later store faults and sets the bit again.
 *			With Intel's PML the bit of a store may sit in a vCPU's buffer until its next exit:
 *			it comes with a later harvest, and the last one is taken when vCPUs have stopped.
 *	mapping		The store set the dirty bit of the entry it went through. Either the entry is still
 *			there: the sweep takes the bit, and flushes TLBs, so that no CPU keeps on writing
 *			through a translation it believes to be marked already. Or the entry went away, see
 *			unmap. The flush comes before H returns, hence before the helper reads P.
 *	unmap		The notifier noted P when the invalidation ended; if it has not ended yet, it is in
 *			flight and H counts its range. This is looked at after the sweep: what the sweep did
 *			not find any more has been noted, or is in flight, by then.
 *	block		The completion noted P before the reader of the block device was told.
 *	change		A slot or mapping that came or went counts as written throughout.
 *
 * The mapping sweep reads page tables of mms that we know; a mapping that we did not know yet counts as
 * written throughout, once it is watched. What is not seen: a mapping that is made, written through and
 * torn down between two harvests by a process that has no other mapping of the file; and write(2) on
 * the file. No VMM does either to its guest's RAM.
 *
 * The order within H does not matter but for "in flight after sweep": each source is read once, and a
 * write that comes after it was read is the next harvest's.
 */
#include <linux/ktime.h>
#include <linux/kvm_host.h>
#include <linux/slab.h>

#include "internal.h"
#include "trace.h"

struct clear_run {
	struct godwit_session *s;
	struct godwit_scratch *sc;
	unsigned long *bits;	/* GODWIT_CLEAR_PAGES bits */
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

/*
 * Reads KVM's own bitmap in place: SRCU keeps it, KVM sets its bits atomically, and nothing passes through
 * memory that the VMM can write. Marks what is set and leaves in bits[] what is to be cleared: bits that
 * the helper had pending already are not re-armed, it has yet to take them. Words [w, w + words).
 */
static int read_words(struct godwit_session *s, const struct godwit_piece *p, u64 w, unsigned int words,
		      unsigned long *bits, u64 *pages)
{
	const struct godwit_slot *slot = &s->view.slots[p->slot];
	struct godwit_ram *ram = s->rams[p->ram];
	const struct kvm_memory_slot *ks;
	const unsigned long *log;
	int idx, news = 0;
	unsigned int i;

	idx = srcu_read_lock(&s->kvm->srcu);
	ks = godwit_slot_find(s, slot);
	log = ks ? READ_ONCE(ks->dirty_bitmap) : NULL;
	if (!log) {
		srcu_read_unlock(&s->kvm->srcu, idx);
		return -EAGAIN;		/* changed since the view was taken */
	}
	for (i = 0; i < words; i++) {
		unsigned long mask = word_mask(w + i, p->first, p->first + p->npages);
		unsigned long word = READ_ONCE(log[w + i]) & mask;
		u64 base = (w + i) * BITS_PER_LONG;
		unsigned int skip = base < p->first ? p->first - base : 0;
		u64 pgoff = p->pgoff + (base + skip - p->first);

		bits[i] = 0;
		if (!word)
			continue;
		bits[i] = word & ~(marked_word(ram, pgoff) << skip);
		mark_word(ram, pgoff, word >> skip);
		*pages += hweight_long(word);
		news |= !!bits[i];
	}
	srcu_read_unlock(&s->kvm->srcu, idx);
	return news;
}

static int harvest_piece(struct clear_run *run, const struct godwit_piece *p, bool rearm, u64 *pages)
{
	struct godwit_slot *slot = &run->s->view.slots[p->slot];
	u64 w = p->first / BITS_PER_LONG;
	u64 end = DIV_ROUND_UP(p->first + p->npages, BITS_PER_LONG);
	int r;

	while (w < end) {
		unsigned int words = min_t(u64, end - w, GODWIT_CLEAR_PAGES / BITS_PER_LONG);
		u64 first = w * BITS_PER_LONG;

		r = read_words(run->s, p, w, words, run->bits, pages);
		if (r < 0)
			return r;
		if (r && rearm) {
			r = godwit_kvm_clear(run->s, run->sc, slot, first,
					     min_t(u64, slot->npages - first, (u64)words * BITS_PER_LONG), run->bits);
			if (r)
				return r == -ENOENT || r == -EINVAL ? -EAGAIN : r;
		}
		w += words;
		cond_resched();
	}
	return 0;
}

static int harvest_vcpus(struct godwit_session *s, struct godwit_scratch *sc, bool rearm, u64 *pages)
{
	struct clear_run run = { .s = s, .sc = sc };
	unsigned int i;
	int r = 0;

	if (!godwit_row_on(GODWIT_ROW_VCPU))
		return 0;
	run.bits = kvmalloc(GODWIT_CLEAR_PAGES / BITS_PER_BYTE, GFP_KERNEL);
	if (!run.bits)
		return -ENOMEM;
	for (i = 0; i < s->view.nr_pieces && !r; i++)
		r = harvest_piece(&run, &s->view.pieces[i], rearm, pages);
	kvfree(run.bits);
	return r;
}

/* Brings the view up to date and reads KVM's log; begins again while the VMM changes slots meanwhile. */
static int refresh_and_harvest(struct godwit_session *s, bool rearm, u64 *pages)
{
	u64 since = ktime_get_ns();
	struct godwit_scratch sc;
	int tries, r;

	r = godwit_borrow_mm(s);
	if (r)
		return r;
	r = godwit_scratch_map(&sc);
	if (r)
		goto give_back;
	for (tries = 0; tries < 20; tries++) {
		r = godwit_slots_refresh(s, &sc, &pages[GODWIT_ROW_CHANGE]);
		godwit_stats_spent(s, GODWIT_PHASE_SLOTS, &since);
		if (!r)
			r = harvest_vcpus(s, &sc, rearm, &pages[GODWIT_ROW_VCPU]);
		godwit_stats_spent(s, GODWIT_PHASE_VCPU, &since);
		if (r != -EAGAIN)
			break;
	}
	godwit_scratch_unmap(&sc);
give_back:
	godwit_return_mm(s);
	return r;
}

static int harvest_ledger(struct godwit_session *s, u64 *pages)
{
	u64 since = ktime_get_ns();
	unsigned int i;
	int r;

	r = godwit_mapping_sweep(s, false, pages);
	godwit_stats_spent(s, GODWIT_PHASE_MAPPING, &since);
	/* Even after a failure: what was found is the helper's, and must not be lost here. */
	godwit_watch_in_flight(s);
	for (i = 0; i < s->nr_rams; i++)
		godwit_ledger_collect(s->rams[i], pages);
	godwit_stats_spent(s, GODWIT_PHASE_COLLECT, &since);
	return r;
}

static void account(struct godwit_session *s, const struct godwit_harvest *h, int r)
{
	unsigned int row;

	s->stats.harvests++;
	for (row = 0; row < GODWIT_ROWS; row++)
		s->stats.pages[row] += h->pages[row];
	trace_godwit_harvest(s, h, r);
}

int godwit_job_harvest(struct godwit_session *s, void *arg)
{
	struct godwit_harvest *h = arg;
	u64 start = ktime_get_ns();
	u32 changes = s->changes;
	int r;

	if (s->state != GODWIT_STATE_STARTED)
		return -ENODATA;
	memset(h->pages, 0, sizeof(h->pages));
	r = refresh_and_harvest(s, h->flags & GODWIT_HARVEST_CLEAR, h->pages);
	if (!r)
		r = harvest_ledger(s, h->pages);
	h->generation = ++s->generation;
	h->changes = s->changes;
	h->ns = ktime_get_ns() - start;
	account(s, h, r);
	if (s->changes != changes)
		godwit_netlink_event(s, GODWIT_CMD_SLOTS_CHANGED);
	return r;
}

/*
 * The ledger goes on before the sweep that throws away the past (dirty bits from before START say
 * nothing: every page counts as written anyway), so that nothing falls between.
 */
int godwit_job_start(struct godwit_session *s, void *arg)
{
	struct godwit_start *a = arg;
	u64 ignored[GODWIT_ROWS] = {};
	struct godwit_scratch sc;
	unsigned int i;
	int r;

	if (s->state == GODWIT_STATE_STARTED)
		return -EBUSY;
	if (s->state != GODWIT_STATE_ATTACHED || !s->nr_rams)
		return -EINVAL;
	r = godwit_borrow_mm(s);
	if (r)
		return r;
	r = godwit_scratch_map(&sc);
	if (!r) {
		r = godwit_slots_refresh(s, &sc, &ignored[0]);
		godwit_scratch_unmap(&sc);
	}
	godwit_return_mm(s);
	if (!r && !s->view.nr_slots)
		r = -ENOENT;
	if (r)
		return r;

	r = godwit_block_track(s);
	if (!r)
		r = godwit_mapping_sweep(s, true, ignored);
	if (r)
		return r;
	for (i = 0; i < s->nr_rams; i++)
		godwit_ram_mark(s->rams[i], 0, s->rams[i]->npages);
	s->changes = 0;
	WRITE_ONCE(s->state, GODWIT_STATE_STARTED);
	a->memslots = s->view.nr_slots;
	return 0;
}

static int clear_piece(struct clear_run *run, const struct godwit_piece *p, u64 first, u64 end)
{
	struct godwit_slot *slot = &run->s->view.slots[p->slot];
	u64 w = first / BITS_PER_LONG, stop = DIV_ROUND_UP(end, BITS_PER_LONG);
	int r = 0;

	while (w < stop && !r) {
		unsigned int i, words = min_t(u64, stop - w, GODWIT_CLEAR_PAGES / BITS_PER_LONG);
		u64 base = w * BITS_PER_LONG;

		for (i = 0; i < words; i++)
			run->bits[i] = word_mask(w + i, first, end);
		r = godwit_kvm_clear(run->s, run->sc, slot, base,
				     min_t(u64, slot->npages - base, (u64)words * BITS_PER_LONG), run->bits);
		w += words;
	}
	/* A slot that is gone or new is found by the next harvest, which counts all of it as written. */
	return r == -ENOENT || r == -EINVAL ? 0 : r;
}

static int clear_range(struct clear_run *run, const struct godwit_range *a)
{
	struct godwit_session *s = run->s;
	unsigned int i;
	int r = 0;

	for (i = 0; i < s->view.nr_pieces && !r; i++) {
		const struct godwit_piece *p = &s->view.pieces[i];
		u64 lo = max(a->first_page, p->pgoff);
		u64 hi = min(a->first_page + a->npages, p->pgoff + p->npages);

		if (p->ram == a->ram && lo < hi)
			r = clear_piece(run, p, lo - p->pgoff + p->first, hi - p->pgoff + p->first);
	}
	return r;
}

int godwit_job_clear(struct godwit_session *s, void *arg)
{
	struct clear_run run = { .s = s };
	u64 since = ktime_get_ns();
	struct godwit_scratch sc;
	int r;

	if (s->state != GODWIT_STATE_STARTED)
		return -ENODATA;
	run.bits = kvmalloc(GODWIT_CLEAR_PAGES / BITS_PER_BYTE, GFP_KERNEL);
	if (!run.bits)
		return -ENOMEM;
	run.sc = &sc;
	r = godwit_borrow_mm(s);
	if (r)
		goto free;
	r = godwit_scratch_map(&sc);
	if (!r) {
		r = clear_range(&run, arg);
		godwit_scratch_unmap(&sc);
	}
	godwit_return_mm(s);
free:
	kvfree(run.bits);
	s->stats.clears++;
	godwit_stats_spent(s, GODWIT_PHASE_CLEAR, &since);
	trace_godwit_clear(s, arg, r);
	return r;
}
