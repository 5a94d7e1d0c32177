// SPDX-License-Identifier: GPL-2.0-only
#include "postcopy/latency.h"

/* The two bits behind the highest one. Below 4 ns each time has a bucket. */
static unsigned int latency_bucket(uint64_t ns)
{
	unsigned int top;

	if (ns < 4)
		return (unsigned int)ns;
	top = 63 - (unsigned int)__builtin_clzll(ns);
	return 4 * (top - 1) + (unsigned int)(ns >> (top - 2) & 3);
}

/* The longest time of a bucket. */
static uint64_t latency_most(unsigned int bucket)
{
	unsigned int top = bucket / 4 + 1;

	if (bucket < 4)
		return bucket;
	return ((4 + bucket % 4 + 1ull) << (top - 2)) - 1;
}

void latency_add(struct latency *l, uint64_t ns)
{
	l->count++;
	l->sum_ns += ns;
	if (ns > l->worst_ns)
		l->worst_ns = ns;
	l->bucket[latency_bucket(ns)]++;
}

void latency_merge(struct latency *l, const struct latency *other)
{
	l->count += other->count;
	l->sum_ns += other->sum_ns;
	if (other->worst_ns > l->worst_ns)
		l->worst_ns = other->worst_ns;
	for (unsigned int i = 0; i < LATENCY_BUCKETS; i++)
		l->bucket[i] += other->bucket[i];
}

uint64_t latency_mean(const struct latency *l)
{
	return l->count ? l->sum_ns / l->count : 0;
}

uint64_t latency_quantile(const struct latency *l, unsigned int per_mille)
{
	uint64_t longer = l->count - l->count * per_mille / 1000, seen = 0;

	for (unsigned int i = LATENCY_BUCKETS; i--;) {
		seen += l->bucket[i];
		if (l->bucket[i] && seen >= longer)
			return latency_most(i) < l->worst_ns ? latency_most(i) : l->worst_ns;
	}
	return 0;
}
