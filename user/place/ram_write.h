/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Destination RAM: emptied first, then filled by several threads. No two threads write the same
 * page at the same time, except that two may zero one in the last round (ram_take_placed()).
 *
 * Into tmpfs the bytes go from a small buffer: pages that the file does not have yet by UFFDIO_COPY
 * (uffd_copy.h); pages that it has, or all pages where there is no userfaultfd, by pwrite().
 * Neither faults a page in or zeroes it first: a bare copy over loopback took the receiver 0.68
 * s/GiB of CPU time by pwrite() and 1.01 into a mapping (medians of 11). Where the kernel gives
 * huge pages (hugetlbfs; a tmpfs mounted for them), or where the file has all pages already, the
 * socket's bytes go straight into a mapping: half of the receiver's CPU time, and the guest has
 * huge pages here too.
 *
 * A page for which there is no room must be an error, never SIGBUS: so only the kernel writes into
 * a mapping (recv(), read(); unpacked pages from a memfd), and answers EFAULT. The receiver does
 * not reserve room before: to do that by fallocate() took 7 ms of CPU time for each GiB and by
 * MADV_POPULATE_WRITE 45 to 660, of some 210.
 */
#ifndef GODWIT_RAM_WRITE_H
#define GODWIT_RAM_WRITE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/thread.h"
#include "codec/codec.h"
#include "net/channel.h"
#include "postcopy/faults.h"
#include "ram/uffd_copy.h"
#include "reuse/index.h"
#include "vmm/vm.h"

#define RAM_WRITER_BUFFER (256u << 10)	/* bytes; stays in the CPU's cache between the two copies */

/**
 * struct ram_writer - what all threads share; only @placed and @file_lock change while they work
 * @base: the mapping of a block with huge pages or of a @preallocated one; else NULL
 * @preallocated: the block's file has all its pages, and the writer makes no hole in it
 * @placed: a bit a page: data has been put there; where the block is mapped, no zeros since. All
 *	RAM was emptied before, so the other pages are zero. A page changes its thread only when
 *	nothing of its stripe is under way (dirty/stripes.h).
 * @uffd: makes pages that the file of a block without @base does not have yet
 * @file_lock: one a block, held by the thread that writes to its file
 * @zeros: /dev/zero
 * @features: those that the sender and we offer
 * @unpacking: how many threads may unpack at once; NULL: all
 * @reuse: what the sender may refer to; NULL: nothing. @refused: a bit a page: it was not there
 *	when the sender referred to it, and the sender is to be told; @refused_pages: how many times
 * @lazy: the last round is in place, and from here on only owed pages come, to be put there; NULL
 */
struct ram_writer {
	const struct vm *vm;
	uint8_t *base[WIRE_BLOCKS_MAX];
	bool preallocated[WIRE_BLOCKS_MAX];
	struct uffd_copy uffd[WIRE_BLOCKS_MAX];
	uint64_t *placed[WIRE_BLOCKS_MAX];
	uint64_t pages[WIRE_BLOCKS_MAX];
	pthread_mutex_t file_lock[WIRE_BLOCKS_MAX];
	int zeros;
	uint64_t features;
	struct thread_slots *unpacking;
	struct reuse_index *reuse;
	uint64_t *refused[WIRE_BLOCKS_MAX];
	_Atomic uint64_t refused_pages;
	atomic_bool slow;
	struct lazy_ram *lazy;
};

/**
 * struct ram_scratch - buffers of one thread
 * @buf: RAM_WRITER_BUFFER bytes, the mapping of @fd, a memfd
 * @packed: a block that is to be unpacked into @buf
 * @part: what has come of a unit of owed pages
 * @answers: this is the request connection, and so only what was asked for may come; else NULL
 * @hasher: once something was referred to
 * @step: NULL, or called while a frame is being placed that takes long
 */
struct ram_scratch {
	uint8_t *buf, *packed;
	int fd;
	struct codec_states states;
	struct lazy_unit part;
	struct faults *answers;
	struct reuse_hasher hasher;
	void (*step)(void *arg);
	void *step_arg;
};

struct ram_writer_count {
	uint64_t data_pages;
	uint64_t zero_pages;
	uint64_t reused_pages;
};

/**
 * struct ram_alive - what the caller does meanwhile
 * @step: called several times for each second; an error of it ends the work, and is its result
 */
struct ram_alive {
	int (*step)(void *arg, struct err *e);
	void *arg;
};

/*
 * Empties all RAM: what the source never touched is a hole here too, or zeros where the operator
 * wants no holes. alive: may be NULL. ram_writer_close() also after an error.
 */
int ram_writer_open(struct ram_writer *p, const struct vm *vm, const struct ram_alive *alive,
		    struct err *e);
/* From now on the sender may refer to what @ix has, which stays until ram_writer_close(). */
int ram_writer_reuse(struct ram_writer *p, struct reuse_index *ix, struct err *e);
/* For what post-copy brings (@lazy), into RAM that a guest runs in: changes nothing there. */
int ram_writer_take_over(struct ram_writer *p, const struct vm *vm, struct err *e);
void ram_writer_close(struct ram_writer *p);
/* GW_INTERNAL: no memory. ram_scratch_close() also then. */
int ram_scratch_open(struct ram_scratch *s, struct err *e);
void ram_scratch_close(struct ram_scratch *s);
/*
 * Serves one RAM, PACKED, DELTA or REFERENCES frame whose header was read, on the thread whose
 * scratch s is.
 */
int ram_writer_frame(struct ram_writer *p, struct channel *ch, const struct wire_header *h,
		     struct ram_scratch *s, struct ram_writer_count *count, struct err *e);

#endif
