// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ledger row "mapping", second half: the translations that CPUs keep.
 *
 * What the CPU promises: a store needs a translation in the TLB that says "dirty". A CPU that has
 * none walks the page tables, sets the entry's dirty bit in memory with a locked access, provided
 * that the entry still allows the store, and keeps the translation. From then on it stores without
 * looking at memory again, until the translation is flushed.
 *
 * sweep.c takes the dirty bit out of the entry behind the CPUs' backs, so there is a time when the
 * entry is clean and a CPU stores all the same:
 *
 *	   lock      bit taken, page reported        flush of all CPUs       unlock
 *	----|----------------|------------------------------|------------------|---->
 *	                     |<- stores that set no bit ->  |
 *
 * Such a store misses nothing for us: its page is reported by this harvest, and the helper reads it
 * after the flush. After the flush each store walks again and sets the bit for the next harvest.
 * A sweep that took no bit needs no flush: each flushed what it cleaned, so nothing is left over.
 *
 * It could lose data for others. Reclaim decides by the bit: it puts the flush behind the unmapping
 * off to the end of a batch (should_defer_flush()), and flushes before it writes a page out only if
 * an entry was dirty (try_to_unmap_flush_dirty()). It relies on what the first paragraph says:
 * through a translation that is not marked dirty no store comes without a walk, and the walk finds
 * no entry. One that has outlived its dirty bit breaks this: the store goes to a page whose copy is
 * in swap already. So from the first bit that is taken until the flush rmap's lock is held for
 * writing: of a file its i_mmap_rwsem, of private memory the rwsem of the anon_vma's root. All that
 * comes through rmap takes it for reading, and finds entries that are either dirty or flushed.
 *
 * What does not come through rmap flushes whether the entry was dirty or not: mprotect, mremap,
 * NUMA hints and the collapse of huge pages at once, zapping (munmap, exit, truncation,
 * MADV_DONTNEED) before it lets go of the page. Zapping does so earlier for a dirty entry, and in
 * between reclaim may write the page out: what a thread stores to an address that another one is
 * zapping at that moment may get lost, and that is all. That a page is dirty its folio knows, which
 * is marked before the entry is cleaned.
 *
 * In private memory there is more. What takes mmap_lock for writing (mprotect, mremap, fork,
 * munmap, collapse) is kept out, as the sweep holds that too. KSM flushes whatever the bit says,
 * and compares afterwards; its zero page uses the dirty bit as its mark, and is a special entry,
 * which the walk passes over. MADV_FREE makes the folio clean and flushes if the entry is dirty or
 * accessed, so that a store that follows marks it again. Of an entry that is neither it does not
 * flush, the store marks nothing, and reclaim, which comes after the flush, throws the page away
 * with the store. So if MADV_FREE may have come before the flush, all of its pages there are marked
 * dirty after it, while rmap is still kept out, and are kept. (To set the accessed bit before the
 * dirty one is taken would not do: an aging of pages, MGLRU's or DAMON's, takes it away again.)
 *
 * It is CPUs that are flushed. A device that shares the page tables, by an IOMMU with SVA, keeps
 * translations of its own that outlive the bit; user/vmm/devices.c refuses those that it knows.
 *
 * The time under the lock is bounded, see sweep.c. Nothing that is done there allocates or faults.
 */
#include <linux/smp.h>
#include <asm/invpcid.h>

#include "internal.h"

static void flush_cpu(void *unused)
{
	unsigned long flags, cr4;

	godwit_cpu_flushed();
	if (boot_cpu_has(X86_FEATURE_INVPCID)) {
		invpcid_flush_all();
		return;
	}
	/* Any change of CR4.PGE drops all translations, of all PCIDs, the global ones too. */
	local_irq_save(flags);
	asm volatile("mov %%cr4, %0" : "=r" (cr4) : : "memory");
	asm volatile("mov %0, %%cr4" : : "r" (cr4 ^ X86_CR4_PGE) : "memory");
	asm volatile("mov %0, %%cr4" : : "r" (cr4) : "memory");
	local_irq_restore(flags);
}

/* No CPU has a translation any more that it had before. Context: may sleep. */
void godwit_flush(void)
{
	if (godwit_row_on(GODWIT_SAFE_FLUSH))
		on_each_cpu(flush_cpu, NULL, 1);
}
