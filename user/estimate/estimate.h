/* SPDX-License-Identifier: GPL-2.0-only */
/* Predicts a migration: how many rounds it takes, how long, and whether it converges. Pure. */
#ifndef GODWIT_ESTIMATE_H
#define GODWIT_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

#include "estimate/content.h"
#include "estimate/curve.h"
#include "plan/loss.h"

/**
 * struct estimate_in - what is known of the guest, the link and QEMU
 * @rate: bytes per second of the link, at least 1
 * @streams, @pack_threads: how many there are, and how many of them may pack at once; 0: one
 * @rtt_ns: of the link
 * @loss: what it loses, and the size of a segment: the other members are known here
 * @reuse_entries: pages of the receiver's file, whose hashes it says before the first round
 * @qmp_ns: the QMP latency (qmp_latency.h); 0: not known
 * @save_mode: QEMU does not walk through all RAM with the guest stopped
 * @limit_ns, @max_rounds: as in struct converge
 */
struct estimate_in {
	const struct curve *curve;
	struct content content;
	uint64_t rate;
	unsigned int streams, pack_threads;
	uint64_t rtt_ns;
	struct loss loss;
	uint64_t reuse_entries;
	uint64_t qmp_ns;
	bool save_mode;
	uint64_t limit_ns;
	unsigned int max_rounds;
};

/**
 * struct estimate - the predicted migration
 * @converges: false: the sender gives up after max_rounds, and the other members are as of then
 * @rounds: including the last one, with the guest stopped
 * @choice: how its pages are packed, or most of them; @page_bytes: what one takes then
 * @bytes: of RAM, over the link; @reused_bytes: of these, references
 * @pending_pages: sent while the guest is stopped
 * @total_ns: until the guest runs at the destination
 * @downtime_ns: of that, the guest is stopped
 * @loss_ns: of that, what the link is expected to lose adds so much
 * @postcopy: with --postcopy on: @owed_pages come after the guest, in @after_ns, of the whole
 *	@total_ns
 */
struct estimate {
	bool converges;
	unsigned int rounds;
	struct codec_choice choice;
	double page_bytes;
	uint64_t bytes;
	uint64_t reused_bytes;
	uint64_t pending_pages;
	uint64_t total_ns;
	uint64_t downtime_ns;
	uint64_t loss_ns;
	struct {
		uint64_t owed_pages, total_ns, downtime_ns, after_ns;
	} postcopy;
};

void estimate(const struct estimate_in *in, struct estimate *out);

#endif
