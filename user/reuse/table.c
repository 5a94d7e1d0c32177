// SPDX-License-Identifier: GPL-2.0-only
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "reuse/table.h"

#define PROBES	64u	/* slots in a row that an entry may be in */

/**
 * struct reuse_table
 * @slots: the number of an entry, + 1; 0: free. A power of two of them, at least half as many again
 *	as entries
 */
struct reuse_table {
	struct reuse_key key;
	uint64_t most, mask;
	uint64_t (*hashes)[2];
	_Atomic uint32_t *slots;
	size_t bytes;
	_Atomic uint64_t entries;
};

static uint64_t table_slots(uint64_t most)
{
	uint64_t n = PROBES;

	while (n < most + most / 2)
		n *= 2;
	return n;
}

struct reuse_table *reuse_table_new(enum wire_reuse_kind kind, const uint8_t *secret, uint64_t most,
				    uint64_t memory)
{
	struct reuse_table *t = calloc(1, sizeof(*t));
	void *p;

	if (!t)
		return NULL;
	if (most > memory / REUSE_TABLE_ENTRY)
		most = memory / REUSE_TABLE_ENTRY;
	t->key.kind = kind;
	memcpy(&t->key.secret, secret, sizeof(t->key.secret));
	t->most = most;
	t->mask = table_slots(most) - 1;
	t->bytes = most * sizeof(*t->hashes) + (t->mask + 1) * sizeof(*t->slots);
	p = mmap(NULL, t->bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED) {
		free(t);
		return NULL;
	}
	madvise(p, t->bytes, MADV_DONTDUMP);
	t->hashes = p;
	t->slots = (_Atomic uint32_t *)(t->hashes + most);
	return t;
}

void reuse_table_free(struct reuse_table *t)
{
	if (!t)
		return;
	munmap(t->hashes, t->bytes);
	explicit_bzero(&t->key, sizeof(t->key));
	free(t);
}

const struct reuse_key *reuse_table_key(const struct reuse_table *t)
{
	return &t->key;
}

uint64_t reuse_table_entries(const struct reuse_table *t)
{
	return atomic_load(&t->entries);
}

uint64_t reuse_table_room(const struct reuse_table *t)
{
	return t->most - atomic_load(&t->entries);
}

uint64_t reuse_table_memory(const struct reuse_table *t)
{
	return t->bytes;
}

static bool table_is(const struct reuse_table *t, uint32_t slot, const uint64_t hash[2])
{
	return t->hashes[slot - 1][0] == hash[0] && t->hashes[slot - 1][1] == hash[1];
}

void reuse_table_add(struct reuse_table *t, const uint64_t hash[2])
{
	const uint64_t n = atomic_load_explicit(&t->entries, memory_order_relaxed);

	if (n >= t->most)
		return;
	memcpy(t->hashes[n], hash, sizeof(t->hashes[n]));
	atomic_store_explicit(&t->entries, n + 1, memory_order_relaxed);
	for (uint64_t i = 0; i < PROBES; i++) {
		_Atomic uint32_t *slot = &t->slots[(hash[0] + i) & t->mask];
		const uint32_t is = atomic_load_explicit(slot, memory_order_relaxed);

		if (is && table_is(t, is, hash))
			return;
		if (is)
			continue;
		/* Who finds it finds its hash. */
		atomic_store_explicit(slot, (uint32_t)n + 1, memory_order_release);
		return;
	}
}

void reuse_table_take(struct reuse_table *t, const uint8_t *entries, uint32_t n)
{
	for (const uint8_t *p = entries; n--; p += WIRE_ENTRY) {
		const uint64_t hash[2] = { wire_get_u64(p), wire_get_u64(p + 8) };

		reuse_table_add(t, hash);
	}
}

bool reuse_table_find(const struct reuse_table *t, const uint64_t hash[2], uint64_t *entry)
{
	for (uint64_t i = 0; i < PROBES; i++) {
		const _Atomic uint32_t *slot = &t->slots[(hash[0] + i) & t->mask];
		const uint32_t is = atomic_load_explicit(slot, memory_order_acquire);

		if (!is)
			return false;
		if (!table_is(t, is, hash))
			continue;
		*entry = is - 1;
		return true;
	}
	return false;
}
