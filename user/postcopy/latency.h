/* SPDX-License-Identifier: GPL-2.0-only */
/* How long page faults wait. Pure. */
#ifndef GODWIT_LATENCY_H
#define GODWIT_LATENCY_H

#include <stdint.h>

#define LATENCY_BUCKETS	256u	/* four for each power of two */

/**
 * struct latency - any number of times, in little memory
 * @bucket: how many of them are of about this length
 */
struct latency {
	uint64_t count, sum_ns, worst_ns;
	uint64_t bucket[LATENCY_BUCKETS];
};

void latency_add(struct latency *l, uint64_t ns);
/* All that the other one has counted. */
void latency_merge(struct latency *l, const struct latency *other);
uint64_t latency_mean(const struct latency *l);
/* So many of a thousand took no longer; at most a quarter too much, never more than the worst. */
uint64_t latency_quantile(const struct latency *l, unsigned int per_mille);

#endif
