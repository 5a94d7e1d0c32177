/* SPDX-License-Identifier: GPL-2.0-only */
/* The page faults of the processes that map the destination's RAM. */
#ifndef GODWIT_FAULTS_H
#define GODWIT_FAULTS_H

#include "postcopy/latency.h"
#include "postcopy/lazy_ram.h"
#include "wire/owed.h"

/**
 * struct faults - those of one struct lazy_ram, served by one thread
 * @asked: units that the sender has been asked for, and has not answered: @nr_asked; @asked_ns:
 *	when
 * @waited: how long it took to answer the others
 * @seen: faults that were read; @zeros: those of them that needed nothing from the sender
 */
struct faults {
	struct lazy_ram *ram;
	struct wire_extent asked[WIRE_WANTED_MAX];
	uint64_t asked_ns[WIRE_WANTED_MAX];
	unsigned int nr_asked;
	uint64_t seen, zeros;
	struct latency waited;
};

/*
 * Serves the faults that process number mm has now: those of pages that are not owed at once; the
 * others wait for the units in want, of which there are as many as this returns (0: none). -errno.
 * It reads no more faults than it has room to ask for.
 */
int faults_read(struct faults *f, unsigned int mm, struct wire_extent want[WIRE_WANT_MAX],
		struct err *e);
/* Is there room to ask for more? Else faults wait in the kernel until some are answered. */
bool faults_room(const struct faults *f);
/*
 * The sender's answer has these pages, which may be a part of a unit. GW_BAD_PEER: it was not asked
 * for them, or has sent them before. The caller puts them in place.
 */
int faults_answered(struct faults *f, const struct wire_extent *x, struct err *e);

#endif
