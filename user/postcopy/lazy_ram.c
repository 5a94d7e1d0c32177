// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "page/page.h"
#include "postcopy/lazy_ram.h"
#include "ram/thp.h"

#define UNIT_2M		(2u << 20)
#define ALIVE_NS	1000000000ull	/* between two signs of life */
#define PUNCH_PAGES	(1u << 18)	/* at a time: 1 GiB takes the kernel a tenth of a second */

static int lazy_refuse(const struct ram_block *b, const char *why, struct err *e)
{
	return err_set(e, b->hva ? GW_RAM_PRIVATE : GW_VM_STATE, EOPNOTSUPP,
		       "the destination's RAM \"%s\" %s, so its pages cannot come after the guest: migrate without post-copy, or give the destination QEMU a file of tmpfs or hugetlbfs (share=on)",
		       b->name, why);
}

uint32_t lazy_unit(const struct ram_block *b)
{
	return b->hugetlb ? (uint32_t)(b->page_size / PAGE_BYTES) : 1;
}

static int lazy_unit_of(const struct ram_block *b, uint32_t *unit, struct err *e)
{
	void *huge;

	if (b->hva)
		return lazy_refuse(b, "is private to its QEMU", e);
	*unit = lazy_unit(b);
	if (b->page_size > UNIT_2M)
		return lazy_refuse(b, "is in pages of more than 2 MiB", e);
	if (b->pages % *unit)
		return lazy_refuse(b, "ends within a huge page", e);
	if (b->hugetlb)
		return 0;
	/* A hole in a huge page is zeros where the kernel cannot split it. */
	huge = thp_map(b, PROT_READ);
	if (huge) {
		munmap(huge, b->pages * PAGE_BYTES);
		return lazy_refuse(b, "is in a tmpfs with huge pages (huge=)", e);
	}
	if (ram_ops(b)->allocated(b) >= b->pages)
		return lazy_refuse(b, "is preallocated (prealloc=on)", e);
	return 0;
}

int lazy_units(const struct vm *vm, uint32_t *unit, struct err *e)
{
	int r = 0;

	for (unsigned int i = 0; i < vm->nblocks && !r; i++)
		r = lazy_unit_of(&vm->blocks[i], &unit[i], e);
	return r;
}

static int lazy_register(int uffd, uint64_t start, uint64_t end)
{
	struct uffdio_register area = {
		.range = { start, end - start }, .mode = UFFDIO_REGISTER_MODE_MISSING,
	};

	if (ioctl(uffd, UFFDIO_REGISTER, &area))
		return -errno;
	return area.ioctls & 1ull << _UFFDIO_COPY && area.ioctls & 1ull << _UFFDIO_WAKE ?
		       0 : -EOPNOTSUPP;
}

static int lazy_register_failed(const struct ram_block *b, const char *whose, int r, struct err *e)
{
	return err_set(e, GW_VM_STATE, -r,
		       "cannot watch %s mapping of the destination's RAM \"%s\" for missing pages (userfaultfd: %s): migrate without post-copy",
		       whose, b->name, strerror(-r));
}

