/* SPDX-License-Identifier: GPL-2.0-only */
/* How memslots show RAM files. */
#ifndef KST_LAYOUT_H
#define KST_LAYOUT_H

#include "ram.h"
#include "session.h"
#include "vm.h"

#define PLACES_MAX	16
#define LAYOUT_RAMS_MAX	2

/* One memslot. Guest physical addresses follow one another, from RAM_GPA on; slot numbers from 1 on. */
struct place {
	unsigned int ram;
	uint64_t pgoff;
	uint64_t npages;
};

struct layout {
	const char *name;
	unsigned int nr_rams;
	uint64_t ram_pages;
	unsigned int nr;
	struct place places[PLACES_MAX];
};

enum { LAYOUT_ONE, LAYOUT_UNALIGNED, LAYOUT_SHUFFLED, LAYOUT_TWO_RAMS, LAYOUT_ALIAS, LAYOUTS };
extern const struct layout layouts[LAYOUTS];

/* One file, cut at random into slots of any length, shown in random order. */
void layout_random(struct layout *l, uint32_t seed);

/**
 * struct entry - what stands behind an entry of the guest's table
 */
struct entry {
	unsigned int ram;
	uint64_t page;
};

/* Makes the slots and fills the table; entries[] gets one for each entry of it (room: layout_entries()). */
void layout_apply(const struct layout *l, struct vm *vm, const struct ram *rams, struct entry *entries);
uint64_t layout_entries(const struct layout *l);

/**
 * struct stage - a VM that shows RAM files by a layout, and a session for it
 * @entries: by entry of the guest's table
 * @seed: printed; advances as tests draw from it
 */
struct stage {
	struct layout layout;
	struct vm vm;
	struct ram ram[LAYOUT_RAMS_MAX];
	struct session s;
	struct entry *entries;
	uint32_t seed;
};

/* All but the session. layout: LAYOUTS for a random one; manual: as in vm_create(). */
void stage_open(struct stage *st, unsigned int layout, unsigned int manual, unsigned int vcpus);
/* The session, started. */
void stage_begin(struct stage *st);
/* Prints vm_log_has() for a page of a RAM file, of all slots that show it. Nothing can be tested with this VM any more. */
void stage_say_logs(struct stage *st, unsigned int ram, uint64_t page);
/* All rows work again. */
void stage_close(struct stage *st);

#endif /* KST_LAYOUT_H */
