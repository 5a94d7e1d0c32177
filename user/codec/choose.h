/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Chooses for each frame of a stream how it is packed (--compress auto). Pure: the caller looks at
 * the stream, and reads the clock.
 *
 * What is slowest decides. The link: then frames queue up before it, and a CPU that would wait can
 * as well make them smaller: a step up. The sender: nothing queues up, and each step costs time: a
 * step down. The receiver: frames queue up as well, and what is packed more is more work for it,
 * so that the queue alone would lead the wrong way. The receiver says so itself (LOAD): its
 * streams always find the next frame there. TCP's window shows the same, but of the nearest
 * socket, which may be that of a tunnel. So no step is made up before the receiver has said that
 * it waits for frames, and down as long as it does not.
 *
 * What a step changes shows only when the socket, which may hold some MiB, has sent what it had
 * then: no step up before that. Else a queue that is already gone would lead two steps up.
 *
 * Between two steps, neither of which keeps both link and CPU busy, the chooser goes up and down,
 * and the mix does. A step up that empties the queue at once was wrong: the next one has to wait
 * twice as long, so that on a fast link few frames are packed in vain.
 */
#ifndef GODWIT_CHOOSE_H
#define GODWIT_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/codec.h"

#define CHOOSE_STEPS	4u	/* raw, lz4, zstd:1, zstd:3 */

/**
 * struct codec_seen - the stream when a frame is ready, packed or not, and not yet sent
 * @queued: frames that wait for the socket
 * @unsent: bytes that wait in the socket
 * @bytes: of that frame
 * @paced: --bandwidth had the frame before wait
 * @loads: how many LOADs have come; @load: the latest, per mille
 */
struct codec_seen {
	uint64_t now_ns;
	unsigned int queued;
	uint64_t unsent;
	uint32_t bytes;
	bool paced;
	uint64_t loads;
	unsigned int load;
};

/**
 * struct codec_chooser - of one stream
 * @steps: the slower the later; one: there is nothing to choose
 * @at: the step of the last frame
 * @held: frames since the last change of @at
 * @behind: of these, those in a row that found a queue; @behind_bytes: their bytes
 * @patience: how many of them make a step up
 * @idle: frames in a row that found nothing before them
 * @bound: the receiver is what is slow
 * @ceiling: no step above it is made until @ceiling_ns; the next time after twice as long
 * @loads: how many LOADs have been looked at
 */
struct codec_chooser {
	struct codec_choice steps[CHOOSE_STEPS];
	unsigned int n, at, held, behind, patience, idle;
	uint64_t behind_bytes;
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
/* A frame is ready that was packed so: what does the stream say of the next one? */
void codec_choose(struct codec_chooser *c, const struct codec_seen *seen);

#endif
