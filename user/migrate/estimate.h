/* SPDX-License-Identifier: GPL-2.0-only */
/* A migration played through on paper: which rounds would there be, how long, and would it end? Pure. */
#ifndef GODWIT_ESTIMATE_H
#define GODWIT_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

#include "migrate/content.h"
#include "migrate/curve.h"

/**
 * struct estimate_in - what is known
 * @rate: bytes per second of the link, at least 1
 * @rtt_ns: there and back
 * @turn_ns: of QEMU's main loop (turns.h); 0: not known
 * @device_saved: by QEMU, which then does not walk through all RAM with the guest stopped
 * @limit_ns, @max_rounds: as in struct converge
 */
struct estimate_in {
	const struct curve *curve;
	struct content content;
	uint64_t rate;
	uint64_t rtt_ns;
	uint64_t turn_ns;
	bool device_saved;
	uint64_t limit_ns;
	unsigned int max_rounds;
};

/**
 * struct estimate - what would happen
 * @converges: else it would be given up after max_rounds, and the rest is as of then
 * @rounds: the last one, with the guest stopped, included
 * @bytes: of RAM, over the link
 * @pending_pages: to be sent while the guest stands still
 * @total_ns: until the guest runs at the destination
 * @downtime_ns: of it, the guest stands still
 */
struct estimate {
	bool converges;
	unsigned int rounds;
	uint64_t bytes;
	uint64_t pending_pages;
	uint64_t total_ns;
	uint64_t downtime_ns;
};

void estimate(const struct estimate_in *in, struct estimate *out);

#endif
