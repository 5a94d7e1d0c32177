/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which pages the source still owes the destination. Both ends have one; a bit stands for a unit:
 * what the destination makes at once, a page or a huge page.
 *
 *	owed	the destination lacks it. Set before the guest runs there, cleared when the bytes
 *		are in place. At the source it stays
 *	taken	one thread has it: at the destination its bytes, to put them in place; at the
 *		source, to push it. Only owed_again() clears it
 *	asked	a fault waits for it. The same
 *
 * The one race that matters is between a thread that puts a unit in place and the fault server
 * (docs/architecture/postcopy.md, "One writer for a page"):
 *
 *	taker				fault server
 *	owed_take(): taken		reads a fault
 *	copies				owed_fault(): sets asked,
 *	owed_arrived(): clears owed,		then looks at owed
 *		then looks at asked
 *
 * All of these are sequentially consistent, so not both miss what the other has set: either the
 * taker is told to wake the unit, and the fault was in the kernel's queue before; or the server
 * sees that the unit is there. Never does the server see that it is not owed before it is copied.
 */
#ifndef GODWIT_OWED_H
#define GODWIT_OWED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/blocks.h"
#include "wire/extent.h"

/**
 * struct owed_block - one block
 * @unit: pages of a unit; the last one may be cut short by the end of the block
 */
struct owed_block {
	uint64_t pages, units;
	uint32_t unit;
	_Atomic uint64_t *owed, *taken, *asked;
};

/**
 * struct owed - all functions may be called from any thread, but for the first two
 * @left: units that are owed
 */
struct owed {
	unsigned int blocks;
	_Atomic uint64_t left;
	struct owed_block block[WIRE_BLOCKS_MAX];
};

/* GW_INTERNAL: no memory. owed_free() also then, and a struct of zeros is fine for it. */
int owed_init(struct owed *o, const uint64_t *pages, const uint32_t *unit, unsigned int blocks,
	      struct err *e);
void owed_free(struct owed *o);

/*
 * Before anything is taken: these pages of a block are owed. -EINVAL: they are not whole units;
 * -EEXIST: one of them was owed already.
 */
int owed_add(struct owed *o, unsigned int block, uint64_t first, uint64_t count);
/* Also where some of these whole units are owed already. Return: were some not? */
bool owed_add_new(struct owed *o, unsigned int block, uint64_t first, uint64_t count);
/* Of an OWED frame that wire_get_owed() has let through, with its words. Errors as owed_add(). */
int owed_add_words(struct owed *o, const struct wire_extent *x, const uint8_t *words);

/*
 * What is owed may be taken and asked for again. No other thread is at work: whatever one had taken
 * is either in place, and not owed any more, or was dropped.
 */
void owed_again(struct owed *o);

/**
 * enum owed_take - may the caller have this unit?
 * @OWED_MINE: it is the caller's, and no other thread's
 * @OWED_GONE: another one has, or had it
 * @OWED_NEVER: it was never owed
 */
enum owed_take { OWED_MINE, OWED_GONE, OWED_NEVER };

enum owed_take owed_take(struct owed *o, unsigned int block, uint64_t unit);
/* Its bytes are in place. true: a fault may wait, wake it. The caller has taken it. */
bool owed_arrived(struct owed *o, unsigned int block, uint64_t unit);

/**
 * enum owed_fault - what to do about a fault that has been read from the kernel
 * @OWED_ASK: ask the sender for the unit; the one who puts it in place will wake the fault
 * @OWED_WAIT: the same, but it has been asked for
 * @OWED_HERE: nothing is owed: the page is there, or it is zero
 */
enum owed_fault { OWED_ASK, OWED_WAIT, OWED_HERE };

enum owed_fault owed_fault(struct owed *o, unsigned int block, uint64_t unit);

/*
 * At the source: the receiver asks for it. true: it is to be sent, and not to be pushed any more.
 * false: it was never owed, or asked for before.
 */
bool owed_want(struct owed *o, unsigned int block, uint64_t unit);

/* The first unit in [from, end) that is owed and not taken; end: there is none. */
uint64_t owed_next(const struct owed *o, unsigned int block, uint64_t from, uint64_t end);

/* The end of the run of such units that begins with @from. */
uint64_t owed_end(const struct owed *o, unsigned int block, uint64_t from);

/* Its pages: unit number n of a block. */
struct wire_extent owed_extent(const struct owed *o, unsigned int block, uint64_t unit);

#endif
