// SPDX-License-Identifier: GPL-2.0-only
/*
 * The harvest: every row of the ledger into one bitmap.
 *
 * Why no write is missed. Take a write to page P, by any writer, after the helper's last CLEAR of
 * P, and the first harvest H that begins after it. Then H reports P:
 *
 *	vCPU		P's bit in KVM's bitmap is cleared only by KVM_CLEAR_DIRTY_LOG, for pages
 *			that the helper is about to read (CLEAR). KVM write-protects P and flushes
 *			TLBs before that ioctl returns, so a later store faults and sets the bit
 *			again. With Intel's PML the bit of a store may sit in a vCPU's buffer until
 *			its next exit: it comes with a later harvest, and the last one is taken when
 *			vCPUs have stopped (selftests/model plays that; the lab has no PML).
 *	mapping		The store set the dirty bit of the entry it went through (private RAM: the
 *			VMM's own; each new entry that may be stored through is born dirty, but for
 *			what a read brings back from swap: writable and clean on Linux 6.12). Either
 *			the entry is still there: the sweep takes the bit, and flushes TLBs, so that
 *			no CPU keeps on writing through a translation it believes to be marked
 *			already. Or the entry went away, see unmap. The flush comes before H
 *			returns, hence before the helper reads P.
 *	unmap		The notifier noted P when the invalidation ended; if it has not ended yet,
 *			it is in flight and H counts its range. This is looked at after the sweep:
 *			what the sweep did not find any more has been noted, is owed (unmap.c) or
 *			in flight by then. The kernel may flush after the notifier's end (reclaim
 *			and page migration do, a batch at a time), so a CPU may go on storing to P
 *			through what it has kept, and no entry is there to tell. Hence H flushes
 *			once more if anything was noted, before the helper reads P; what is stored
 *			after that walks, faults, and sets the bit of an entry that is new. And it
 *			flushes if a mapping is new: no watch has noted what was unmapped from it
 *			earlier, and the flush for that may not have come yet.
 *	block		The completion noted P before the reader of the block device was told.
 *	change		A slot or mapping that came or went counts as written throughout. So does,
 *			where slots have changed, what no slot of that address space shows: it may
 *			have been written through one that came and went between two looks.
 *
 * The mapping sweep reads page tables of mms that we know; a mapping that we did not know yet
 * counts as written throughout, once it is watched, and so does one that was moved. START counts
 * everything as written, and flushes when all mappings are watched, for the same reason.
 *
 * What is not seen:
 *
 *	- Stores through a mapping that is made after the look of one sweep and gone before the look
 *	  of the next, by whatever process, one that is watched already included. Nothing tells a
 *	  module of a new mapping; a watch hears that a range of addresses goes, which may have
 *	  shown any file.
 *	- Stores of a vCPU to a page that one slot shows all the time, through a second slot of the
 *	  same address space that comes and goes between the looks of two harvests, where
 *	  manual_dirty_log_protect is 3 (slots.c says why). No VMM shows RAM twice for a moment.
 *	- write(2) and its kin on the file.
 *	- Stores of the kernel through a page that it has pinned, whose entry is there and clean:
 *	  process_vm_writev(), ptrace(), /proc/PID/mem, registered buffers. What has to be faulted
 *	  in for that is seen. Nor what a device writes to pinned pages. MAPPERS and NEXT_PINNED are
 *	  there to tell which processes map the RAM, and which pages are pinned.
 *	- Events that KVM delivers to a guest for which it emulates Xen: into the guest's vcpu_info,
 *	  by a mapping of the kernel's own, and no bit is set. The helper refuses such VMs.
 *	- Zeros that fallocate() writes into a part of a huge page of hugetlbfs, which stays mapped.
 *	- A block device's data that is changed in place after its request has ended, by a file
 *	  system on top: decryption by the block layer's fallback (fscrypt with inlinecrypt), a
 *	  rebuild of btrfs RAID5. The last harvest is taken when the VMM has drained its I/O, so
 *	  only what was noted by an earlier one, and changed after that, is missed.
 *	- Zeros that a punch writes into a part of a huge page of tmpfs which it then cannot split,
 *	  as somebody holds the page. They come after the unmapping, without an entry, and leave no
 *	  hole to be found at the end; where the harvest that reports the unmapping, and the read,
 *	  come before them, the caller keeps what was there.
 *	- A store to a transparent huge page in the instant in which madvise(MADV_COLD) ages it, on
 *	  kernels that put back what they had read of its entry before they took it.
 *
 * VMMs do none of these to their guest's RAM, except the last but one on such file systems;
 * vhost-user backends, which map it anew when memory is plugged, keep what they have mapped.
 *
 * What H does not look at cannot hold such a write: a word of KVM's log that reads 0 gets its bits
 * later; a page table that is absent is made later; no flush is needed where no bit was taken,
 * nothing noted and no mapping new, since each harvest flushes for what it took; and a note sets
 * its stripe in ledger.c before the writer is told, whichever note had set the bit.
 *
 * The order within H does not matter but for "in flight after sweep": each source is read once, and
 * a write that comes after it was read is the next harvest's.
 */
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/kvm_host.h>

