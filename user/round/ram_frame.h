/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Makes RAM frames of the source's RAM: reads it, drops pages of one byte, packs the others, keeps
 * to the pace.
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
 *
 * The stream's thread packs a frame when it is full, while its socket sends those before: with a
 * stream for each CPU there is no CPU left for other threads, and no frame changes its CPU. What
 * is packed lies in the frame's buffer or in a copy, never in the mapping: no library expects that
 * its input changes while it works. A block that is not smaller by a page, or by an eighth of a
 * short frame, is not worth its unpacking: the frame goes as it is.
 *
 * A page gets hashes (codec/delta.h) when it is sent in a frame that is to be packed, or after a
 * round in which most pages were: then the link is what is slow. A fast link pays nothing, but for
 * huge pages where a process beside the VMM maps the RAM (sender_round.c). A page that has hashes
 * is compared in any frame. Both are done with a copy in the frame's buffer, also of a page in a
 * mapping.
 *
 * A page that the receiver has in a file (wire/reuse.h) goes as a reference, which beats every
 * codec. It is hashed where it is, also in a mapping: if the guest writes to it meanwhile, it has
 * the hash of what the receiver has only if that is what was read, as one can read it for any
 * frame; and it is dirty again.
 */
#ifndef GODWIT_RAM_FRAME_H
#define GODWIT_RAM_FRAME_H

#include <stdint.h>

#include "base/err.h"
#include "base/thread.h"
#include "codec/choose.h"
#include "codec/delta.h"
#include "dirty/zeros.h"
#include "net/channel.h"
#include "net/pace.h"
#include "peer/referring.h"
#include "round/round.h"
#include "vmm/vm.h"

/**
 * struct round_count
 * @data_pages: that were sent with their bytes, packed or not
 * @same_pages: of one byte that is not 0
 * @packed_pages: of @data_pages, those that each codec packed
 * @page_bytes: what @data_pages took on the wire
 * @delta_pages: of @data_pages, those of which only the changed parts were sent: @delta_bytes,
 *	packed or not
 * @unchanged_pages: that were dirty, and as the receiver has them
 * @reused_pages: that were sent as references, in @reused_bytes
 */
struct round_count {
	uint64_t data_pages;
	uint64_t zero_pages;
	uint64_t same_pages;
	uint64_t packed_pages[CODECS];
	uint64_t page_bytes;
	uint64_t delta_pages;
	uint64_t delta_bytes;
	uint64_t unchanged_pages;
	uint64_t reused_pages;
	uint64_t reused_bytes;
};

/* It is an array as well. */
#define ROUND_COUNTS	(sizeof(struct round_count) / sizeof(uint64_t))

void round_count_add(struct round_count *sum, const struct round_count *more);
void round_count_subtract(struct round_count *from, const struct round_count *part);
/*
 * What a page with data took on the wire on average, those counted that were unchanged: it may be
 * less than a byte. 0: there was none.
 */
double round_count_page(const struct round_count *c);

/**
 * struct ram_packing - how a stream packs its frames, from round to round
 * @same: the receiver knows pages of one byte
 * @compress: what the operator wants now, as codec_wish_word(); @wish: what @chooser was made for
 * @features: those that both peers offer
 * @slots: how many streams may pack at once
 * @load: see struct send_streams
 * @gathered: pages that do not lie in the frame's buffer one behind the other; FRAME_BYTES, or NULL
 *	until it is needed
 * @paced_ns: how long --bandwidth had the last frame wait
 * @hasher: once the receiver has said what it has; of @hashed pages, with all that known, @found
 * @keeps: the codec stays. The small frames of a spread round leave one by one, as fast as the
 *	window lets them: that says nothing of a codec
 */
struct ram_packing {
	bool same, keeps;
	const _Atomic uint32_t *compress;
	uint32_t wish;
	uint64_t features;
	struct codec_chooser chooser;
	struct codec_states states;
	struct thread_slots *slots;
	const _Atomic uint64_t *load;
	uint8_t *gathered;
	uint64_t paced_ns;
	struct reuse_hasher hasher;
	uint64_t hashed, found;
};

/* Before the first frame, and whenever the operator has changed how RAM is packed. */
void ram_packing_begin(struct ram_packing *p, uint32_t wish);
void ram_packing_free(struct ram_packing *p);

/* Of struct send_streams' @load: how many LOADs have come, and the latest. */
#define RAM_LOAD_BITS	16

/**
 * struct ram_framer - one for each stream and round
 * @base: of each block, its mapping; NULL: the block is not mapped
 * @pace: may be NULL
 * @delta: what was sent of each page; NULL: pages go whole. Not without @packing
 * @delta_always: pages get hashes also while frames are not packed
 * @last: of the last round: nothing follows
 * @reuse: what the receiver has in a file; NULL: nothing is referred to. Not without @packing
 * @zeros: is told what is zeros; NULL: is not
 * @references: a frame of them, under construction, or NULL: the latest is @reference, and there
 *	are @referred pages in it
 * @frame: under construction, or NULL
 */
struct ram_framer {
	const struct vm *vm;
	uint8_t *const *base;
	struct channel *ch;
	struct pace *pace;
	struct ram_packing *packing;
	struct delta *delta;
	bool delta_always, last;
	struct referring *reuse;
	struct zeros *zeros;
	struct ram_frame *references;
	struct wire_reference reference;
	uint32_t referred;
	struct ram_frame *frame;
	struct round_count count;
};

/* Sends a piece. On return frames may still be under construction or under way. */
int ram_framer_send(struct ram_framer *f, const struct round_piece *p, struct err *e);
/* Sends what is under construction. */
int ram_framer_flush(struct ram_framer *f, struct err *e);

#endif
