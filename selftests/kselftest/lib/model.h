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
};

void model_init(struct model *m, const struct entry *entries, uint64_t nr);
void model_free(struct model *m);
/* What vcpu_batch() with the same arguments does. */
void model_batch(struct model *m, uint32_t seed, uint32_t count);
/* Returns how many bits the vCPU row finds. */
uint64_t model_harvest(struct model *m);
void model_clear(struct model *m, unsigned int ram, uint64_t first, uint64_t npages);
/* The helper has taken this page over. */
void model_take(struct model *m, unsigned int ram, uint64_t page);
/* Bits that are missing, and bits that nothing accounts for; the first of each is printed. */
void model_compare(const struct model *m, const struct session *s, uint64_t *missed, uint64_t *invented);

#endif /* KST_MODEL_H */