static int lazy_open_file(struct lazy_file *f, const struct ram_block *b, struct err *e)
{
	struct uffdio_api api = { .api = UFFD_API };
	void *base;
	int r = 0;

	f->bytes = b->pages * PAGE_BYTES;
	/* On hugetlbfs this reserves its pages. */
	base = mmap(NULL, f->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
	if (base == MAP_FAILED)
		return err_set(e, GW_INTERNAL, errno, "cannot map the destination's RAM \"%s\": %s",
			       b->name, strerror(errno));
	f->base = base;
	f->emptied = calloc(b->pages / 64 + 1, sizeof(*f->emptied));
	if (!f->emptied)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	/* With the flag no privilege is needed, whatever vm.unprivileged_userfaultfd says. */
	f->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (f->uffd < 0 || ioctl(f->uffd, UFFDIO_API, &api))
		r = -errno;
	if (!r)
		r = lazy_register(f->uffd, (uintptr_t)f->base, (uintptr_t)f->base + f->bytes);
	return r ? lazy_register_failed(b, "our", r, e) : 0;
}

int lazy_open(struct lazy_ram *l, const struct vm *vm, const uint32_t *unit, struct err *e)
{
	uint64_t pages[WIRE_BLOCKS_MAX];
	int r;

	*l = (struct lazy_ram) { .vm = vm };
	for (unsigned int i = 0; i < vm->nblocks; i++) {
		l->file[i].uffd = -1;
		pages[i] = vm->blocks[i].pages;
	}
	r = owed_init(&l->owed, pages, unit, vm->nblocks, e);
	for (unsigned int i = 0; i < vm->nblocks && !r; i++)
		r = lazy_open_file(&l->file[i], &vm->blocks[i], e);
	return r;
}

int lazy_add(struct lazy_ram *l, int uffd, struct guest_maps *maps, struct err *e)
{
	struct lazy_mm *mm = &l->mm[l->mms];
	struct uffdio_api api = { .api = UFFD_API };

	if (l->mms == LAZY_MMS) {
		guest_maps_free(maps);
		return err_set(e, GW_VM_STATE, ENOSPC,
			       "more than %u processes map the guest's RAM: migrate without post-copy",
			       LAZY_MMS);
	}
	*mm = (struct lazy_mm) { .uffd = uffd, .maps = *maps };
	*maps = (struct guest_maps) { 0 };
	l->mms++;
	/* The receiver before has called it, with the same features. */
	if (ioctl(uffd, UFFDIO_API, &api) && !(errno == EINVAL && l->taken_over))
		return err_set(e, GW_INTERNAL, errno, "userfaultfd: %s", strerror(errno));
	for (size_t i = 0; i < mm->maps.n; i++) {
		const struct guest_map *m = &mm->maps.map[i];
		int r = lazy_register(uffd, m->start, m->end);

		if (r)
			return lazy_register_failed(&l->vm->blocks[m->block], "the VMM's", r, e);
	}
	return 0;
}

/* Each run is a call of the kernel, and there may be millions, for which the sender waits. */
static int punch_alive(const struct lazy_punch *p, uint64_t *next_ns, struct err *e)
{
	if (!p->alive || now_ns() < *next_ns)
		return 0;
	*next_ns = now_ns() + ALIVE_NS;
	return p->alive(p->arg, e);
}

/*
 * Pages [first, end) become holes. That the caller has put nothing there is not enough to leave
 * them: before the mappings were registered anyone may have made pages of zeros there.
 */
static int punch_run(const struct ram_block *b, uint64_t *emptied, uint64_t *placed,
		     uint64_t first, uint64_t end, struct err *e)
{
	int r;

	if (placed && bitmap_all(emptied, first, end - first) &&
	    bitmap_next_shared(placed, first, end) == end)
		return 0;
	r = ram_ops(b)->clear(b, first, end - first);
	if (r)
		return err_set(e, GW_INTERNAL, -r, "cannot empty the destination's RAM \"%s\": %s",
			       b->name, strerror(-r));
	if (placed)
		bitmap_clear(placed, first, end - first);
	bitmap_set(emptied, first, end - first);
	return 0;
}

static int lazy_punch_block(const struct lazy_ram *l, const struct lazy_punch *p,
			    unsigned int block, uint64_t *next_ns, struct err *e)
{
	const struct owed_block *o = &p->what->block[block];
	uint64_t *placed = p->placed ? p->placed[block] : NULL;
	uint64_t from = 0, end;
	int r = 0;

	while (!r && (from = owed_next(p->what, block, from, o->units)) < o->units) {
		end = owed_end(p->what, block, from);
		if (end - from > PUNCH_PAGES / o->unit)
			end = from + PUNCH_PAGES / o->unit;
		r = punch_alive(p, next_ns, e);
		if (!r)
			r = punch_run(&l->vm->blocks[block], l->file[block].emptied, placed,
				      from * o->unit,
				      end * o->unit < o->pages ? end * o->unit : o->pages, e);
		from = end;
	}
	return r;
}

int lazy_punch(struct lazy_ram *l, const struct lazy_punch *p, struct err *e)
{
	uint64_t next_ns = now_ns() + ALIVE_NS;
	int r = 0;

	for (unsigned int i = 0; i < l->vm->nblocks && !r; i++)
		r = lazy_punch_block(l, p, i, &next_ns, e);
	return r;
}

/* For each mapping. Of a process that has exited there is none, so no error counts. */
static void lazy_for_all(const struct lazy_ram *l, unsigned long request)
{
	for (unsigned int i = 0; i < l->mms; i++) {
		const struct lazy_mm *mm = &l->mm[i];

		for (size_t k = 0; k < mm->maps.n; k++) {
			struct uffdio_range range = {
				mm->maps.map[k].start,
				mm->maps.map[k].end - mm->maps.map[k].start,
			};

			ioctl(mm->uffd, request, &range);
		}
	}
}

void lazy_wake_all(const struct lazy_ram *l)
{
	lazy_for_all(l, UFFDIO_WAKE);
}

void lazy_unregister(struct lazy_ram *l)
{
	lazy_for_all(l, UFFDIO_UNREGISTER);
}

void lazy_close(struct lazy_ram *l)
{
	for (unsigned int i = 0; l->vm && i < l->vm->nblocks; i++) {
		if (l->file[i].uffd >= 0)
			close(l->file[i].uffd);
		if (l->file[i].base)
			munmap(l->file[i].base, l->file[i].bytes);
		free(l->file[i].emptied);
	}
	for (unsigned int i = 0; i < l->mms; i++)
		guest_maps_free(&l->mm[i].maps);
	owed_free(&l->owed);
	*l = (struct lazy_ram) { 0 };
}
