// SPDX-License-Identifier: GPL-2.0-only
/*
 * Each send reserves the time that its bytes take at the rate. A reservation begins where the one
 * before ends (free_ns), and the caller waits for its beginning. Time that no send reserves is lost
 * but for CREDIT_NS, which makes up for sleeps that end late. In any second the streams send at
 * most CREDIT_NS and one burst more than the rate: 3 %.
 */
#include "net/pace.h"
#include "page/page.h"

#define SEC_NS		1000000000ull
#define CREDIT_NS	10000000ull
#define BURSTS		64	/* in a second */

void pace_init(struct pace *p, uint64_t rate)
{
	atomic_init(&p->rate, rate);
	pthread_mutex_init(&p->lock, NULL);
	p->free_ns = 0;
}

void pace_set(struct pace *p, uint64_t rate)
{
	atomic_store(&p->rate, rate);
}

uint64_t pace_take(struct pace *p, uint64_t bytes, uint64_t now_ns)
{
	uint64_t rate = atomic_load(&p->rate), begin;

	if (!rate)
		return now_ns;
	pthread_mutex_lock(&p->lock);
	begin = p->free_ns;
	if (begin + CREDIT_NS < now_ns)
		begin = now_ns - CREDIT_NS;
	p->free_ns = begin + (uint64_t)((double)bytes * SEC_NS / (double)rate);
	pthread_mutex_unlock(&p->lock);
	return begin > now_ns ? begin : now_ns;
}

uint32_t pace_burst(const struct pace *p)
{
	uint64_t burst = atomic_load(&p->rate) / BURSTS;

	if (!burst || burst > UINT32_MAX)
		return UINT32_MAX;
	return burst < PAGE_BYTES ? PAGE_BYTES : (uint32_t)(burst - burst % PAGE_BYTES);
}
