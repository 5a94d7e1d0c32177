// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which mappings are watched: each mm that maps RAM files has our notifier, with the spans of it
 * that do. Sweeps find them; what the notifiers note of them is in unmap.c.
 */
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "compat.h"
#include "internal.h"
#include "ledger/watch.h"

#define SPANS_MAX	4096	/* of all watches of a session; 96 bytes each */
#define REGISTER_WAIT_NS	(200 * NSEC_PER_MSEC)

static struct godwit_watch *find_watch(struct godwit_session *s, struct mm_struct *mm)
{
	struct godwit_watch *w;

	list_for_each_entry(w, &s->watches, node)
		if (w->mm == mm)
			return w;
	return NULL;
}

/* A sweep begins. */
void godwit_watch_begin(struct godwit_session *s)
{
	s->sweeps++;
	s->wait_ns = REGISTER_WAIT_NS;
}

/*
 * A process that maps the file may keep us waiting for as long as it likes. Before START that is
 * waited for. A harvest, which may be the last one, with the guest stopped, waits for
 * REGISTER_WAIT_NS, of however many processes, and then fails with -EAGAIN: the guest runs on, and
 * the next harvest tries again.
 */
static int wait_a_bit(struct godwit_session *s)
{
	u64 began_ns = ktime_get_ns();

	if (s->state == GODWIT_STATE_STARTED && !s->wait_ns)
		return -EAGAIN;
	usleep_range(1000, 2000);
	s->wait_ns -= min(s->wait_ns, ktime_get_ns() - began_ns);
	return 0;
}

static int lock_for_watch(struct godwit_session *s, struct mm_struct *mm)
{
	if (s->state != GODWIT_STATE_STARTED) {
		mmap_write_lock(mm);
		return 0;
	}
	while (!down_write_trylock(&mm->mmap_lock)) {
		int r = wait_a_bit(s);

		if (r)
			return r;
	}
	/* As mmap_write_lock() does, of which there is no variant that tries. */
	mm_lock_seqcount_begin(mm);
	return 0;
}

/*
 * A fork that fails leaves an mm that no process gets. From Linux 6.8 on, until newer ones clear it
 * first, such an mm is unlocked with a copy of its parent's tree of VMAs, in which an entry that is
 * no VMA marks how far the fork has come: behind it are VMAs of the parent. Those of ours that are
 * before it can be found by the file, and our reference keeps the mm from being torn down. But to
 * register a notifier locks all that the tree has. The mark is set before the mmap_lock is let go,
 * and none comes later. (MMF_UNSTABLE does not tell: where it is set then, it is also set on what
 * the OOM killer reaps, through which a thread that is not dead yet may still store.)
 */
static bool is_half_made(struct mm_struct *mm)
{
	VMA_ITERATOR(vmi, mm, 0);
	struct vm_area_struct *vma;

	lockdep_assert_held_write(&mm->mmap_lock);
	for_each_vma(vmi, vma)
		if (xa_is_zero(vma))
			return true;
	return false;
}

/* -ESRCH: it is half made; -EAGAIN: see wait_a_bit(). */
static int register_watch(struct godwit_watch *w)
{
	int r = lock_for_watch(w->s, w->mm);

	if (r)
		return r;
	r = is_half_made(w->mm) ? -ESRCH : __mmu_notifier_register(&w->mn, w->mm);
	mmap_write_unlock(w->mm);
	return r;
}

/*
 * What has failed to fork drops its mm next. Until then its mappings are news to each look, and
 * where they are more than NEWS_MAX a sweep would look again without end: so -ESRCH is not said
 * before they are for note_leaving().
 */
static int wait_until_left(struct godwit_session *s, struct mm_struct *mm)
{
	while (atomic_read(&mm->mm_users)) {
		int r = wait_a_bit(s);

		if (r)
			return r;
	}
	return -ESRCH;
}

/* ERR_PTR: -ESRCH: no thread has the mm, or will have; else what register_watch() says. */
static struct godwit_watch *new_watch(struct godwit_session *s, struct mm_struct *mm)
{
	struct godwit_watch *w = kzalloc(sizeof(*w), GFP_KERNEL);
	int r;

	if (!w)
		return ERR_PTR(-ENOMEM);
	spin_lock_init(&w->lock);
	INIT_LIST_HEAD(&w->spans);
	w->s = s;
	w->mm = mm;
	w->began = 1;
	w->mn.ops = &godwit_unmap_ops;
	if (!mmget_not_zero(mm)) {
		kfree(w);
		return ERR_PTR(-ESRCH);
	}
	r = register_watch(w);	/* holds mm_count until unregistered */
	/* The last one tears the mm down, and waits for its aio: not here, under session->lock. */
	mmput_async(mm);
	if (r == -ESRCH)
		r = wait_until_left(s, mm);
	if (r) {
		kfree(w);
		return ERR_PTR(r);
	}
	list_add_tail(&w->node, &s->watches);
	return w;
}

/* The VM's own mm is watched from ATTACH on: its release ends the session. */
int godwit_watch_vm(struct godwit_session *s)
{
	struct godwit_watch *w = new_watch(s, s->mm);

	if (IS_ERR(w))
		return PTR_ERR(w) == -ESRCH ? -EOWNERDEAD : PTR_ERR(w);
	return 0;
}