#include "internal.h"
#include "trace.h"

/*
 * Did a slot come or go behind the view's back, so that its log may have been read without what the
 * slot before it had? A slot that is made anew starts with all bits set where QEMU's setting is in
 * force, and then whatever was read has all that was written; else it starts with none.
 */
static bool log_was_lost(struct godwit_session *s)
{
	return s->kvm->manual_dirty_log_protect != 3 &&
	       godwit_slots_changed(s, s->view.generation);
}

/*
 * Brings the view up to date and reads KVM's log; begins again while the VMM
 * changes slots meanwhile.
 */
static int refresh_and_harvest(struct godwit_session *s, u64 *pages)
{
	u64 since = ktime_get_ns();
	struct godwit_scratch sc = {};
	int tries, r;

	r = godwit_borrow_mm(s);
	if (r)
		return r;
	for (tries = 0; tries < 20; tries++) {
		r = godwit_slots_refresh(s, &sc, &pages[GODWIT_ROW_CHANGE]);
		godwit_stats_spent(s, GODWIT_PHASE_SLOTS, &since);
		godwit_pause_in_harvest(GODWIT_PAUSE_SLOTS_SEEN);
		if (!r)
			r = godwit_dirtylog_harvest(s, &pages[GODWIT_ROW_VCPU]);
		if (!r && log_was_lost(s))
			r = -EAGAIN;
		godwit_stats_spent(s, GODWIT_PHASE_VCPU, &since);
		if (r != -EAGAIN)
			break;
	}
	godwit_scratch_unmap(&sc);
	godwit_return_mm(s);
	return r;
}

