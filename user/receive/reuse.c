// SPDX-License-Identifier: GPL-2.0-only
/* --reuse: the receiver's answers to a sender that wants to refer to pages of a file. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/say.h"
#include "claim/owners.h"
#include "page/page.h"
#include "receive/receiver_internal.h"
#include "wire/reuse.h"

/* A file that a VM writes is not old RAM; this VM's own is about to be emptied. */
static int reuse_check_file(const struct receiver *r, struct err *e)
{
	struct vm *other = calloc(1, sizeof(*other));
	struct ram_block *b;
	int ret = 0;

	if (!other)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	b = &other->blocks[0];
	other->nblocks = 1;
	snprintf(b->name, sizeof(b->name), "%s", r->o->reuse);
	reuse_index_file(r->reuse, &b->dev, &b->ino, &b->fd);
	for (unsigned int i = 0; i < r->vm.nblocks && !ret; i++)
		if (r->vm.blocks[i].ino == b->ino && r->vm.blocks[i].dev == b->dev)
			ret = err_set(e, GW_RAM_IN_USE, EBUSY, "%s is the file of the destination's RAM \"%s\", which is emptied: give --reuse a copy, or give the destination QEMU a file of its own (another mem-path)",
				      r->o->reuse, r->vm.blocks[i].name);
	if (!ret)
		ret = owners_check("/proc", other, OWNERS_REUSED, e);
	free(other);
	return ret;
}

int receiver_open_reuse(struct receiver *r, struct err *e)
{
	int ret;

	if (!r->o->reuse)
		return 0;
	ret = reuse_index_open(r->o->reuse, r->o->reuse_other, (uint64_t)r->o->reuse_mib << 20,
			       &r->reuse, e);
	return ret ? ret : reuse_check_file(r, e);
}

void receiver_end_reuse(struct receiver *r)
{
	reuse_index_close(r->reuse);
	r->reuse = NULL;
	for (unsigned int i = 0; i < WIRE_BLOCKS_MAX; i++)
		free(r->told[i]);
}

int receiver_begin_reuse(struct receiver *r, struct err *e)
{
	for (unsigned int i = 0; r->reuse && i < r->vm.nblocks; i++) {
		r->told[i] = calloc(r->vm.blocks[i].pages / 64 + 1, sizeof(*r->told[i]));
		if (!r->told[i])
			return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	}
	return r->reuse ? ram_writer_reuse(&r->writer, r->reuse, e) : 0;
}

int receiver_on_reuse(struct receiver *r, const struct wire_header *h, struct err *e)
{
	uint8_t body[WIRE_REUSE_HEAD + WIRE_REUSE_SECRET] = { 0 };
	struct wire_header answer = { .type = WIRE_REUSE, .length = WIRE_REUSE_HEAD };
	struct reuse_index_state st = { .most = 0 };
	int ret;

	if (h->length || h->arg > 1)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender sent a malformed REUSE frame");
	if (r->reuse) {
		const struct reuse_key *key = reuse_index_key(r->reuse);

		reuse_index_state(r->reuse, &st);
		answer.arg = key->kind;
		memcpy(body + WIRE_REUSE_HEAD, &key->secret, WIRE_REUSE_SECRET);
	}
	if (r->reuse && h->arg)
		answer.length += WIRE_REUSE_SECRET;
	/* Of a file that has been read, what it has. */
	wire_put_u64(body, st.done ? st.entries : st.most);
	ret = channel_send(r->ch, &answer, body, e);
	explicit_bzero(body, sizeof(body));
	return ret;
}

static void reuse_tell_index(const struct receiver *r, const struct reuse_index_state *st)
{
	say_out("%s has %" PRIu64 " pages to reuse; read in %.1f s, index of %.1f MiB",
	       r->o->reuse, st->entries, (double)st->ns / 1e9, (double)st->memory / (1 << 20));
	if (st->left_out)
		say_out("%" PRIu64 " pages of %s were left out, as --reuse-memory %u is too small for them",
		       st->left_out, r->o->reuse, r->o->reuse_mib);
	if (st->error)
		say_out("%s could not be read further: %s", r->o->reuse,
		       strerror(st->error));
}

