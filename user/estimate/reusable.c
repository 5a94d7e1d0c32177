// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "estimate/reusable.h"
#include "estimate/sample.h"
#include "reuse/index.h"
#include "reuse/table.h"

#define NAP_NS	20000000ull

/**
 * struct reusable
 * @index: the receiver's part, until the file has been read
 * @table: the sender's, from then on
 */
struct reusable {
	struct reuse_index *index;
	struct reuse_table *table;
	struct reuse_hasher hasher;
	uint64_t memory;
};

int reusable_open(const char *path, bool other, uint64_t memory, struct reusable **out,
		  struct err *e)
{
	struct reusable *r = calloc(1, sizeof(*r));
	int ret;

	if (!r)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	r->memory = memory;
	ret = reuse_index_open(path, other, memory, &r->index, e);
	if (ret)
		free(r);
	else
		*out = r;
	return ret;
}

/* As the receiver says its entries, and the sender takes them. */
static int reusable_take(struct reusable *r, uint64_t entries, struct err *e)
{
	const struct reuse_key *key = reuse_index_key(r->index);
	uint8_t *said = malloc((size_t)WIRE_ENTRIES_FRAME * WIRE_ENTRY);
	uint64_t first = 0;
	uint32_t n;

	r->table = reuse_table_new(key->kind, (const uint8_t *)&key->secret, entries ? entries : 1,
				   r->memory);
	if (!said || !r->table) {
		free(said);
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory: give a smaller --reuse-memory");
	}
	for (; (n = reuse_index_say(r->index, first, WIRE_ENTRIES_FRAME, said)); first += n)
		reuse_table_take(r->table, said, n);
	free(said);
	return 0;
}

int reusable_wait(struct reusable *r, struct reusable_state *st, struct err *e)
{
	struct reuse_index_state read;
	int ret;

	for (;;) {
		reuse_index_state(r->index, &read);
		if (read.done)
			break;
		ret = sample_rest(now_ns() + NAP_NS, e);
		if (ret)
			return ret;
	}
	/* A receiver would go on with what it has; here it is better to know. */
	if (read.error)
		return err_set(e, GW_USAGE, read.error, "%s could not be read further: %s",
			       reuse_index_path(r->index), strerror(read.error));
	ret = reusable_take(r, read.entries, e);
	if (ret)
		return ret;
	*st = (struct reusable_state) {
		.entries = reuse_table_entries(r->table), .ns = read.ns, .memory = read.memory,
	};
	st->left_out = read.left_out + read.entries - st->entries;
	reuse_index_close(r->index);
	r->index = NULL;
	if (!reuse_hasher_open(&r->hasher, reuse_table_key(r->table)))
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	return 0;
}

bool reusable_find(const struct reusable *r, const uint8_t *page, uint64_t *entry)
{
	uint64_t hash[2];

	return reuse_hash(&r->hasher, page, hash) && reuse_table_find(r->table, hash, entry);
}

void reusable_close(struct reusable *r)
{
	if (!r)
		return;
	reuse_hasher_close(&r->hasher);
	reuse_index_close(r->index);
	reuse_table_free(r->table);
	free(r);
}
