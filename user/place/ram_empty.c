// SPDX-License-Identifier: GPL-2.0-only
/*
 * Destination RAM is emptied before its first page comes. That takes 0.1 to 0.2 s for each GiB that
 * the file has, and the sender waits: so it goes by slices, between which the caller may show that
 * the receiver lives, or give up.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/thread.h"
#include "page/page.h"
#include "place/ram_write_internal.h"
#include "ram/thp.h"

#define CLEAR_PAGES	((1ull << 30) / PAGE_BYTES)	/* no part of a huge page */
#define SCAN_PAGES	((64ull << 20) / PAGE_BYTES)
#define SCAN_THREADS	8u	/* the most that a memory bus has use for */

/**
 * struct scan - a preallocated block, in which threads look for what is not zero
 * @next: the first page that no thread has taken
 * @ended: all the others end as well; @e says why if @lock was held to set it
 */
struct scan {
	const struct ram_writer *p;
	unsigned int block;
	_Atomic uint64_t next;
	atomic_bool ended;
	pthread_mutex_t lock;
	int r;
	struct err e;
};

/*
 * The file has all its pages (prealloc=on): the operator wants that no page of the guest's can lack
 * memory later. The writer keeps all pages: it zeroes what the waiting QEMU has put there
 * (firmware), and never makes a hole.
 */
static bool ram_is_preallocated(const struct ram_block *b)
{
	return !b->hugetlb && !b->hva && ram_ops(b)->allocated(b) >= b->pages;
}

/* Maps all of the block. NULL: errno says why not. */
static uint8_t *ram_map(const struct ram_block *b)
{
	void *base =
		mmap(NULL, b->pages * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);

	return base == MAP_FAILED ? NULL : base;
}

static int ram_is_alive(const struct ram_alive *alive, struct err *e)
{
	return alive ? alive->step(alive->arg, e) : 0;
}

static void scan_end(struct scan *s, int r, const struct err *e)
{
	pthread_mutex_lock(&s->lock);
	if (!s->r) {
		s->r = r;
		s->e = *e;
	}
	pthread_mutex_unlock(&s->lock);
	atomic_store(&s->ended, true);
}

/* The next slice. False: there is none, or a thread has failed. */
static bool scan_slice(struct scan *s)
{
	const struct zero_filter *filter = zero_filter_best();
	const uint64_t pages = s->p->pages[s->block];
	uint64_t page = atomic_fetch_add(&s->next, SCAN_PAGES);
	const uint64_t end = page + SCAN_PAGES < pages ? page + SCAN_PAGES : pages;
	struct err e = { 0 };
	int r = 0;

	for (; page < end && !r; page++)
		if (!filter->is_zero(s->p->base[s->block] + page * PAGE_BYTES))
			r = ram_zero_page(s->p, s->block, page, &e);
	if (r)
		scan_end(s, r, &e);
	return end < pages && !atomic_load(&s->ended);
}

static void *scan_run(void *arg)
{
	while (scan_slice(arg))
		;
	return NULL;
}

static int ram_scan(const struct ram_writer *p, unsigned int block, const struct ram_alive *alive,
		    struct err *e)
{
	struct scan s = { .p = p, .block = block, .lock = PTHREAD_MUTEX_INITIALIZER };
	unsigned int most = thread_cpus_usable(), n = 0;
	pthread_t thread[SCAN_THREADS];
	int r = 0;

	/* This thread is one of them. Where no other can be started it is the only one. */
	while (n + 1 < most && n + 1 < SCAN_THREADS && !thread_start(&thread[n], scan_run, &s))
		n++;
	while (!r && scan_slice(&s))
		r = ram_is_alive(alive, e);
	atomic_store(&s.ended, true);
	while (n)
		pthread_join(thread[--n], NULL);
	if (!r && s.r)
		*e = s.e;
	return r ? r : s.r;
}

static int ram_empty(const struct ram_block *b, const struct ram_alive *alive, struct err *e)
{
	int r = 0;

	for (uint64_t at = 0; at < b->pages && !r; at += CLEAR_PAGES) {
		uint64_t left = b->pages - at;

		r = ram_clear(b, at, left < CLEAR_PAGES ? left : CLEAR_PAGES, e);
		if (!r)
			r = ram_is_alive(alive, e);
	}
	return r;
}

static int ram_open_preallocated(struct ram_writer *p, unsigned int i,
				 const struct ram_alive *alive, struct err *e)
{
	const struct ram_block *b = &p->vm->blocks[i];

	p->preallocated[i] = true;
	p->base[i] = ram_map(b);
	if (!p->base[i])
		return ram_failed(b, "map", errno, e);
	return ram_scan(p, i, alive, e);
}

static int ram_open_block(struct ram_writer *p, unsigned int i, const struct ram_alive *alive,
			  struct err *e)
{
	const struct ram_block *b = &p->vm->blocks[i];
	int r;

	p->placed[i] = calloc(b->pages / 64 + 1, sizeof(*p->placed[i]));
	if (!p->placed[i])
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	if (ram_is_preallocated(b))
		return ram_open_preallocated(p, i, alive, e);
	r = ram_empty(b, alive, e);
	if (r || b->hva)
		return r;
	if (!b->hugetlb) {
		p->base[i] = thp_map(b, PROT_READ | PROT_WRITE);
		if (!p->base[i])
			uffd_copy_open(&p->uffd[i], b);
		return 0;
	}
	/* Reserves huge pages for all of the block: fails if the pool is too small. */
	p->base[i] = ram_map(b);
	if (p->base[i])
		return 0;
	return errno == ENOMEM ? ram_no_room(b, ENOMEM, e) : ram_failed(b, "map", errno, e);
}

int ram_writer_open(struct ram_writer *p, const struct vm *vm, const struct ram_alive *alive,
		    struct err *e)
{
	int r = ram_writer_take_over(p, vm, e);

	for (unsigned int i = 0; i < vm->nblocks && !r; i++)
		r = ram_open_block(p, i, alive, e);
	return r;
}
