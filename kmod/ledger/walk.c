// SPDX-License-Identifier: GPL-2.0-only
/*
 * The walk over the page tables of a part of a VMA, which the sweep of dirty bits and the search
 * for what is there share.
 *
 * The lock of the table's page (pmd_lock, and the lock of the page of entries) keeps it from being
 * split, collapsed or unshared under the walk; that the tables stay is the caller's part.
 */
#include <linux/hugetlb.h>
#include <linux/mm.h>

#include "compat.h"
#include "sweep.h"

/* Most entries are of no interest. */
static bool line_is_dull(const struct godwit_walk *w, const pte_t *pte)
{
	return !(godwit_line((const unsigned long *)pte) & w->mask);
}

static bool walk_ptes(struct godwit_walk *w, pmd_t *pmd, unsigned long addr, unsigned long end)
{
	pte_t *pte = (pte_t *)pmd_page_vaddr(*pmd) + pte_index(addr);

	for (; addr < end; addr += PAGE_SIZE, pte++) {
		pte_t entry;

		while (IS_ALIGNED(pte_index(addr), GODWIT_LINE_WORDS) &&
		       end - addr >= GODWIT_LINE_WORDS * PAGE_SIZE && line_is_dull(w, pte)) {
			addr += GODWIT_LINE_WORDS * PAGE_SIZE;
			pte += GODWIT_LINE_WORDS;
		}
		if (addr == end)
			break;
		entry = READ_ONCE(*pte);
		if (!(pte_val(entry) & w->mask) || (pte_present(entry) && pte_special(entry)))
			continue;
		if (!w->entry(w, (unsigned long *)pte, pte_present(entry) ? pte_page(entry) : NULL,
			      addr, PAGE_SIZE))
			return false;
	}
	return true;
}

/* The entries of a PMD that is a table. Its lock is held; the entries' lock may be the same one. */
static bool walk_table(struct godwit_walk *w, pmd_t *pmd, unsigned long addr, unsigned long end,
		       spinlock_t *pmd_ptl)
{
	spinlock_t *ptl = pte_lockptr(w->vma->vm_mm, pmd);
	bool more;

	if (ptl == pmd_ptl)
		return walk_ptes(w, pmd, addr, end);
	spin_lock_nested(ptl, SINGLE_DEPTH_NESTING);
	more = walk_ptes(w, pmd, addr, end);
	spin_unlock(ptl);
	return more;
}

/* One PMD's worth of addresses, [addr, end), or a part of it. */
static bool walk_pmd(struct godwit_walk *w, pmd_t *pmd, unsigned long addr, unsigned long end)
{
	spinlock_t *ptl = pmd_lock(w->vma->vm_mm, pmd);
	bool more = true;

	if (pmd_present(*pmd) && !pmd_leaf(*pmd))
		more = walk_table(w, pmd, addr, end, ptl);
	else if (pmd_val(*pmd) & w->mask)
		more = w->entry(w, (unsigned long *)pmd, pmd_present(*pmd) ? pmd_page(*pmd) : NULL,
				round_down(addr, PMD_SIZE), PMD_SIZE);
	spin_unlock(ptl);
	return more;
}

static bool walk_pmds(struct godwit_walk *w, pud_t *pud, unsigned long addr, unsigned long end)
{
	pmd_t *pmd = pmd_offset(pud, addr);
	bool hugetlb = is_vm_hugetlb_page(w->vma);
	unsigned long next;

	for (; addr < end; addr = next, pmd++) {
		next = pmd_addr_end(addr, end);
		/*
		 * No lock for what is not there: what comes now is written through after this walk
		 * began. But not of hugetlb: when such a page is moved, its entry is none from the
		 * flush until the migration entry is set, all under the lock.
		 */
		if ((hugetlb || !pmd_none(READ_ONCE(*pmd))) && !walk_pmd(w, pmd, addr, next))
			return false;
	}
	return true;
}

/* pud_present() does not know PROT_NONE, which keeps the page, and its dirty bit. */
static bool pud_has_page(pud_t pud)
{
	return pud_flags(pud) & (_PAGE_PRESENT | _PAGE_PROTNONE);
}

/* A 1 GiB hugetlbfs page. */
static bool walk_pud_leaf(struct godwit_walk *w, pud_t *pud, unsigned long addr)
{
	spinlock_t *ptl = &w->vma->vm_mm->page_table_lock;
	bool more = true;

	spin_lock(ptl);
	if ((pud_val(*pud) & w->mask) && (!pud_present(*pud) || pud_leaf(*pud)))
		more = w->entry(w, (unsigned long *)pud, pud_has_page(*pud) ? pud_page(*pud) : NULL,
				round_down(addr, PUD_SIZE), PUD_SIZE);
	spin_unlock(ptl);
	return more;
}

static bool is_gigantic(struct vm_area_struct *vma)
{
	return is_vm_hugetlb_page(vma) && huge_page_size(hstate_vma(vma)) >= PUD_SIZE;
}

bool godwit_walk(struct godwit_walk *w, unsigned long addr, unsigned long end)
{
	unsigned long next;
	bool more = true;

	for (; more && addr < end; addr = next) {
		pgd_t *pgd = pgd_offset(w->vma->vm_mm, addr);
		p4d_t *p4d;
		pud_t *pud, seen;

		/* pgd_addr_end() and its kin: no overflow at the top, never beyond the end. */
		next = pgd_addr_end(addr, end);
		if (pgd_none(*pgd))
			continue;
		next = p4d_addr_end(addr, end);
		p4d = p4d_offset(pgd, addr);
		if (p4d_none(*p4d))
			continue;
		next = pud_addr_end(addr, end);
		pud = pud_offset(p4d, addr);
		/* One look decides: a page of 1 GiB may come, go or be moved; see walk_pmds(). */
		seen = READ_ONCE(*pud);
		if (is_gigantic(w->vma))
			more = walk_pud_leaf(w, pud, addr);
		else if (pud_none(seen))
			continue;
		else if (!pud_present(seen) || pud_leaf(seen))
			more = walk_pud_leaf(w, pud, addr);
		else
			more = walk_pmds(w, pud, addr, next);
	}
	return more;
}
