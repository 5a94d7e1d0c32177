/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes RAM frames of the source's RAM: reads it, drops zero pages, keeps to the pace.
 *
 * The framer reads by pread(), into the frame. Read and send together took 0.25 s/GiB of CPU time
 * so, against 0.23 from a mapping (medians of 11, loopback); in return the read of a hole allocates
 * nothing, not on hugetlbfs either, and no page table grows with the guest. Where a tmpfs has huge
 * pages the framer reads from a mapping: there that saves a third of the sender's CPU time, as
 * nothing is copied before the zero filter, and faults are few.
 *
 * From a mapping TCP reads the page later than pread() would, but after the page was cleared in the
 * source of dirty pages: if the guest writes the page in between, it is dirty again. Pages that
 * are not in memory the framer reads by pread() there too: a fault on a hole would allocate a page,
 * and end in SIGBUS where the tmpfs is full. A page that a balloon gives back between mincore() and
 * the read is allocated once more, from the memory just given back, and reads as zeros.
 */
#ifndef GODWIT_RAM_FRAME_H
#define GODWIT_RAM_FRAME_H

#include <stdint.h>

#include "base/err.h"
#include "net/channel.h"
#include "net/pace.h"
#include "send/round.h"
#include "vmm/vm.h"

struct round_count {
	uint64_t data_pages;
	uint64_t zero_pages;
};

/**
 * struct ram_framer - one for each stream and round
 * @base: of each block, its mapping; NULL: the block is not mapped
 * @pace: may be NULL
 * @frame: under construction, or NULL
 */
struct ram_framer {
	const struct vm *vm;
	uint8_t *const *base;
	struct channel *ch;
	struct pace *pace;
	struct ram_frame *frame;
	struct round_count count;
};

/* Sends a piece. On return frames may still be under construction or under way. */
int ram_framer_send(struct ram_framer *f, const struct round_piece *p, struct err *e);
/* Sends the frame that is under construction, if there is one. */
int ram_framer_flush(struct ram_framer *f, struct err *e);

#endif
