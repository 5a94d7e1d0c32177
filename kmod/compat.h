/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What older kernels lack. The code is written for the newest one; this is the only place
 * that asks for a version. What no version tells, Kbuild looks for.
 */
#ifndef GODWIT_COMPAT_H
#define GODWIT_COMPAT_H

#include <linux/hugetlb.h>
#include <linux/kvm_host.h>
#include <linux/mm.h>
#include <linux/pagemap.h>
#include <linux/version.h>
#include <net/genetlink.h>

/* 6.9 has folio batches in writeback.h, whatever their own header is called. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 9, 0)
#include <linux/pagevec.h>
#endif

/* 6.14, and stable releases of 6.12, count how often mmap_lock is taken for writing. */
#ifndef GODWIT_HAS_MM_LOCK_SEQCOUNT
static inline void mm_lock_seqcount_begin(struct mm_struct *mm)
{
}
#endif

/* 6.8 made the number of KVM address spaces a property of the VM. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 8, 0)
#define kvm_arch_nr_memslot_as_ids(kvm)	KVM_ADDRESS_SPACE_NUM
#define KVM_MAX_NR_ADDRESS_SPACES	KVM_ADDRESS_SPACE_NUM
#define kvm_arch_has_private_mem(kvm)	false
#endif

/* 6.3 has flags of a VMA set by functions. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 3, 0)
static inline void vm_flags_set(struct vm_area_struct *vma, unsigned long flags)
{
	vma->vm_flags |= flags;
}
#endif

/* Until 6.7 a hugetlbfs file's page cache was indexed in huge pages. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 7, 0)
static inline unsigned int godwit_hugetlb_index_shift(unsigned int page_shift)
{
	return page_shift - PAGE_SHIFT;
}

static inline pgoff_t godwit_page_pgoff(struct folio *folio, struct page *page)
{
	pgoff_t index = folio->index;

	if (folio_test_hugetlb(folio))
		index <<= folio_order(folio);
	return index + folio_page_idx(folio, page);
}
#else
static inline unsigned int godwit_hugetlb_index_shift(unsigned int page_shift)
{
	return 0;
}

static inline pgoff_t godwit_page_pgoff(struct folio *folio, struct page *page)
{
	return folio->index + folio_page_idx(folio, page);
}
#endif

/*
 * 6.6 made a shadow stack of an entry that is dirty and not writable. When it takes the right to
 * write away (mprotect, NUMA balancing) the dirty bit moves to a place that the CPU does not know.
 */
#ifndef _PAGE_DIRTY_BITS
#define _PAGE_DIRTY_BITS	_PAGE_DIRTY
#endif

/* mprotect, NUMA balancing, userfaultfd: see Kbuild. */
static inline bool godwit_pmd_modify_keeps_dirty(void)
{
#ifdef GODWIT_PMD_MODIFY_LOSES_DIRTY
	return false;
#else
	return true;
#endif
}

/* 6.17 wants to be told which workqueues are per CPU; before, all were that are not unbound. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 17, 0)
#define WQ_PERCPU	0
#endif

/* 6.6 gave dumps the same struct genl_info as requests. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 6, 0)
#define godwit_dump_attrs(cb)	(genl_dumpit_info(cb)->attrs)
#else
#define godwit_dump_attrs(cb)	(genl_info_dump(cb)->attrs)
#endif

/*
 * 6.7, and stable kernels since, let the module say which processes may listen. Before, any process
 * may: what it hears is process numbers.
 */
#ifdef GENL_MCAST_CAP_SYS_ADMIN
#define GODWIT_MCAST_ADMIN	.flags = GENL_MCAST_CAP_SYS_ADMIN
#else
#define GODWIT_MCAST_ADMIN
#endif

/* Until 7.3 the own pages of a private mapping of a file had the file's indexes. */
#if LINUX_VERSION_CODE < KERNEL_VERSION(7, 3, 0)
static inline pgoff_t vma_start_anon_pgoff(const struct vm_area_struct *vma)
{
	return vma->vm_pgoff;
}
#endif

/* 6.17 renamed what the low bits of folio->mapping say. */
#ifndef FOLIO_MAPPING_FLAGS
#define FOLIO_MAPPING_ANON	PAGE_MAPPING_ANON
#define FOLIO_MAPPING_FLAGS	PAGE_MAPPING_FLAGS
#endif

/* How much of the entry at which it stands an iterator has passed: see Kbuild. */
#ifdef GODWIT_HAS_BI_BVEC_DONE
#define bi_offset	bi_bvec_done
#endif

/* 6.4 makes vhost's workers threads of the process. */
#ifndef PF_USER_WORKER
#define PF_USER_WORKER	0
#endif

/* 6.8 has guest_memfd. */
#ifndef KVM_MEM_GUEST_MEMFD
#define KVM_MEM_GUEST_MEMFD	0
#endif

#endif /* GODWIT_COMPAT_H */
