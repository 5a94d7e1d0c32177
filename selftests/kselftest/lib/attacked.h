/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A migration in miniature of private RAM that is under attack. Threads of the VMM count up in its
 * pages; harvests copy what they name, again and again; a thread attacks. Now and then all stand
 * still, and after a last harvest
 *
 *	- the copy is equal to the RAM: no page was missed;
 *	- each page has what was stored there last: no store was lost.
 */
#ifndef KST_ATTACKED_H
#define KST_ATTACKED_H

#include <stdatomic.h>

#include "priv.h"

#define UNKNOWN	(~0ULL)		/* the old value or 0, as after MADV_FREE */

/**
 * struct attacked
 * @pages: of the RAM
 * @zone: from this page on it is the attacker's, which changes what is in it: the last quarter
 * @unit: pages in one of the kernel's: 512 of hugetlbfs, else 1
 * @stored: by page: what was stored last
 * @values: stores are counted modulo this, where pages are to be alike; 0: never
 * @attack: once; draws from *seed what it needs
 * @met: whether what the attack is for has happened; NULL: always. On a slow machine a few attacks
 *	may not get there, so the migration goes on until then, for a minute at most
 * @lost: so many stores were lost
 * @attacks: so many there were
 * @hold: all are to stand still; @parked: so many do
 */
struct attacked {
	struct priv *ram;
	uint64_t pages;
	uint64_t zone;
	uint64_t unit;
	uint64_t *stored;
	uint64_t values;
	void (*attack)(struct attacked *a, uint64_t *seed);
	bool (*met)(const struct attacked *a);
	atomic_ulong lost, attacks;
	atomic_int hold, parked, stop;
};

/* RAM that was just mapped: stores to the first tenth and to every third page. */
void attacked_init(struct attacked *a, struct priv *ram, uint64_t values);
void attacked_free(struct attacked *a);
/* Some seconds, after priv_begin(). Returns how many pages were missed and stores were lost. */
uint64_t attacked_migrate(struct attacked *a);

/* For attacks. */
volatile uint64_t *attacked_word(const struct attacked *a, uint64_t page);
uint64_t draw(uint64_t *seed);

#endif /* KST_ATTACKED_H */
