// SPDX-License-Identifier: GPL-2.0-only
/*
 * Pages that go as references to what the receiver has in a file (wire/reuse.h), in frames of their
 * own.
 */
#include "round/ram_frame_internal.h"

#define FEW_HASHED	65536u	/* 256 MiB */
#define FEW_FOUND	100u

int ram_framer_push_references(struct ram_framer *f, struct err *e)
{
	struct ram_frame *frame = f->references;
	uint64_t bytes;
	int r = 0;

	if (!frame)
		return 0;
	bytes = WIRE_HEADER + frame->references * WIRE_REFERENCE;
	f->references = NULL;
	f->count.reused_bytes += bytes;
	if (f->pace)
		r = ram_framer_keep_pace(f, bytes, e);
	return r ? r : channel_push(f->ch, frame, e);
}

/*
 * Is it worth to hash a page? Not if of so many, with all entries known, not one of a hundred was
 * found: a CPU hashes no faster than a good link sends.
 */
static bool ram_framer_may_refer(const struct ram_framer *f)
{
	if (!f->reuse || !f->reuse->table || f->last || atomic_load(&f->reuse->off) ||
	    !reuse_table_entries(f->reuse->table))
		return false;
	return f->packing->hashed < FEW_HASHED ||
	       f->packing->found >= f->packing->hashed / FEW_FOUND;
}

bool ram_framer_refers(struct ram_framer *f, const uint8_t *bytes, uint64_t *entry)
{
	struct reuse_hasher *h;
	uint64_t hash[2];
	bool found;

	if (!ram_framer_may_refer(f))
		return false;
	h = &f->packing->hasher;
	if (!h->key && !reuse_hasher_open(h, reuse_table_key(f->reuse->table))) {
		h->key = NULL;
		return false;
	}
	found = reuse_hash(h, bytes, hash) && reuse_table_find(f->reuse->table, hash, entry);
	if (atomic_load(&f->reuse->complete)) {
		f->packing->hashed++;
		f->packing->found += found;
	}
	return found;
}

int ram_framer_add_reference(struct ram_framer *f, unsigned int block, uint64_t page,
				    uint64_t entry, struct err *e)
{
	struct wire_reference *ref = &f->reference;
	int r = 0;

	f->count.reused_pages++;
	/* Before the frame leaves, which may be refused at once. */
	if (!atomic_load(&f->reuse->referred))
		atomic_store(&f->reuse->referred, true);
	if (f->references && (f->references->references == WIRE_REFERENCES_MAX ||
			      f->referred == WIRE_REFERRED_MAX))
		r = ram_framer_push_references(f, e);
	if (!r && !f->references) {
		r = channel_frame(f->ch, &f->references, e);
		*ref = (struct wire_reference) { .entry = UINT64_MAX };
		f->referred = 0;
	}
	if (r)
		return r;
	if (ref->x.pages && ref->x.block == block && ref->x.first + ref->x.pages == page &&
	    ref->entry + ref->x.pages == entry) {
		ref->x.pages++;
	} else {
		f->references->references++;
		*ref = (struct wire_reference) {
			.x = {
				.block = (uint16_t)block, .kind = WIRE_DATA, .pages = 1,
				.first = page,
			},
			.entry = entry,
		};
	}
	f->referred++;
	wire_put_reference(f->references->buf +
			   (f->references->references - 1) * WIRE_REFERENCE, ref);
	return 0;
}
