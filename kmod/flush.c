// SPDX-License-Identifier: GPL-2.0-only
/*
 * Ledger row "mapping", second half: the translations that CPUs keep. A CPU that holds a translation
 * as dirty writes on through it and never sets the bit again, so whoever has taken dirty bits flushes
 * the TLBs of all CPUs before anything is reported.
 */
#include <linux/smp.h>
#include <asm/invpcid.h>

#include "internal.h"

static void flush_cpu(void *unused)
{
	unsigned long flags, cr4;

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
	if (godwit_row_on(GODWIT_ROW_FLUSH))
		on_each_cpu(flush_cpu, NULL, 1);
}
