/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A KVM on a CPU of Intel's, as far as its dirty log goes, and the guest.
 *
 * A store through a translation that a vCPU's TLB holds as dirty changes memory and nothing else. Otherwise
 * the CPU walks the page tables: if the entry's dirty bit D is clear, it sets D and puts the page into the
 * vCPU's PML buffer, for which a full buffer has to be emptied first, by an exit. At every exit KVM moves
 * the buffer's pages into the slot's log. So the bit of a store comes to the log some time after the store.
 *
 * KVM_CLEAR_DIRTY_LOG kicks all vCPUs, without waiting for them; then, word by word, it takes bits out of
 * the log and clears D for those that it found; then it flushes the TLBs, for which it waits until every
 * vCPU has left the guest.
 *
 * All runs in one thread: sim_step(), called between any two steps of the code under test, lets vCPUs do
 * something or not. One RAM file, and slots that show stretches of it, at any alignment, some pages of it twice.
 */
#ifndef KVM_SIM_H
#define KVM_SIM_H

#include <linux/kvm_host.h>

#include "internal.h"

#define SIM_SLOTS	6
#define SIM_VCPUS	4
#define SIM_PML		512	/* pages in a buffer, at most */
#define SIM_TLB		24

/* What is wrong with this KVM, or with the helper: each but the first two must lose stores. */
enum sim_variant {
	SIM_RIGHT,
	SIM_NO_KICK,		/* CLEAR leaves buffers as they are; vCPUs' own exits empty them */
	SIM_NO_FLUSH,		/* CLEAR leaves stale translations */
	SIM_NO_REARM,		/* CLEAR takes bits and leaves D */
	SIM_BUFFER_LOST,	/* a full buffer begins anew */
	SIM_HARVEST_EARLY,	/* buffers of stopped vCPUs are emptied after the last harvest */
	SIM_READ_EARLY,		/* the helper reads a page and clears it then */
	SIM_VARIANTS,
};

struct sim_vcpu {
	bool stopped;
	unsigned int nr_pml, nr_tlb;
	struct sim_at {
		unsigned int slot;
		u64 page;
	} pml[SIM_PML], tlb[SIM_TLB];
};

/**
 * struct sim
 * @write_protect: no PML, as on AMD: a store to a clean page exits, and its bit is logged first
 * @rarely: one step in so many lets a vCPU do something
 * @armed: by slot, the D bits
 */
struct sim {
	u64 random;
	enum sim_variant variant;
	bool write_protect;
	unsigned int pml_size, rarely;
	u64 ram_pages;
	u32 *memory, last_value;
	unsigned int nr_slots, nr_vcpus;
	unsigned long *dirty_bit[SIM_SLOTS];
	struct kvm_memory_slot slot[SIM_SLOTS];
	struct sim_vcpu vcpu[SIM_VCPUS];

	/* What dirtylog.c sees. */
	struct kvm kvm;
	struct godwit_ram ram;
	struct godwit_slot view_slot[SIM_SLOTS];
	struct godwit_piece piece[SIM_SLOTS];
	struct godwit_session session;
};

/*
 * By the seed; large: 18 GiB, longer than any limit of dirtylog.c. Logs are on, all pages are marked, vCPUs
 * run.
 */
void sim_begin(struct sim *sim, u64 seed, enum sim_variant variant, bool large);
void sim_end(struct sim *sim);
/* Below n. */
u64 sim_pick(struct sim *sim, u64 n);
/* Every vCPU leaves the guest for good. */
void sim_stop(struct sim *sim);
/* KVM empties all vCPUs' buffers. */
void sim_drain(struct sim *sim);

#endif /* KVM_SIM_H */
