/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A guest whose RAM comes after it: a file with old pages, and processes that map it, each with a userfaultfd of its own,
 * whose threads look at pages when they are told. Include after cmocka.h.
 */
#ifndef GODWIT_LAZY_RIG_H
#define GODWIT_LAZY_RIG_H

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "page/page.h"
#include "postcopy/faults.h"

#ifndef PAGES
#define PAGES	1024u
#endif
#define THREADS	3u
#define SOON_MS	20000u

/* What a page holds: it was never touched, is as before the last harvest, as at the stop, or as the guest wrote it there. */
enum version { V_ZERO, V_OLD, V_NEW, V_GUEST, V_SAME };

enum act { ACT_LOOK, ACT_WRITE, ACT_PUNCH, ACT_QUIT };

/**
 * struct actor - a thread of a guest
 * @order: the pages come in a random order that this begins
 * @wrong: pages that do not hold what @want says; @example: one of them
 */
struct actor {
	_Atomic int busy;
	enum act act;
	uint64_t first, count, order;
	_Atomic uint64_t seen, wrong, example;
	struct shared_guest *of;
};

struct shared_guest {
	_Atomic int uffd;
	uint8_t *at;
	uint64_t bytes;
	int file;
	_Atomic uint8_t *want;
	struct actor actor[THREADS];
};

struct lazy_rig {
	struct vm vm;
	uint32_t unit;
	_Atomic uint8_t *want;
	struct shared_guest *guest[2];
	pid_t pid[2];
	unsigned int guests;
	struct lazy_ram ram;
	struct faults faults;
	struct err e;
};

static inline uint64_t rig_word(uint64_t page, enum version v)
{
	if (v == V_SAME)
		return 0x0101010101010101 * (1 + page % 255);
	return v == V_ZERO ? 0 : (page + 1) * 0x9e3779b97f4a7c15 + v;
}

static inline void rig_fill(void *p, uint64_t page, enum version v)
{
	uint64_t *w = p;

	for (unsigned int i = 0; i < PAGE_BYTES / 8; i++)
		w[i] = rig_word(page, v);
}

static inline bool rig_is(const volatile uint64_t *w, uint64_t page, enum version v)
{
	for (unsigned int i = 0; i < PAGE_BYTES / 8; i++)
		if (w[i] != rig_word(page, v))
			return false;
	return true;
}

static inline void actor_look(struct actor *a)
{
	uint64_t n = a->order % a->count;

	/* 7919 is prime to all that is counted here. */
	for (uint64_t i = 0; i < a->count; i++, n = (n + 7919) % a->count) {
		uint64_t page = a->first + n;

		if (!rig_is((void *)(a->of->at + page * PAGE_BYTES), page, (enum version)a->of->want[page])) {
			a->example = page;
			a->wrong++;
		}
		a->seen++;
	}
}

static inline void *actor_main(void *arg)
{
	struct actor *a = arg;

	for (;;) {
		while (!a->busy)
			usleep(200);
		if (a->act == ACT_QUIT)
			return NULL;
		for (uint64_t p = a->first; a->act == ACT_WRITE && p < a->first + a->count; p++) {
			a->of->want[p] = V_GUEST;
			rig_fill(a->of->at + p * PAGE_BYTES, p, V_GUEST);
		}
		if (a->act == ACT_PUNCH) {
			for (uint64_t p = a->first; p < a->first + a->count; p++)
				a->of->want[p] = V_ZERO;
			fallocate(a->of->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(a->first * PAGE_BYTES),
				  (off_t)(a->count * PAGE_BYTES));
		}
		if (a->act == ACT_LOOK)
			actor_look(a);
		a->busy = 0;
	}
}