/* Is the whole span watched as it is? Then this sweep has seen it. Under session->lock; spins. */
bool godwit_watch_knows(struct godwit_session *s, struct mm_struct *mm,
			const struct godwit_span *span)
{
	struct godwit_watch *w = find_watch(s, mm);
	struct godwit_span *known;
	bool found = false;

	if (!w)
		return false;
	spin_lock(&w->lock);
	list_for_each_entry(known, &w->spans, node)
		if (known->ram == span->ram &&
		    known->start <= span->start && known->end >= span->end &&
		    known->pgoff + ((span->start - known->start) >> PAGE_SHIFT) == span->pgoff) {
			known->seen = span->seen;
			found = true;
		}
	spin_unlock(&w->lock);
	return found;
}

/*
 * How many invalidations of the VM's mm ever began; 0: one is under way. Two calls with the same
 * answer, which is not 0: none was under way in between.
 */
u64 godwit_watch_events(struct godwit_session *s)
{
	struct godwit_watch *w = find_watch(s, s->mm);
	u64 events = 0;

	if (!w)
		return 0;
	spin_lock(&w->lock);
	if (!w->in_flight)
		events = w->began;
	spin_unlock(&w->lock);
	return events;
}

/* What note_gone() has noted of private RAM since it was taken last; false: nothing. */
bool godwit_watch_take_gone(struct godwit_session *s, const struct godwit_ram *ram,
			    unsigned long *start, unsigned long *end)
{
	struct godwit_watch *w = find_watch(s, s->mm);
	struct godwit_span *span;
	bool any = false;

	if (!w)
		return false;
	spin_lock(&w->lock);
	list_for_each_entry(span, &w->spans, node) {
		if (span->ram != ram || !span->gone_end)
			continue;
		*start = span->gone_start;
		*end = span->gone_end;
		span->gone_end = 0;
		any = true;
	}
	spin_unlock(&w->lock);
	return any;
}

/*
 * Watches one more span. 0 also for an mm that is exiting, or half made: no thread stores through
 * it any more, and the caller counts the span as written.
 */
int godwit_watch_add(struct godwit_session *s, struct mm_struct *mm, const struct godwit_span *span)
{
	struct godwit_span *copy;
	struct godwit_watch *w;

	if (s->nr_spans == SPANS_MAX)
		return -ENOSPC;
	copy = kmemdup(span, sizeof(*span), GFP_KERNEL);
	if (!copy)
		return -ENOMEM;
	w = find_watch(s, mm);
	if (!w)
		w = new_watch(s, mm);
	if (IS_ERR(w)) {
		kfree(copy);
		return PTR_ERR(w) == -ESRCH ? 0 : PTR_ERR(w);
	}
	spin_lock(&w->lock);
	list_add_tail(&copy->node, &w->spans);
	spin_unlock(&w->lock);
	s->nr_spans++;
	return 0;
}

/* Takes spans that the last sweep has not seen out of the watch. Returns whether any is left. */
static bool drop_spans(struct godwit_session *s, struct godwit_watch *w, struct list_head *dropped)
{
	struct godwit_span *span, *next;
	bool left;

	spin_lock(&w->lock);
	list_for_each_entry_safe(span, next, &w->spans, node) {
		if (w->in_flight || span->owed_end || span->seen == s->sweeps)
			continue;
		list_move(&span->node, dropped);
		s->nr_spans--;
	}
	left = !list_empty(&w->spans);
	spin_unlock(&w->lock);
	return left;
}

/**
 * godwit_watch_prune() - forget mappings that are gone, and processes that have none left
 *
 * Else mappings that come and go would fill the table in time. After a sweep that found a span's
 * VMA gone, its entries are gone too, and the invalidation that took them has been noted if it has
 * ended; while one is in flight, the watch keeps all of its spans, and it keeps those that owe.
 * Context: under session->lock, after godwit_unmap_in_flight().
 */
void godwit_watch_prune(struct godwit_session *s)
{
	struct godwit_span *span, *next_span;
	struct godwit_watch *w, *next;
	LIST_HEAD(dropped);

	list_for_each_entry_safe(w, next, &s->watches, node) {
		if (drop_spans(s, w, &dropped) || w->mm == s->mm)
			continue;
		mmu_notifier_unregister(&w->mn, w->mm);
		list_del(&w->node);
		kfree(w);
	}
	list_for_each_entry_safe(span, next_span, &dropped, node)
		kfree(span);
}

/* Returns how many there are; max are stored. An mm that no thread has any more is left out. */
unsigned int godwit_watch_mappers(struct godwit_session *s, struct godwit_mapper *mappers,
				  unsigned int max)
{
	unsigned int n = 0;
	struct godwit_watch *w;

	list_for_each_entry(w, &s->watches, node) {
		bool maps;

		spin_lock(&w->lock);
		maps = !list_empty(&w->spans);
		spin_unlock(&w->lock);
		if (!maps || !atomic_read(&w->mm->mm_users))
			continue;
		if (n < max)
			mappers[n] = (struct godwit_mapper) { .mm = w->mm };
		n++;
	}
	return n;
}

void godwit_watch_free(struct godwit_session *s)
{
	struct godwit_span *span, *next_span;
	struct godwit_watch *w, *next;

	list_for_each_entry_safe(w, next, &s->watches, node) {
		/* Waits for callbacks under way; may call release a first time. */
		mmu_notifier_unregister(&w->mn, w->mm);
		list_for_each_entry_safe(span, next_span, &w->spans, node)
			kfree(span);
		list_del(&w->node);
		kfree(w);
	}
	s->nr_spans = 0;
}
