// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ledger row "block": block devices that read straight into the RAM file's
 * pages (O_DIRECT of the VMM).
 *
 * No page table entry is used, so no dirty bit is set; but the block layer has a tracepoint for
 * every read that is finished, before the reader is told:
 *
 *	block_rq_complete	request-based drivers (NVMe, SCSI, virtio, null_blk);
 *				never block_bio_complete
 *	block_bio_complete	bio-based ones (dm, md, brd); dm-crypt decrypts in
 *				place after the lower device's request has ended, so
 *				the end of the bio that it was given is what counts
 *
 * Both are needed. The probes are attached only while a session lives. A page belongs to us
 * when its folio lies in a tracked page cache; the read holds a reference on it, so the folio
 * cannot go away meanwhile.
 *
 * A private page belongs to us when the root of its anon_vma and its index fit an area that the
 * last sweep has published; a child that has forked from the VMM may have such pages too, which
 * then count for nothing worse than a page too much. An anon_vma is what it is as long as RCU keeps
 * it (SLAB_TYPESAFE_BY_RCU), and the page's is one as long as the page is mapped. One that is
 * mapped nowhere any more, which the read alone keeps, needs no note: any process that takes a copy
 * of it maps it first, so it was unmapped after the last copy, and the row "unmap" has it. KSM's
 * pages are not written, but copied first.
 */
#include <linux/bio.h>
#include <linux/blk-mq.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/rculist.h>
#include <linux/rmap.h>
#include <linux/tracepoint.h>
#include <trace/events/block.h>

#include "compat.h"
#include "internal.h"

static DEFINE_MUTEX(block_lock);	/* tracked (writers), probes */
static LIST_HEAD(tracked);		/* struct godwit_ram; readers under RCU */
static unsigned int sessions;		/* how many need the probes */
static struct tracepoint *rq_complete, *bio_complete;

static void note_areas(struct godwit_ram *ram, const struct anon_vma *root, u64 index, u64 nr)
{
	const struct godwit_areas *areas = rcu_dereference(ram->areas);
	unsigned int i;

	for (i = 0; areas && i < areas->nr; i++) {
		const struct godwit_area *a = &areas->area[i];
		/* In pages of the area: where the RAM begins, which may be behind it. */
		u64 begin = ram->addr > a->start ? (ram->addr - a->start) >> PAGE_SHIFT : 0;
		u64 first = max_t(u64, index, a->pgoff + begin);
		u64 end = min_t(u64, index + nr,
				a->pgoff + ((a->end - a->start) >> PAGE_SHIFT));
		u64 addr = a->start + ((first - a->pgoff) << PAGE_SHIFT);

		if (a->root == root && first < end)
			godwit_ledger_note(ram, GODWIT_ROW_BLOCK, (addr - ram->addr) >> PAGE_SHIFT,
					   end - first);
	}
}

static void note_private(struct folio *folio, unsigned long mapping, u64 index, u64 nr)
{
	const struct anon_vma *anon_vma = (void *)(mapping - FOLIO_MAPPING_ANON), *root;
	struct godwit_ram *ram;

	if (!folio_mapped(folio))
		return;
	root = READ_ONCE(anon_vma->root);
	list_for_each_entry_rcu(ram, &tracked, node)
		if (ram->addr)
			note_areas(ram, root, index, nr);
}

/* So many pages of one folio, from this one on. */
static void note_pages(struct folio *folio, struct page *page, u64 nr)
{
	struct address_space *mapping = READ_ONCE(folio->mapping);
	u64 index = godwit_page_pgoff(folio, page);
	struct godwit_ram *ram;

	if (((unsigned long)mapping & FOLIO_MAPPING_FLAGS) == FOLIO_MAPPING_ANON)
		note_private(folio, (unsigned long)mapping, index, nr);
	/* Other tags in the low bits of the pointer match no RAM file. */
	if (!mapping)
		return;
	list_for_each_entry_rcu(ram, &tracked, node)
		if (ram->mapping == mapping)
			godwit_ledger_note(ram, GODWIT_ROW_BLOCK, index, nr);
}

/*
 * A segment may span many pages, which lie next to each other in memory but perhaps not in one
 * folio. Notes are by folio: a segment in huge pages has thousands of pages, and each clone of its
 * bio comes by all of them again (note_clone()), in interrupts whose number a guest's reads decide.
 * A segment in base pages, which are as contiguous only by chance, still costs a note a page.
 */
static void note_bvec(const struct bio_vec *bv)
{
	/* vmemmap: x86 has no other model */
	struct page *page = bv->bv_page + (bv->bv_offset >> PAGE_SHIFT);
	u64 n, nr = DIV_ROUND_UP((u64)offset_in_page(bv->bv_offset) + bv->bv_len, PAGE_SIZE);

	for (; nr; nr -= n, page += n) {
		struct folio *folio = page_folio(page);

		n = clamp_t(u64, folio_nr_pages(folio) - folio_page_idx(folio, page), 1, nr);
		note_pages(folio, page, n);
	}
}

