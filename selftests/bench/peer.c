// SPDX-License-Identifier: GPL-2.0-only
/*
 * What QEMU does in one synchronization of its dirty bitmap, from version 4.2 on, where slot and
 * RAM block are aligned to each other (its fast path):
 *
 *	kvm_log_sync		KVM_GET_DIRTY_LOG of each slot; every word that is not 0 is ORed
 *				into the bitmaps of its clients "vga" and "migration"
 *	migration_bitmap_sync	every word of "migration" that is not 0 is taken and ORed into the
 *				RAM block's bitmap
 *	kvm_log_clear		before the first dirty page of a chunk of 1 GiB
 *				(CLEAR_BITMAP_SHIFT_DEFAULT) is sent: KVM_CLEAR_DIRTY_LOG of the
 *				chunk, slot by slot, with the bits that GET had found
 *
 * QEMU calls the last step later, but for every chunk that has a dirty page. Finding those chunks
 * costs nothing here, since QEMU looks for the pages in any case.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "bench.h"

#define CHUNK_PAGES	(1u << 18)

struct peer {
	struct target *target;
	uint64_t words;
	uint64_t *slot_bits;	/* of all slots, one after the other */
	uint64_t *vga, *migration, *block;
	bool *chunk_dirty;
	uint64_t ns[PEER_PHASES];
};

static uint64_t *bitmap_new(uint64_t words)
{
	uint64_t *bits = aligned_alloc(PAGE, (words * 8 + PAGE - 1) / PAGE * PAGE);

	require(bits, "aligned_alloc");
	memset(bits, 0, words * 8);		/* and there, before it is measured */
	return bits;
}

struct peer *peer_new(struct target *t)
{
	struct peer *p = calloc(1, sizeof(*p));

	require(p, "calloc");
	p->target = t;
	p->words = t->pages / WORD_PAGES;
	p->slot_bits = bitmap_new(p->words);
	p->vga = bitmap_new(p->words);
	p->migration = bitmap_new(p->words);
	p->block = bitmap_new(p->words);
	p->chunk_dirty = calloc(t->pages / CHUNK_PAGES + 1, sizeof(bool));
	return p;
}

void peer_free(struct peer *p)
{
	free(p->slot_bits);
	free(p->vga);
	free(p->migration);
	free(p->block);
	free(p->chunk_dirty);
	free(p);
}

static void get_all(struct peer *p)
{
	uint64_t slot_words = target_slot_pages(p->target) / WORD_PAGES;

	for (unsigned int i = 0; i < p->target->slots; i++) {
		struct kvm_dirty_log log = {
			.slot = i + 1, .dirty_bitmap = p->slot_bits + i * slot_words,
		};

		require(!ioctl(p->target->vm.fd, KVM_GET_DIRTY_LOG, &log), "KVM_GET_DIRTY_LOG");
	}
}

static void merge(struct peer *p)
{
	for (uint64_t k = 0; k < p->words; k++) {
		uint64_t word = p->slot_bits[k];

		if (!word)
			continue;
		__atomic_fetch_or(&p->vga[k], word, __ATOMIC_SEQ_CST);
		__atomic_fetch_or(&p->migration[k], word, __ATOMIC_SEQ_CST);
	}
	for (uint64_t k = 0; k < p->words; k++) {
		if (!p->migration[k])
			continue;
		p->block[k] |= __atomic_exchange_n(&p->migration[k], 0, __ATOMIC_SEQ_CST);
		p->chunk_dirty[k / (CHUNK_PAGES / WORD_PAGES)] = true;
	}
}

static void clear(struct peer *p, uint64_t first, uint64_t end)
{
	uint64_t slot_pages = target_slot_pages(p->target);

	while (first < end) {
		uint64_t slot = first / slot_pages, stop = (slot + 1) * slot_pages;
		struct kvm_clear_dirty_log log = {
			.slot = (uint32_t)slot + 1,
			.first_page = first - slot * slot_pages,
			.dirty_bitmap = p->slot_bits + first / WORD_PAGES,
		};

		if (stop > end)
			stop = end;
		log.num_pages = (uint32_t)(stop - first);
		require(!ioctl(p->target->vm.fd, KVM_CLEAR_DIRTY_LOG, &log), "KVM_CLEAR_DIRTY_LOG");
		memset(p->slot_bits + first / WORD_PAGES, 0, (stop - first) / 8);
		first = stop;
	}
}

static void clear_all(struct peer *p)
{
	for (uint64_t chunk = 0; chunk * CHUNK_PAGES < p->target->pages; chunk++) {
		uint64_t first = chunk * CHUNK_PAGES, end = first + CHUNK_PAGES;

		if (!p->chunk_dirty[chunk])
			continue;
		p->chunk_dirty[chunk] = false;
		clear(p, first, end < p->target->pages ? end : p->target->pages);
	}
}

static void timed(struct peer *p, enum peer_phase phase, void (*fn)(struct peer *p))
{
	uint64_t begin = now_ns();

	fn(p);
	p->ns[phase] = now_ns() - begin;
}

void peer_learn(struct peer *p)
{
	timed(p, PEER_GET, get_all);
	timed(p, PEER_MERGE, merge);
}

void peer_clear(struct peer *p)
{
	timed(p, PEER_CLEAR, clear_all);
}

uint64_t peer_ns(const struct peer *p, enum peer_phase phase)
{
	return p->ns[phase];
}

uint64_t peer_take(struct peer *p)
{
	uint64_t n = 0;

	for (uint64_t k = 0; k < p->words; k++)
		n += (uint64_t)__builtin_popcountll(p->block[k]);
	memset(p->block, 0, p->words * 8);
	return n;
}
