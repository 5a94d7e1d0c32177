/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Chooses for each frame of a stream how it is packed (--compress auto). Pure: the caller looks at
 * the stream, and reads the clock.
 *
 * What is slowest decides. While bytes wait before the link, the CPU has time: until the link has
 * sent them. So a frame is packed as well as can be done in half of that time; the other half is
 * for what comes between. On a slow link that is all the time in the world, and all frames are
 * packed at the highest step. Where the sender is slowest nothing waits, and nothing is packed.
 * Between them what waits settles where two steps take turns, and the mix keeps link and CPU busy.
 *
 * The frame that is ready waits, too: so a short round, or the first frame after an idle moment, is
 * packed as those before it.
 *
 * What waits is not only in this host: where the network has room for it, TCP sends far ahead of
 * the slowest part of the link (bufferbloat), and the socket is empty while the link is busy for a
 * long time. TCP's round trips show that, see sock_waiting(). How fast the link takes this stream's
 * bytes is measured while some of them wait, and how long each step takes as frames are packed. A
 * step that is not used gets cheaper while there is time to try it.
 *
 * Where the receiver is slowest bytes wait as well, and what is packed more is more work for it. So
 * the receiver says how many of its frames were there before it wanted them (LOAD). From one that
 * says that it hardly ever waits until one that does not, one step less with each. What it has
 * refused comes again only after a while, the next time after twice as long. Before the first LOAD
 * nothing is packed, unless the stream is so slow that it can only be the link, or --bandwidth.
 */
#ifndef GODWIT_CHOOSE_H
#define GODWIT_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/codec.h"

#define CHOOSE_STEPS	4u	/* raw, lz4, zstd:1, zstd:3 */

/**
 * struct codec_seen - the stream when a frame is ready, packed or not, and not yet sent
 * @bytes: of the frame, as it goes out
 * @waiting: bytes before it that the link has not sent yet
 * @acked: bytes of the stream that have arrived at the receiver's host, since its beginning; 0: not
 *	looked at, and nor is @waiting
 * @pages: of the frame; @made_ns: how long it took to pack them. Not to read them: a frame may have
 *	few pages, and many zeros before them
 * @paced_ns: how long --bandwidth had the frame before wait
 * @loads: how many LOADs have come; @load: the latest, per mille
 */
struct codec_seen {
	uint64_t now_ns;
	uint64_t bytes;
	uint64_t waiting;
	uint64_t acked;
	unsigned int pages;
	uint64_t made_ns;
	uint64_t paced_ns;
	uint64_t loads;
	unsigned int load;
};

/**
 * struct codec_chooser - of one stream
 * @steps: the slower the later; one: there is nothing to choose
 * @at: the step of the next frame
 * @page_ns: of each step, how long a page takes to pack
 * @rate: bytes per second that the link takes; 0: not known yet
 * @since_ns, @since_acked: when bytes were counted last; 0: they are not
 * @dry: since then, at times none has waited; @since_made_ns: how long packing took since
 * @highest: step since the last LOAD
 * @bound: the receiver is what is slow
 * @ceiling: no step above it is made until @ceiling_ns; the next time after twice as long
 * @loads: how many LOADs have been looked at
 */
struct codec_chooser {
	struct codec_choice steps[CHOOSE_STEPS];
	unsigned int n, at;
	uint64_t page_ns[CHOOSE_STEPS];
	uint64_t rate;
	uint64_t since_ns, since_acked;
	bool dry;
	uint64_t since_made_ns;
	unsigned int highest;
	bool bound;
	unsigned int ceiling;
	uint64_t ceiling_ns, penalty_ns;
	uint64_t loads;
};

/*
 * What a stream may choose from, the slower the later; with @wish's kind FIXED or OFF it is one.
 * features: those that both peers offer. Return: how many.
 */
unsigned int codec_steps(const struct codec_wish *wish, uint64_t features,
			 struct codec_choice steps[CHOOSE_STEPS]);
/* features: those that both peers offer. With CODEC_FIXED the codec is among them. */
void codec_chooser_init(struct codec_chooser *c, const struct codec_wish *wish, uint64_t features);
/* The choice for the next frame. */
const struct codec_choice *codec_chosen(const struct codec_chooser *c);
/*
 * Is it worth a system call to see what waits? Not where the link keeps up: fewer than two frames
 * are queued, and it would take the one that is ready, of so many pages and bytes, before the next
 * could be packed.
 */
bool codec_chooser_asks(const struct codec_chooser *c, unsigned int queued, unsigned int pages,
			uint64_t bytes);
/* A frame is ready that was packed so: what does the stream say of the next one? */
void codec_choose(struct codec_chooser *c, const struct codec_seen *seen);

#endif
