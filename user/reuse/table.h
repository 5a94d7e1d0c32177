/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the receiver has said that it has, as the sender looks it up: by hash. One thread adds
 * entries; any number look up meanwhile, without a lock, and find what was added before.
 */
#ifndef GODWIT_REUSE_TABLE_H
#define GODWIT_REUSE_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "reuse/reuse_hash.h"

#define REUSE_TABLE_ENTRY 28u	/* bytes of memory, at most */

struct reuse_table;

/**
 * reuse_table_new() - an empty one
 * @secret: WIRE_REUSE_SECRET bytes
 * @most: entries, at most
 * @memory: bytes, at most: then it takes fewer
 * Return: NULL: no memory
 */
struct reuse_table *reuse_table_new(enum wire_reuse_kind kind, const uint8_t *secret, uint64_t most,
				    uint64_t memory);
void reuse_table_free(struct reuse_table *t);	/* NULL is fine */
const struct reuse_key *reuse_table_key(const struct reuse_table *t);
/* How many entries it has, how many more it takes, and the bytes that it has for them. */
uint64_t reuse_table_entries(const struct reuse_table *t);
uint64_t reuse_table_room(const struct reuse_table *t);
uint64_t reuse_table_memory(const struct reuse_table *t);
/*
 * The next entry, if there is room. An equal one stays the first of both; one that would stand too
 * far from its place is not found later: whoever sends the hashes cannot make a search long.
 */
void reuse_table_add(struct reuse_table *t, const uint64_t hash[2]);
/* The next @n, as a HASHES frame has them. */
void reuse_table_take(struct reuse_table *t, const uint8_t *entries, uint32_t n);
/* false: there is no such entry, and *entry is left alone. Any thread. */
bool reuse_table_find(const struct reuse_table *t, const uint64_t hash[2], uint64_t *entry);

#endif
