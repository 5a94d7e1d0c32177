/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * From the source's RAM to RAM frames: read, zero filter, pace. By pread(), into the frame. With the send that took
 * 0.25 s/GiB of CPU time, against 0.23 from a mapping (medians of 11, loopback); in return reading a hole allocates
 * nothing, on hugetlbfs neither, and no page table grows with the guest. From a mapping where a tmpfs has huge pages:
 * there it saves a third of the sender's CPU time, as nothing is copied before the zero filter, and faults are few.
 *
 * Out of a mapping TCP takes the page later than pread() would, but after the source was told to watch it: what the guest
 * writes in between is dirty again. What the mapping does not have is read by pread() there too: a fault on a hole would
 * allocate it, and end in SIGBUS where the tmpfs is full. A page that a balloon gives back between mincore() and our look at it
 * is allocated once more, from what it has just given back, and reads as zeros.
 */
#ifndef GODWIT_READER_H
#define GODWIT_READER_H

#include <stdint.h>

#include "err.h"
#include "io/channel.h"
#include "migrate/pace.h"
#include "migrate/round.h"
#include "vmm/vm.h"

struct round_count {
	uint64_t data_pages;
	uint64_t zero_pages;
};

/**
 * struct reader - one for each stream and round
 * @base: of each block that is mapped; else NULL
 * @pace: may be NULL
 * @frame: under construction, or NULL
 */
struct reader {
	const struct vm *vm;
	uint8_t *const *base;
	struct channel *ch;
	struct pace *pace;
	struct ram_frame *frame;
	struct round_count count;
};

/* Frames may still be under construction or under way on return. */
int reader_send(struct reader *rd, const struct piece *p, struct err *e);
/* What is under construction goes out. */
int reader_end(struct reader *rd, struct err *e);

#endif
