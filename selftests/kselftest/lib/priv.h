/* SPDX-License-Identifier: GPL-2.0-only */
/* Private RAM: memory of this process, which is the VMM, watched by its addresses. */
#ifndef KST_PRIV_H
#define KST_PRIV_H

#include "session.h"
#include "vm.h"

enum priv_kind {
	PRIV_4K,	/* anonymous */
	PRIV_THP,
	PRIV_2M,	/* private hugetlbfs pages */
	PRIV_1G,
	PRIV_FILE,	/* a private mapping of a tmpfs file, which has every other page */
};

/**
 * struct priv - private RAM, a VM that has it, a session, and a copy as a destination has it
 * @page: bytes of its native page; of a transparent huge one 2 MiB
 * @map: aligned to 2 MiB, and to 1 GiB if it has such pages; PROT_NONE behind it, as many bytes
 * @mem: /proc/self/mem
 * @copied: how many bytes, from the start, are compared
 */
struct priv {
	enum priv_kind kind;
	uint64_t bytes;
	uint64_t page;
	uint8_t *map;
	int mem;
	uint8_t *copy;
	uint64_t copied;
	struct vm vm;
	struct session s;
};

/* Memory of this process, readable and writable; fd -1: anonymous. */
uint8_t *priv_mmap(uint64_t bytes, int flags, int fd);
/* 0 or -errno: -ENOMEM where the host has no huge pages to spare. */
int priv_map(struct priv *p, enum priv_kind kind, uint64_t bytes);
/* VM with nr_vcpus, session, started; what is there has been copied. */
void priv_begin(struct priv *p, unsigned int nr_vcpus, uint64_t copied);
/* All rows and safeguards work again. */
void priv_end(struct priv *p);
/* One harvest, CLEAR if the guest runs on, and its pages copied. What cannot be read stays marked.
 */
void priv_round(struct priv *p, bool clear);
/* How many pages differ: 0 is the proof. */
uint64_t priv_differs(const struct priv *p);

/* Safeguards of row "mapping", by their number in the module's parameter. */
enum safeguard { SAFE_FLUSH = GODWIT_ROWS, SAFE_RMAP, SAFE_FOLIO, SAFE_LAZY };
/* All rows and the other ones work. */
void safeguard_off(enum safeguard which);
/* How long dirty bits are gone before TLBs are flushed, beyond what it takes; 0: as usual. */
void flush_window(unsigned int ms);
bool in_flush_window(void);

/* Swap, on zram, or on a block device that has a swap cache. */
void swap_on(void);
void swap_on_device(void);
void swap_off(void);

#endif /* KST_PRIV_H */
