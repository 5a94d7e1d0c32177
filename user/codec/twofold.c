// SPDX-License-Identifier: GPL-2.0-only
#include <sys/random.h>
#include <xxhash.h>

#include "codec/twofold.h"

_Static_assert(TWOFOLD_SECRET >= XXH3_SECRET_SIZE_MIN, "XXH3 takes no shorter secret");

bool twofold_random(struct twofold *t)
{
	bool ok = true;

	/* Each is so short that no signal cuts it. */
	for (unsigned int i = 0; i < 2 && ok; i++)
		ok = getrandom(t->secret[i], TWOFOLD_SECRET, 0) == TWOFOLD_SECRET;
	return ok;
}

void twofold_hash(const struct twofold *t, const void *p, size_t len, uint64_t hash[2])
{
	for (unsigned int i = 0; i < 2; i++)
		hash[i] = XXH3_64bits_withSecret(p, len, t->secret[i], TWOFOLD_SECRET);
}
