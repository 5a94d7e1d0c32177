// SPDX-License-Identifier: GPL-2.0-only
/* Puts owed pages in place, and wakes the faults that wait for them. */
#include <assert.h>
#include <errno.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/clock.h"
#include "base/say.h"
#include "page/page.h"
#include "postcopy/lazy_ram.h"

#define MEMORY_MS	100	/* between two looks whether there is memory */

/* Does a wait for memory go on? The first one says so: the guest waits as well. */
static bool lazy_wait_memory(struct lazy_ram *l, unsigned int block, int code)
{
	static atomic_bool said;

	if (!atomic_exchange(&said, true))
		say("no memory at the destination for RAM \"%s\" (%s): the guest waits until there is some",
			l->vm->blocks[block].name, strerror(code));
	nap_ms(MEMORY_MS);
	return !l->stop || !atomic_load(l->stop);
}

/*
 * Makes pages with these bytes. *done: how many. 0, -EEXIST: the next one is there, -ECANCELED, or
 * -errno.
 */
static int lazy_copy(struct lazy_ram *l, unsigned int block, uint64_t first, uint64_t count,
		     const uint8_t *bytes, uint64_t *done)
{
	const struct lazy_file *f = &l->file[block];

	*done = 0;
	while (*done < count) {
		struct uffdio_copy c = {
			.dst = (uintptr_t)(f->base + (first + *done) * PAGE_BYTES),
			.src = (uintptr_t)(bytes + *done * PAGE_BYTES),
			.len = (count - *done) * PAGE_BYTES,
		};

		/* The kernel may stop early; the next call then says why. */
		if (ioctl(f->uffd, UFFDIO_COPY, &c) && c.copy <= 0) {
			if (errno == EAGAIN)
				continue;
			if (errno != ENOMEM && errno != ENOSPC)
				return -errno;
			if (!lazy_wait_memory(l, block, errno))
				return -ECANCELED;
			continue;
		}
		*done += (uint64_t)c.copy / PAGE_BYTES;
	}
	return 0;
}

/* Wakes what waits at these addresses of one mapping, or what of them shows the unit. */
static void lazy_wake_map(const struct lazy_mm *mm, const struct guest_map *m, uint64_t first,
			  uint64_t pages)
{
	uint64_t end = m->first + (m->end - m->start) / PAGE_BYTES;
	struct uffdio_range range;

	if (first + pages <= m->first || first >= end)
		return;
	if (first < m->first) {
		pages -= m->first - first;
		first = m->first;
	}
	if (pages > end - first)
		pages = end - first;
	range.start = m->start + (first - m->first) * PAGE_BYTES;
	range.len = pages * PAGE_BYTES;
	/* Of a process that has exited nothing waits. */
	ioctl(mm->uffd, UFFDIO_WAKE, &range);
}

static void lazy_wake(const struct lazy_ram *l, unsigned int block, uint64_t unit)
{
	const struct wire_extent x = owed_extent(&l->owed, block, unit);

	for (unsigned int i = 0; i < l->mms; i++)
		for (size_t k = 0; k < l->mm[i].maps.n; k++)
			if (l->mm[i].maps.map[k].block == block)
				lazy_wake_map(&l->mm[i], &l->mm[i].maps.map[k], x.first, x.pages);
}

static void lazy_arrived(struct lazy_ram *l, unsigned int block, uint64_t unit)
{
	atomic_fetch_add(&l->units, 1);
	if (owed_arrived(&l->owed, block, unit))
		lazy_wake(l, block, unit);
}

static int lazy_copy_failed(const struct lazy_ram *l, unsigned int block, uint64_t page, int r,
			    struct err *e)
{
	const struct ram_block *b = &l->vm->blocks[block];

	if (r == -ECANCELED)
		return r;
	if (r == -EEXIST)
		return err_set(e, GW_INTERNAL, EEXIST,
			       "page %llu of the destination's RAM \"%s\" is there before it came: a program has touched the RAM in a way that post-copy does not see, and the guest may have read zeros",
			       (unsigned long long)page, b->name);
	return err_set(e, GW_INTERNAL, -r, "cannot write the destination's RAM \"%s\": %s", b->name,
		       strerror(-r));
}

/* Units [unit, end) are the caller's. bytes: NULL: they are zeros, and stay holes. */
static int lazy_put_mine(struct lazy_ram *l, unsigned int block, uint64_t unit, uint64_t end,
			 const uint8_t *bytes, struct err *e)
{
	const uint32_t pages = l->owed.block[block].unit;
	int r = 0;

	while (unit < end && !r) {
		uint64_t done = (end - unit) * pages;

		if (bytes) {
			r = lazy_copy(l, block, unit * pages, done, bytes, &done);
			bytes += done * PAGE_BYTES;
		}
		for (uint64_t n = done / pages; n; n--)
			lazy_arrived(l, block, unit++);
		if (r == -EEXIST && l->taken_over) {
			r = 0;
			bytes += (size_t)pages * PAGE_BYTES;
			lazy_arrived(l, block, unit++);
		}
	}
	return r ? lazy_copy_failed(l, block, unit * pages, r, e) : 0;
}

