/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * XXH3-64 twice, with two secrets of 192 random bytes, for what a guest may have written: whoever
 * does not know the secrets finds no two inputs with the same hashes but by chance.
 *
 * XXH3-128 would be no such pair. Its halves are mixed from the same accumulators, which add up
 * products of 32-bit halves: one can write pairs of inputs of which one in 2^33 has the same
 * accumulators under a secret that one does not know, and then both halves are the same. Under two
 * secrets that is one in 2^66.
 */
#ifndef GODWIT_TWOFOLD_H
#define GODWIT_TWOFOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TWOFOLD_SECRET	192u	/* bytes of each of both */

struct twofold {
	uint8_t secret[2][TWOFOLD_SECRET];
};

/* false: there are no random bytes. */
bool twofold_random(struct twofold *t);
void twofold_hash(const struct twofold *t, const void *p, size_t len, uint64_t hash[2]);

#endif
