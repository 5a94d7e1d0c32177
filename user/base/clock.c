// SPDX-License-Identifier: GPL-2.0-only
#include <time.h>

#include "base/clock.h"

#define SEC_NS		1000000000ull
#define MOMENT_NS	100000u
#define MOMENT_TRIES	10u

static uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * SEC_NS + (uint64_t)ts.tv_nsec;
}

uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

uint64_t realtime_ns(void)
{
	return clock_ns(CLOCK_REALTIME);
}

void now_both_ns(uint64_t *monotonic_ns, uint64_t *real_ns)
{
	unsigned int i;

	for (i = 0; i < MOMENT_TRIES; i++) {
		*monotonic_ns = now_ns();
		*real_ns = realtime_ns();
		if (now_ns() - *monotonic_ns < MOMENT_NS)
			break;
	}
}

void nap_ms(unsigned int ms)
{
	const struct timespec ts = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}