static void on_rq_complete(void *data, struct request *rq, blk_status_t error,
			   unsigned int nr_bytes)
{
	struct req_iterator iter;
	struct bio_vec bv;

	if (op_is_write(req_op(rq)) || !rq->bio || !godwit_row_on(GODWIT_ROW_BLOCK))
		return;
	rcu_read_lock();
	/*
	 * By iterator: split and cloned bios have no vector of their own. What has not
	 * arrived yet comes again.
	 */
	rq_for_each_segment(bv, rq, iter)
		note_bvec(&bv);
	rcu_read_unlock();
}

/*
 * A clone has no vector of its own: it shares that of the bio that it was made of, which ends after
 * it. Nothing remembers where in the vector the clone began. But its iterator began there, has come
 * by each entry before the one at which it stands (a driver spends it or leaves it alone), and ends
 * where the clone ends: all that the clone has read lies before that end. What its siblings read
 * may count with it.
 */
static void note_clone(const struct bio *bio)
{
	struct bvec_iter iter, start = bio->bi_iter;
	struct bio_vec bv;
	unsigned int i;

	for (i = 0; i < start.bi_idx; i++)
		note_bvec(&bio->bi_io_vec[i]);
	/* And the one at which it stands: there is none where nothing of it is done or left. */
	start.bi_size += start.bi_offset;
	start.bi_offset = 0;
	for_each_bvec(bv, bio->bi_io_vec, iter, start)
		note_bvec(&bv);
}

static void on_bio_complete(void *data, struct request_queue *q, struct bio *bio)
{
	bool shares = bio_op(bio) == REQ_OP_READ && bio_flagged(bio, BIO_CLONED);
	unsigned int i;

	if (op_is_write(bio_op(bio)) || !godwit_row_on(GODWIT_ROW_BLOCK))
		return;
	rcu_read_lock();
	/* The whole vector: the iterator is spent by now. */
	for (i = 0; i < bio->bi_vcnt; i++)
		note_bvec(&bio->bi_io_vec[i]);
	/*
	 * btrfs submits clones only (6.1), or splits some off that may end last, and ends the
	 * reader's bio itself, untraced.
	 */
	if (shares && !bio->bi_vcnt)
		note_clone(bio);
	rcu_read_unlock();
}

static void find_tracepoint(struct tracepoint *tp, void *unused)
{
	if (!strcmp(tp->name, "block_rq_complete"))
		rq_complete = tp;
	if (!strcmp(tp->name, "block_bio_complete"))
		bio_complete = tp;
}

static int probes_on(void)
{
	int r;

	/*
	 * Registering takes any pointer: a kernel whose tracepoints have other
	 * arguments must not compile.
	 */
	check_trace_callback_type_block_rq_complete(on_rq_complete);
	check_trace_callback_type_block_bio_complete(on_bio_complete);
	for_each_kernel_tracepoint(find_tracepoint, NULL);
	/* A kernel without tracepoints cannot tell us: do not pretend. */
	if (!rq_complete || !bio_complete)
		return -EOPNOTSUPP;
	r = tracepoint_probe_register(rq_complete, on_rq_complete, NULL);
	if (r)
		return r;
	r = tracepoint_probe_register(bio_complete, on_bio_complete, NULL);
	if (r)
		tracepoint_probe_unregister(rq_complete, on_rq_complete, NULL);
	return r;
}

static void probes_off(void)
{
	tracepoint_probe_unregister(rq_complete, on_rq_complete, NULL);
	tracepoint_probe_unregister(bio_complete, on_bio_complete, NULL);
	tracepoint_synchronize_unregister();
}

/* The session that tracks some of the RAM of s; 0: none does. */
static u32 tracker_of(const struct godwit_session *s)
{
	const struct godwit_ram *ram;
	unsigned int i;

	lockdep_assert_held(&block_lock);
	list_for_each_entry(ram, &tracked, node)
		for (i = 0; i < s->nr_rams; i++)
			if (godwit_ram_overlaps(ram, s->rams[i],
						max_t(unsigned int, ram->page_shift, PMD_SHIFT)))
				return ram->session_id;
	return 0;
}

/**
 * godwit_block_track() - note reads into the session's RAM from now on
 * @owner: on -EBUSY: which session has some of it
 *
 * A file, or a range, has one session: dirty bits are taken by the first sweep that finds them, so
 * of two sessions each would miss what the other one has taken. Ranges that share a huge page share
 * its bit.
 */
int godwit_block_track(struct godwit_session *s, u32 *owner)
{
	unsigned int i;
	int r;

	mutex_lock(&block_lock);
	*owner = tracker_of(s);
	r = *owner ? -EBUSY : 0;
	if (!r && !sessions)
		r = probes_on();
	if (!r) {
		sessions++;
		for (i = 0; i < s->nr_rams; i++)
			list_add_rcu(&s->rams[i]->node, &tracked);
		s->tracked = true;
	}
	mutex_unlock(&block_lock);
	return r;
}

void godwit_block_untrack(struct godwit_session *s)
{
	unsigned int i;

	mutex_lock(&block_lock);
	if (s->tracked) {
		for (i = 0; i < s->nr_rams; i++)
			list_del_rcu(&s->rams[i]->node);
		if (!--sessions)
			probes_off();
		s->tracked = false;
		/* The RAM files are freed later, without a grace period of their own. */
		synchronize_rcu();
	}
	mutex_unlock(&block_lock);
}
