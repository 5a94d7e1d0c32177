/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What KVM's log and the bitmaps must say, by the contract of <linux/godwit.h>: a second opinion on the vCPU row.
 * Each entry of the guest's table (a page of a slot) has a log of its own; where two slots show one page, both are cleared.
 */
#ifndef KST_MODEL_H
#define KST_MODEL_H

#include "layout.h"

#define MODEL_PAGES	2048	/* of a RAM file, at most */

struct model {
	const struct entry *entries;
	uint64_t nr;
	bool *logged;		/* by entry: written since it was re-armed */
	bool bit[LAYOUT_RAMS_MAX][MODEL_PAGES];		/* set in the helper's bitmap */
	uint32_t last[LAYOUT_RAMS_MAX][MODEL_PAGES][VCPUS_MAX];		/* what each vCPU has written there last */
};

void model_init(struct model *m, const struct entry *entries, uint64_t nr);
void model_free(struct model *m);
/* What vcpu_batch() with the same arguments does. */
void model_batch(struct model *m, unsigned int vcpu, uint32_t seed, uint32_t value, uint32_t count);
/* Returns how many bits the vCPU row finds. */
uint64_t model_harvest(struct model *m);
void model_clear(struct model *m, unsigned int ram, uint64_t first, uint64_t npages);
/* The helper has taken this page over. */
void model_take(struct model *m, unsigned int ram, uint64_t page);
/*
 * A proof, before model_compare(), while guests stand still: their RAM holds what they were told to write.
 * Only they write there, but the module handles the translations that they write through.
 */
void model_check_guest(const struct model *m, const struct stage *st);
/*
 * Bits that are missing, and bits that nothing accounts for; the first of each is printed, with what KVM's
 * own log says of it. Nothing can be tested with this stage then.
 */
void model_compare(const struct model *m, struct stage *st, uint64_t *missed, uint64_t *invented);

#endif /* KST_MODEL_H */