int receiver_on_want_hashes(struct receiver *r, const struct wire_header *h, struct err *e)
{
	struct wire_header answer = { .type = WIRE_HASHES };
	struct reuse_index_state st;
	struct wire_hashes x;
	uint8_t first[8], *body;
	int ret = channel_body(r->ch, first, sizeof(first), e);

	if (ret)
		return ret;
	if (!r->reuse || !r->writer.reuse)
		return err_set(e, GW_BAD_PEER, EPROTO, "the sender asked for hashes, and there is no file to reuse");
	body = malloc(WIRE_HASHES_HEAD + (size_t)h->arg * WIRE_ENTRY);
	if (!body)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	/* Before the entries are looked at: what it says of the end is true of them. */
	reuse_index_state(r->reuse, &st);
	x = (struct wire_hashes) {
		.first = wire_get_u64(first), .ns = st.ns, .left_out = st.left_out,
	};
	answer.arg = reuse_index_say(r->reuse, x.first, h->arg, body + WIRE_HASHES_HEAD);
	/* Asked for more than there is: nothing, from the end on. */
	if (!answer.arg && x.first > st.entries)
		x.first = st.entries;
	answer.length = WIRE_HASHES_HEAD + answer.arg * WIRE_ENTRY;
	if (!st.done || x.first + answer.arg < st.entries)
		answer.flags = WIRE_MORE;
	else if (!r->told_index)
		reuse_tell_index(r, &st);
	r->told_index |= !(answer.flags & WIRE_MORE);
	wire_put_hashes(body, &x);
	ret = channel_send(r->ch, &answer, body, e);
	free(body);
	return ret;
}

/* @n: extents in @body so far */
struct reuse_refusal {
	struct receiver *r;
	unsigned int n;
	struct wire_extent x[WIRE_REFUSED_MAX];
};

static int reuse_send_refused(struct reuse_refusal *f, struct err *e)
{
	uint8_t body[WIRE_REFUSED_MAX * WIRE_EXTENT];
	const struct wire_header h = {
		.type = WIRE_REFUSED, .arg = f->n, .length = f->n * WIRE_EXTENT,
	};

	if (!f->n)
		return 0;
	for (unsigned int i = 0; i < f->n; i++)
		wire_put_extent(body + i * WIRE_EXTENT, &f->x[i]);
	f->n = 0;
	return channel_send(f->r->ch, &h, body, e);
}

static int reuse_add_refused(struct reuse_refusal *f, unsigned int block, uint64_t page,
			     struct err *e)
{
	struct wire_extent *last = f->n ? &f->x[f->n - 1] : NULL;
	int ret = 0;

	if (last && last->block == block && last->first + last->pages == page) {
		last->pages++;
		return 0;
	}
	if (f->n == WIRE_REFUSED_MAX)
		ret = reuse_send_refused(f, e);
	f->x[f->n++] = (struct wire_extent) {
		.block = (uint16_t)block, .kind = WIRE_DATA, .pages = 1, .first = page,
	};
	return ret;
}

/* The streams may go on to refuse meanwhile, of later rounds. */
static int reuse_tell_block(struct reuse_refusal *f, unsigned int block, struct err *e)
{
	struct receiver *r = f->r;
	const uint64_t words = r->writer.pages[block] / 64 + 1;
	int ret = 0;

	for (uint64_t w = 0; w < words && !ret; w++) {
		uint64_t new = __atomic_exchange_n(&r->writer.refused[block][w], 0,
						   __ATOMIC_RELAXED);

		r->told[block][w] |= new;
		for (; new && !ret; new &= new - 1)
			ret = reuse_add_refused(f, block,
						w * 64 + (unsigned int)__builtin_ctzll(new), e);
	}
	return ret;
}

int receiver_tell_refused(struct receiver *r, struct err *e)
{
	struct reuse_refusal f = { .r = r };
	/* Before the maps are read: what comes meanwhile is told of again. */
	const uint64_t refused = atomic_load(&r->writer.refused_pages);
	int ret = 0;

	if (refused == r->told_pages)
		return 0;
	if (!r->told_changed)
		say("%s %s: the sender sends these pages itself, and refers to no more",
			r->o->reuse, atomic_load(&r->writer.slow) ? "is read too slowly (less than 8 MiB/s)" :
			"has changed since it was read");
	r->told_changed = true;
	for (unsigned int i = 0; i < r->vm.nblocks && !ret; i++)
		ret = reuse_tell_block(&f, i, e);
	if (!ret)
		ret = reuse_send_refused(&f, e);
	if (!ret)
		r->told_pages = refused;
	return ret;
}

void receiver_refused_again(struct receiver *r)
{
	r->told_pages = 0;
	for (unsigned int i = 0; r->reuse && i < r->vm.nblocks; i++)
		for (uint64_t w = 0; w < r->vm.blocks[i].pages / 64 + 1; w++)
			__atomic_fetch_or(&r->writer.refused[i][w], r->told[i][w],
					  __ATOMIC_RELAXED);
}