static int harvest_ledger(struct godwit_session *s, u64 *pages)
{
	u64 since = ktime_get_ns();
	u32 changes = s->changes;
	bool noted = false;
	unsigned int i;
	int r;

	r = godwit_mapping_sweep(s, false, pages);
	godwit_stats_spent(s, GODWIT_PHASE_MAPPING, &since);
	/* Even after a failure: what was found is the helper's, and must not be lost here. */
	godwit_unmap_in_flight(s);
	for (i = 0; i < s->nr_rams; i++)
		noted |= godwit_ledger_collect(s->rams[i], pages);
	/*
	 * Behind the notes, as the unmapping of a page that is noted is over, or noted again when
	 * it is: see "unmap" above. A note of the block row alone needs no flush; it is not told
	 * apart. Behind the watch of a mapping that is new, whose pages count as written whether
	 * their bits are new or not: so its count of pages would not do.
	 */
	if (noted || s->changes != changes)
		godwit_flush();
	if (!r)
		godwit_watch_prune(s);
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
	r = refresh_and_harvest(s, h->pages);
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

#define PUNCH_WAIT_MS	1000

/*
 * A hole is punched in two steps: pages are unmapped, which the watches note, then dropped. A
 * hole that was between the two when the watches came would never be reported: its pages
 * would be read as they were. A task that punches a hole holds, throughout, the lock of the
 * inode that has the pages. We do not queue for it, as a VMM may hold it for ever (a write of
 * what a userfaultfd withholds).
 */
static int wait_for_punches(struct godwit_session *s)
{
	unsigned int i, ms = 0;

	for (i = 0; i < s->nr_rams; i++) {
		struct rw_semaphore *lock;

		if (s->rams[i]->addr)
			continue;	/* read through entries, not behind them */
		lock = &s->rams[i]->mapping->host->i_rwsem;
		for (; !down_read_trylock(lock); ms++) {
			if (ms == PUNCH_WAIT_MS)
				return -EINPROGRESS;
			usleep_range(1000, 2000);
		}
		up_read(lock);
	}
	return 0;
}

#define OWNER_WAIT_MS	1000
#define OWNER_TRY_MS	5

/*
 * The files are ours, and reads into them noted, from here on. A session that retires lets go of
 * its own as the first thing, when its delay is over: that is hurried and waited for.
 */
static int own_rams(struct godwit_session *s)
{
	unsigned int ms;
	u32 owner;
	int r;

	for (ms = 0; ; ms += OWNER_TRY_MS) {
		r = godwit_block_track(s, &owner);
		if (r != -EBUSY || ms >= OWNER_WAIT_MS || !godwit_session_hurry(owner))
			return r;
		godwit_session_pause(s, OWNER_TRY_MS);
	}
}

static int switch_logs_on(struct godwit_session *s)
{
	struct godwit_scratch sc = {};
	u64 ignored = 0;
	int r;

	godwit_slots_settle(s, 0);
	r = godwit_borrow_mm(s);
	if (r)
		return r;
	r = godwit_slots_refresh(s, &sc, &ignored);
	godwit_scratch_unmap(&sc);
	godwit_return_mm(s);
	return r ?: s->view.nr_shown ? 0 : -ENOENT;
}

/*
 * The ledger goes on before the sweep that throws away the past (dirty bits from before START say
 * nothing: every page counts as written anyway), so that nothing falls between.
 */
int godwit_job_start(struct godwit_session *s, void *arg)
{
	struct godwit_start *a = arg;
	u64 ignored[GODWIT_ROWS] = {};
	unsigned int i;
	int r;

	if (s->state == GODWIT_STATE_STARTED)
		return -EBUSY;
	if (s->state != GODWIT_STATE_ATTACHED || !s->nr_rams)
		return -EINVAL;
	r = own_rams(s);
	if (r)
		return r;
	r = switch_logs_on(s);
	if (!r)
		r = godwit_mapping_sweep(s, true, ignored);
	/* What was unmapped before its mapping was watched, with a flush that has not come yet. */
	if (!r)
		godwit_flush();
	if (!r)
		r = wait_for_punches(s);
	if (r) {
		godwit_block_untrack(s);	/* more RAM files may come before the next START */
		return r;
	}
	for (i = 0; i < s->nr_rams; i++)
		godwit_ram_mark(s->rams[i], 0, s->rams[i]->npages);
	s->changes = 0;
	WRITE_ONCE(s->state, GODWIT_STATE_STARTED);
	a->memslots = s->view.nr_shown;
	return 0;
}

int godwit_job_clear(struct godwit_session *s, void *arg)
{
	u64 since = ktime_get_ns();
	struct godwit_scratch sc = {};
	int r;

	if (s->state != GODWIT_STATE_STARTED)
		return -ENODATA;
	r = godwit_borrow_mm(s);
	if (!r) {
		r = godwit_dirtylog_clear(s, &sc, arg);
		godwit_scratch_unmap(&sc);
		godwit_return_mm(s);
	}
	s->stats.clears++;
	godwit_stats_spent(s, GODWIT_PHASE_CLEAR, &since);
	trace_godwit_clear(s, arg, r);
	return r;
}
