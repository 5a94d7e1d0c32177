/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The destination's RAM while the source owes pages of it. An owed page is a hole in its RAM file,
 * and every mapping of that file waits there (userfaultfd(2), missing pages): those of the VMM and
 * its like, and one of the receiver's own, through which it puts pages in place. Only UFFDIO_COPY
 * makes a page: with its bytes, at once, and never over one that is there.
 */
#ifndef GODWIT_LAZY_RAM_H
#define GODWIT_LAZY_RAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "postcopy/guest_maps.h"
#include "postcopy/owed.h"

#define LAZY_MMS	64u	/* processes; GODWIT_UFFD_MAX */
#define LAZY_UNIT_MAX	512u	/* pages: 2 MiB. A fault would wait seconds for 1 GiB */

/**
 * struct lazy_mm - a process that maps the RAM
 * @uffd: its userfaultfd, not blocking, which all of @maps are registered with
 */
struct lazy_mm {
	int uffd;
	struct guest_maps maps;
};

/**
 * struct lazy_file - the receiver's own way to a block's file
 * @base: all of it, mapped and registered with @uffd. No thread touches it
 * @emptied: a bit a page: lazy_punch() has made it a hole, so whoever has touched it since waits
 */
struct lazy_file {
	int uffd;
	uint8_t *base;
	uint64_t bytes;
	uint64_t *emptied;
};

/**
 * struct lazy_ram
 * @vm: of RAM files only
 * @owed: set by the caller, from wire/owed.h's frames
 * @taken_over: from another receiver, whose last pages may be in place although they are owed
 * @stop: gives up a wait for memory
 * @units: put in place so far; @twice: came again and were dropped
 */
struct lazy_ram {
	const struct vm *vm;
	struct owed owed;
	struct lazy_file file[WIRE_BLOCKS_MAX];
	struct lazy_mm mm[LAZY_MMS];
	unsigned int mms;
	bool taken_over;
	const atomic_bool *stop;
	_Atomic uint64_t units, twice;
};

/**
 * struct lazy_unit - a unit of several pages, whose bytes come in parts; one for each connection
 * @bytes: LAZY_UNIT_MAX pages, or NULL until they are needed
 * @have: pages that have come; 0: none is begun
 * @data: they are not all zeros
 */
struct lazy_unit {
	uint8_t *bytes;
	unsigned int block;
	uint64_t unit;
	uint32_t have;
	bool data;
};

/*
 * How many pages of each block are made at once. GW_RAM_PRIVATE, GW_VM_STATE: this RAM cannot be
 * owed, and why. Asks nothing, changes nothing.
 */
int lazy_units(const struct vm *vm, uint32_t *unit, struct err *e);
/* The same of a block that is known to be fit for it. */
uint32_t lazy_unit(const struct ram_block *b);

/* Maps and registers the RAM files; unit: of lazy_units(). lazy_close() also after an error. */
int lazy_open(struct lazy_ram *l, const struct vm *vm, const uint32_t *unit, struct err *e);
/*
 * Registers all mappings of a process. uffd: new, and the caller's to close, after lazy_close();
 * maps: of that process, taken over.
 */
int lazy_add(struct lazy_ram *l, int uffd, struct guest_maps *maps, struct err *e);
/**
 * struct lazy_punch - what is to become holes
 * @what: these units; nobody takes any meanwhile
 * @placed: of each block a bit a page: the caller has put data there. The bits of what becomes
 *	holes are cleared, and what has become holes before, and has no bit, is left out. NULL, of
 *	all blocks or of one: there may be anything
 * @alive: called once a second with @arg; may be NULL
 */
struct lazy_punch {
	const struct owed *what;
	uint64_t *const *placed;
	int (*alive)(void *arg, struct err *e);
	void *arg;
};

/*
 * All mappings are registered, and nobody writes these units. With what is owed, and RAM at rest:
 * afterwards faults wait, and pages may be put in place. Errors: GW_INTERNAL; alive()'s.
 */
int lazy_punch(struct lazy_ram *l, const struct lazy_punch *p, struct err *e);
/*
 * All faults that wait come again: those that were read, and whose pages did not come.
 */
void lazy_wake_all(const struct lazy_ram *l);
/*
 * Nothing waits any more; processes that map the RAM go on as without. With units owed they would
 * find zeros, so only if there are none, or the guest never runs.
 */
void lazy_unregister(struct lazy_ram *l);
void lazy_close(struct lazy_ram *l);

/**
 * lazy_put() - bytes have come for pages of a block
 * @bytes: NULL: they are zeros
 * @part: the caller's own: what has come of a unit of several pages
 * Any thread; a unit that has come already is dropped. Waits for memory as long as there is none.
 * Errors: GW_BAD_PEER: a page was never owed, or a unit came with others in between; GW_INTERNAL: a
 * page is there that nothing has put there.
 */
int lazy_put(struct lazy_ram *l, unsigned int block, uint64_t first, uint64_t count,
	     const uint8_t *bytes, struct lazy_unit *part, struct err *e);
void lazy_unit_free(struct lazy_unit *part);

/* A fault waits for a unit that is not owed: it is there, or becomes zeros. */
int lazy_settle(struct lazy_ram *l, struct lazy_mm *mm, uint64_t address, unsigned int block,
		uint64_t unit, struct err *e);

#endif