/* The next units in [from, end) that are the caller's: *from and *until. 0: there are none. */
static int lazy_take(struct lazy_ram *l, unsigned int block, uint64_t *from, uint64_t end,
		     uint64_t *until, struct err *e)
{
	enum owed_take t = OWED_GONE;

	for (*until = *from; *until < end; ++*until) {
		t = owed_take(&l->owed, block, *until);
		if (t == OWED_MINE)
			continue;
		if (t == OWED_NEVER || *until > *from)
			break;
		atomic_fetch_add(&l->twice, 1);
		*from = *until + 1;
	}
	if (t == OWED_NEVER && *until == *from)
		return err_set(e, GW_BAD_PEER, EPROTO,
			       "the sender sent page %llu of RAM \"%s\", which it did not owe, and the receiver did not write it",
			       (unsigned long long)(*until * l->owed.block[block].unit),
			       l->vm->blocks[block].name);
	return *until > *from;
}

static int lazy_put_units(struct lazy_ram *l, unsigned int block, uint64_t unit, uint64_t end,
			  const uint8_t *bytes, struct err *e)
{
	const size_t unit_bytes = (size_t)l->owed.block[block].unit * PAGE_BYTES;
	uint64_t from = unit, until;
	int r;

	while ((r = lazy_take(l, block, &from, end, &until, e)) > 0) {
		r = lazy_put_mine(l, block, from, until,
				  bytes ? bytes + (from - unit) * unit_bytes : NULL, e);
		if (r)
			break;
		from = until;
	}
	return r;
}

/* The next pages of a unit. count: no more than it has left. */
static int lazy_put_part(struct lazy_ram *l, unsigned int block, uint64_t first, uint32_t count,
			 const uint8_t *bytes, struct lazy_unit *part, struct err *e)
{
	const uint32_t pages = l->owed.block[block].unit, at = (uint32_t)(first % pages);
	const uint64_t unit = first / pages;
	const bool begun = part->have > 0;

	if (at != part->have || (begun && (part->block != block || part->unit != unit)))
		return err_set(e, GW_BAD_PEER, EPROTO,
			       "the sender sent page %llu of RAM \"%s\" out of order",
			       (unsigned long long)first, l->vm->blocks[block].name);
	if (!part->bytes)
		part->bytes = malloc((size_t)LAZY_UNIT_MAX * PAGE_BYTES);
	if (!part->bytes)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	part->block = block;
	part->unit = unit;
	part->data = (begun && part->data) || bytes;
	if (bytes)
		memcpy(part->bytes + (size_t)at * PAGE_BYTES, bytes, (size_t)count * PAGE_BYTES);
	else
		memset(part->bytes + (size_t)at * PAGE_BYTES, 0, (size_t)count * PAGE_BYTES);
	part->have += count;
	if (part->have < pages)
		return 0;
	part->have = 0;
	return lazy_put_units(l, block, unit, unit + 1, part->data ? part->bytes : NULL, e);
}

int lazy_put(struct lazy_ram *l, unsigned int block, uint64_t first, uint64_t count,
	     const uint8_t *bytes, struct lazy_unit *part, struct err *e)
{
	const uint32_t pages = l->owed.block[block].unit;
	int r = 0;

	/* A unit that was begun comes to its end first, whatever block this is of. */
	if (pages == 1 && !part->have)
		return lazy_put_units(l, block, first, first + count, bytes, e);
	while (count && !r) {
		uint64_t n = pages - first % pages;

		if (n > count)
			n = count;
		r = lazy_put_part(l, block, first, (uint32_t)n, bytes, part, e);
		first += n;
		count -= n;
		bytes = bytes ? bytes + n * PAGE_BYTES : NULL;
	}
	return r;
}

void lazy_unit_free(struct lazy_unit *part)
{
	free(part->bytes);
	*part = (struct lazy_unit) { 0 };
}

int lazy_settle(struct lazy_ram *l, struct lazy_mm *mm, uint64_t address, unsigned int block,
		uint64_t unit, struct err *e)
{
	static uint8_t zeros[LAZY_UNIT_MAX * PAGE_BYTES];
	const struct wire_extent x = owed_extent(&l->owed, block, unit);
	const uint64_t bytes = (uint64_t)x.pages * PAGE_BYTES;
	struct uffdio_range range = { address - address % bytes, bytes };
	uint64_t done;
	int r = lazy_copy(l, block, x.first, x.pages, zeros, &done);

	if (r && r != -EEXIST)
		return lazy_copy_failed(l, block, x.first, r, e);
	ioctl(mm->uffd, UFFDIO_WAKE, &range);
	return 0;
}