static inline void rig_child(struct shared_guest *g, size_t align)
{
	pthread_t t;
	uintptr_t room;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	room = (uintptr_t)mmap(NULL, g->bytes + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	room = (room + align - 1) / align * align;
	g->at = mmap((void *)room, g->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, g->file, 0);
	for (unsigned int i = 0; i < THREADS; i++) {
		g->actor[i].of = g;
		if (pthread_create(&t, NULL, actor_main, &g->actor[i]))
			_exit(1);
	}
	g->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	for (;;)
		pause();
}

static inline void rig_act(struct lazy_rig *rig, unsigned int guest, unsigned int thread, enum act act, uint64_t first, uint64_t count)
{
	struct actor *a = &rig->guest[guest]->actor[thread];

	assert_false(a->busy);
	a->act = act;
	a->first = first;
	a->count = count;
	a->order = (guest + 1) * 12345 + thread * 777;
	a->seen = a->wrong = 0;
	a->busy = 1;
}

/* Serves faults for so long, or until an actor is idle. What is asked for is in want. Returns how many. */
static inline unsigned int rig_serve(struct lazy_rig *rig, const struct actor *until, unsigned int ms, struct wire_extent *want)
{
	uint64_t end = deadline_ms(ms);
	unsigned int n = 0;

	while (now_ns() < end && !(until && !until->busy)) {
		for (unsigned int i = 0; i < rig->ram.mms; i++) {
			int r = faults_read(&rig->faults, i, want + n, &rig->e);

			assert_return_code(r, 0);
			n += (unsigned int)r;
		}
		usleep(200);
	}
	return n;
}

/* The actor comes to its end, and has seen what is right. Nothing more is asked for. */
static inline void rig_ends(struct lazy_rig *rig, unsigned int guest, unsigned int thread)
{
	struct actor *a = &rig->guest[guest]->actor[thread];
	struct wire_extent none[WIRE_WANT_MAX];

	assert_int_equal(rig_serve(rig, a, SOON_MS, none), 0);
	assert_false(a->busy);
	assert_int_equal(a->wrong, 0);
}

/* It waits, however long its fault is in coming, and for so many units. */
static inline void rig_waits(struct lazy_rig *rig, unsigned int guest, unsigned int thread, struct wire_extent *want, unsigned int n)
{
	unsigned int got = 0;

	for (uint64_t end = deadline_ms(SOON_MS); got < n && now_ns() < end;)
		got += rig_serve(rig, NULL, 10, want + got);
	got += rig_serve(rig, NULL, n ? 20 : 100, want + got);
	assert_int_equal(got, n);
	assert_true(rig->guest[guest]->actor[thread].busy);
}

static inline void *rig_shared(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/* Pages [0, touched) are as before the last harvest, and the others were never touched. */
static inline void rig_open(struct lazy_rig *rig, int file, uint32_t unit, unsigned int guests, uint64_t touched)
{
	struct ram_block *b = &rig->vm.blocks[0];
	uint8_t page[PAGE_BYTES];
	struct stat st;

	*rig = (struct lazy_rig) { .unit = unit, .guests = guests, .vm.nblocks = 1 };
	assert_return_code(file, errno);
	*b = (struct ram_block) { .name = "ram0", .pages = PAGES, .page_size = PAGE_BYTES, .fd = file };
	assert_return_code(fstat(file, &st), 0);
	b->dev = st.st_dev;
	b->ino = st.st_ino;
	b->hugetlb = st.st_blksize > PAGE_BYTES;
	b->page_size = (uint32_t)st.st_blksize;
	rig->want = rig_shared(PAGES);
	for (uint64_t p = 0; p < touched && !b->hugetlb; p++) {
		rig->want[p] = V_OLD;
		rig_fill(page, p, V_OLD);
		assert_int_equal(pwrite(file, page, sizeof(page), (off_t)(p * PAGE_BYTES)), sizeof(page));
	}
	assert_return_code(lazy_open(&rig->ram, &rig->vm, &unit, &rig->e), 0);
	rig->faults.ram = &rig->ram;
	for (unsigned int i = 0; i < guests; i++) {
		struct shared_guest *g = rig->guest[i] = rig_shared(sizeof(*g));
		struct guest_maps maps;
		char proc[32];
		int pidfd, uffd;

		g->uffd = -1;
		g->bytes = PAGES * (uint64_t)PAGE_BYTES;
		g->file = file;
		g->want = rig->want;
		rig->pid[i] = fork();
		if (!rig->pid[i])
			rig_child(g, (size_t)st.st_blksize);
		for (uint64_t end = deadline_ms(SOON_MS); g->uffd < 0 && now_ns() < end;)
			usleep(1000);
		pidfd = (int)syscall(SYS_pidfd_open, rig->pid[i], 0);
		uffd = (int)syscall(SYS_pidfd_getfd, pidfd, (int)g->uffd, 0);
		close(pidfd);
		assert_return_code(uffd, errno);
		snprintf(proc, sizeof(proc), "/proc/%d", (int)rig->pid[i]);
		assert_return_code(guest_maps_find(proc, &rig->vm, true, &maps, &rig->e), 0);
		assert_return_code(lazy_add(&rig->ram, uffd, &maps, &rig->e), 0);
	}
}

/* Half of it was touched, and no unit is larger than a page. */
static inline void rig_begin(struct lazy_rig *rig, unsigned int guests)
{
	int file = memfd_create("ram", MFD_CLOEXEC);

	assert_return_code(ftruncate(file, (off_t)PAGES * PAGE_BYTES), 0);
	rig_open(rig, file, 1, guests, PAGES / 2);
}

/* Pages. */
static inline uint64_t rig_allocated(const struct lazy_rig *rig)
{
	struct stat st;

	assert_return_code(fstat(rig->vm.blocks[0].fd, &st), 0);
	return (uint64_t)st.st_blocks * 512 / PAGE_BYTES;
}

/* These pages are owed: the source wrote them since they were sent. */
static inline void rig_owe(struct lazy_rig *rig, uint64_t first, uint64_t count)
{
	assert_return_code(owed_add(&rig->ram.owed, 0, first, count), 0);
	for (uint64_t p = first; p < first + count; p++)
		rig->want[p] = V_NEW;
}

/* placed: a bit for each page that may have data; NULL: any may. */
static inline void rig_punch(struct lazy_rig *rig, uint64_t *placed)
{
	const struct lazy_punch p = { .what = &rig->ram.owed, .placed = &placed };

	assert_return_code(lazy_punch(&rig->ram, &p, &rig->e), 0);
}

static inline int rig_put(struct lazy_rig *rig, uint64_t first, uint64_t count, struct lazy_unit *part, struct err *e)
{
	uint8_t *bytes = malloc(count * PAGE_BYTES);
	int r;

	for (uint64_t i = 0; i < count; i++)
		rig_fill(bytes + i * PAGE_BYTES, first + i, V_NEW);
	r = lazy_put(&rig->ram, 0, first, count, bytes, part, e);
	free(bytes);
	return r;
}

static inline void rig_close(struct lazy_rig *rig)
{
	for (unsigned int i = 0; i < rig->guests; i++) {
		kill(rig->pid[i], SIGKILL);
		close(rig->ram.mm[i].uffd);
		waitpid(rig->pid[i], NULL, 0);
		munmap(rig->guest[i], sizeof(*rig->guest[i]));
	}
	munmap((void *)rig->want, PAGES);
	lazy_close(&rig->ram);
	close(rig->vm.blocks[0].fd);
}

#endif
