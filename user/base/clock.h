/* SPDX-License-Identifier: GPL-2.0-only */
/* The two clocks. A deadline is absolute: nanoseconds of CLOCK_MONOTONIC. */
#ifndef GODWIT_CLOCK_H
#define GODWIT_CLOCK_H

#include <stdint.h>

uint64_t now_ns(void);		/* CLOCK_MONOTONIC */
uint64_t realtime_ns(void);	/* CLOCK_REALTIME */
/*
 * Both at one moment: for parts that add up by the one clock, and begin and end by the other. What
 * held the caller up between two looks would be in two of them, or in none.
 */
void now_both_ns(uint64_t *monotonic_ns, uint64_t *real_ns);
void nap_ms(unsigned int ms);	/* between two polls; a signal ends the sleep early */
static inline uint64_t deadline_ms(uint64_t ms) { return now_ns() + ms * 1000000; }

#endif
