// SPDX-License-Identifier: GPL-2.0-only
/*
 * Is there room for the guest's RAM?
 *
 * The migration needs at most what the source's files hold: pages of zeros among that become holes.
 * So too little room on a tmpfs, or too little memory, is fatal, but an operator who knows better
 * may accept it: if that was wrong, the migration fails in a round, and the guest runs on at the
 * source. Room for that, but not for all of the guest's RAM, is a warning.
 *
 * On hugetlbfs the receiver reserves all of it before the first round, so too little room is
 * certain to fail.
 *
 * A file on tmpfs that is allocated as a whole (prealloc=on) stays as it is, and needs no room.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fit/host_internal.h"
#include "page/page.h"

#define CGROUPS_MAX	64u

/**
 * struct need - what the RAM blocks on one file system, or on several, need
 * @fs: its id in the destination's view
 * @name: of the first block
 * @n: how many blocks
 * @bytes: how large they are
 * @now: how much of that the source's files hold
 * @held: how much of that the destination's files hold, or is reserved for them
 */
struct need {
	const char *fs;
	const char *name;
	unsigned int n;
	uint64_t bytes, now, held;
};

struct needs {
	struct need of[WIRE_BLOCKS_MAX];
	unsigned int n;
};

/* The peer may send any numbers. */
static uint64_t plus(uint64_t a, uint64_t b)
{
	return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* In MiB, rounded up: for what is needed. */
static unsigned long long mib_up(uint64_t bytes)
{
	return bytes / (1 << 20) + (bytes % (1 << 20) > 0);
}

/* In MiB, rounded down: for what is free. */
static unsigned long long room_mib(uint64_t bytes)
{
	return bytes / (1 << 20);
}

static void add_need(struct need *to, const struct need *n)
{
	if (!to->n)
		to->name = n->name;
	to->n += n->n;
	to->bytes = plus(to->bytes, n->bytes);
	to->now = plus(to->now, n->now);
	to->held = plus(to->held, n->held);
}

static const json_t *fs_of(const json_t *dst, const struct need *n)
{
	return json_object_get(json_object_get(dst, "fs"), n->fs);
}

static bool is_on_fs(const json_t *dst, const struct need *n, const char *what)
{
	const char *type = host_text(fs_of(dst, n), "type");

	return type && !strcmp(type, what);
}

static bool is_hugetlb(const json_t *dst, const struct need *n)
{
	return is_on_fs(dst, n, "hugetlbfs");
}

/* The caller adds WIRE_BLOCKS_MAX blocks at most. */
static void add_to(struct needs *all, const struct need *n)
{
	unsigned int i = 0;

	while (i < all->n && strcmp(all->of[i].fs, n->fs))
		i++;
	if (i == all->n)
		all->of[all->n++] = (struct need) { .fs = n->fs };
	add_need(&all->of[i], n);
}

/**
 * struct mates - the destination's blocks, and which of the source's each of them takes
 * A VM has WIRE_BLOCKS_MAX blocks at most, a hostile view may have more.
 */
struct mates {
	struct mate {
		const char *name;
		const json_t *block, *source;
	} of[WIRE_BLOCKS_MAX];
	unsigned int n;
};

enum mate_by { BY_PLACE, BY_NAME, BY_SIZE };

static bool is_mate(const json_t *src, const char *its, const json_t *dst, const char *name,
		    enum mate_by by)
{
	const char *fact = by == BY_PLACE ? "address" : "bytes";
	uint64_t here, there;

	if (by == BY_NAME)
		return !strcmp(its, name);
	if (by == BY_SIZE) {
		src = json_object_get(src, "host");
		dst = json_object_get(dst, "host");
	}
	src = json_object_get(json_object_get(src, "ram"), its);
	dst = json_object_get(json_object_get(dst, "ram"), name);
	return host_number(src, fact, &here) && host_number(dst, fact, &there) && here == there;
}

static bool is_taken(const struct mates *m, const json_t *source)
{
	for (unsigned int i = 0; i < m->n; i++)
		if (m->of[i].source == source)
			return true;
	return false;
}

static void find_mates(const json_t *src, const json_t *dst, enum mate_by by, struct mates *m)
{
	json_t *block, *ram = json_object_get(json_object_get(src, "host"), "ram");
	const char *its;

	for (unsigned int i = 0; i < m->n; i++)
		json_object_foreach(ram, its, block)
			if (!m->of[i].source && is_mate(src, its, dst, m->of[i].name, by) &&
			    !is_taken(m, block))
				m->of[i].source = block;
}

/* As the receiver matches them (agree_ram.c), and of what it leaves to QEMU the likeliest. */
static void pair_up(const json_t *src, const json_t *dst, struct mates *m)
{
	json_t *block, *ram = json_object_get(json_object_get(dst, "host"), "ram");
	const char *name;

	json_object_foreach(ram, name, block)
		if (m->n < WIRE_BLOCKS_MAX)
			m->of[m->n++] = (struct mate) { .name = name, .block = block };
	for (enum mate_by by = BY_PLACE; by <= BY_SIZE; by++)
		find_mates(src, dst, by, m);
}

/* Sums up by file system. host: the destination's. */
static void sum_up(const struct mates *m, const json_t *host, struct needs *all)
{
	for (unsigned int i = 0; i < m->n; i++) {
		const json_t *block = m->of[i].block;
		struct need need = {
			.fs = host_text(block, "fs"), .name = m->of[i].name, .n = 1,
		};
		uint64_t reserved = 0;

		if (!need.fs || !host_number(block, "bytes", &need.bytes))
			continue;
		host_number(m->of[i].source, "allocated", &need.now);
		host_number(block, "allocated", &need.held);
		host_number(block, "reserved", &reserved);
		if (is_hugetlb(host, &need))
			need.held = plus(need.held, reserved);
		else if (need.held >= need.bytes)
			continue;
		add_to(all, &need);
	}
}

/* RAM "ram0", or RAM "ram0" and 2 more. */
static const char *ram_text(const struct need *n, char text[112])
{
	if (n->n > 1)
		snprintf(text, 112, "RAM \"%.64s\" and %u more", n->name, n->n - 1);
	else
		snprintf(text, 112, "RAM \"%.64s\"", n->name);
	return text;
}

static void compare_tmpfs(const struct need *n, const json_t *fs, struct findings *f)
{
	const char *mount = host_text(fs, "mount");
	uint64_t room, size = 0;
	char ram[112], way_out[160];

	if (!host_number(fs, "free", &room))
		return;
	mount = mount ? mount : "(its mount)";
	host_number(fs, "size", &size);
	room = plus(room, n->held);
	snprintf(way_out, sizeof(way_out), "make room there, or mount -o remount,size=%lluM %.80s",
		 mib_up(plus(size, minus(n->bytes, room))), mount);
	if (n->now > room)
		findings_add(f, FIT_ROOM, FIT_FATAL,
			     "no room at the destination for %s: it holds %llu MiB, and %llu MiB are free for it on the tmpfs %.80s: %s",
			     ram_text(n, ram), mib_up(n->now), room_mib(room), mount, way_out);
	else if (n->bytes > room)
		findings_add(f, FIT_ROOM, FIT_WARNING,
			     "%s holds %llu of %llu MiB, and %llu MiB are free for it on the destination's tmpfs %.80s: the guest stops, or QEMU is killed, when it uses more: %s",
			     ram_text(n, ram), mib_up(n->now), mib_up(n->bytes), room_mib(room),
			     mount, way_out);
}

/* Compares with the mount's own limit. */
static void compare_hugetlb(const struct need *n, const json_t *fs, struct findings *f)
{
	const char *mount = host_text(fs, "mount");
	uint64_t room;
	char ram[112];

	if (!host_number(fs, "free", &room))
		return;
	room = plus(room, n->held);
	if (n->bytes <= room)
		return;
	findings_add(f, FIT_ROOM, FIT_IMPOSSIBLE,
		     "no room at the destination for %s: all of its %llu MiB are needed, and %llu MiB are free for it on the hugetlbfs %.80s: mount that with a larger size=",
		     ram_text(n, ram), mib_up(n->bytes), room_mib(room), mount ? mount : "(its mount)");
}

static void compare_pool(const struct need *n, uint64_t page, uint64_t room, struct findings *f)
{
	unsigned long long kib = page / 1024, needed = minus(n->bytes, n->held) / page;
	char ram[112];

	if (needed <= room / page)
		return;
	findings_add(f, FIT_ROOM, FIT_IMPOSSIBLE,
		     "no room at the destination for %s: it takes %llu huge pages of %llu KiB, of which %llu are free and not reserved: add %llu to /sys/kernel/mm/hugepages/hugepages-%llukB/nr_hugepages there",
		     ram_text(n, ram), needed, kib, (unsigned long long)(room / page),
		     needed - room / page, kib);
}

/* All mounts of one page size share a pool. */
static void compare_pools(const struct needs *all, const json_t *dst, struct findings *f)
{
	json_t *free_bytes, *pools = json_object_get(dst, "pool");
	const char *key;

	json_object_foreach(pools, key, free_bytes) {
		uint64_t page = strtoull(key, NULL, 10), room, its = 0;
		struct need sum = { .n = 0 };

		if (page < PAGE_BYTES || !host_number(pools, key, &room))
			continue;
		for (unsigned int i = 0; i < all->n; i++) {
			const struct need *n = &all->of[i];

			host_number(fs_of(dst, n), "page", &its);
			if (is_hugetlb(dst, n) && its == page)
				add_need(&sum, n);
		}
		if (sum.n)
			compare_pool(&sum, page, room, f);
	}
}

/* Only for tmpfs, which can be swapped out. */
static void compare_memory(const struct need *n, const json_t *memory, struct findings *f)
{
	uint64_t now = minus(n->now, n->held), all = minus(n->bytes, n->held), room, swap = 0;
	char ram[112], has[128];

	if (!host_number(memory, "available", &room))
		return;
	host_number(memory, "swap", &swap);
	ram_text(n, ram);
	snprintf(has, sizeof(has),
		 "the destination has %llu MiB of memory available, and %llu MiB of swap",
		 room_mib(room), room_mib(swap));
	if (now > plus(room, swap))
		findings_add(f, FIT_ROOM, FIT_FATAL,
			     "no memory at the destination for %s: it needs %llu MiB, and %s: the kernel there would kill processes: free memory there, or use another host",
			     ram, mib_up(now), has);
	else if (now > room)
		findings_add(f, FIT_ROOM, FIT_WARNING,
			     "%s needs %llu MiB, and %s: it would be swapped out: free memory there, or use another host",
			     ram, mib_up(now), has);
	else if (all > plus(room, swap))
		findings_add(f, FIT_ROOM, FIT_WARNING,
			     "%s needs %llu MiB, %llu MiB when the guest uses all of it, and %s: the kernel there kills processes then: free memory there, or use another host",
			     ram, mib_up(now), mib_up(all), has);
}

/* now: what the receiver writes, and is charged to it. */
static void compare_cgroup(const json_t *cgroup, bool qemu, uint64_t now, uint64_t swap,
			   struct findings *f)
{
	uint64_t limit = 0, room = UINT64_MAX, high = 0, high_room = UINT64_MAX, own_swap;
	const char *path = host_text(cgroup, "path");
	const char *of = qemu ? "the destination QEMU" : "the receiver";
	const char *it = qemu ? "QEMU" : "godwit receive";

	if (!path)
		return;
	host_number(cgroup, "limit", &limit);
	host_number(cgroup, "room", &room);
	host_number(cgroup, "high", &high);
	host_number(cgroup, "high-room", &high_room);
	if (host_number(cgroup, "swap", &own_swap) && own_swap < swap)
		swap = own_swap;
	if (now > plus(room, swap))
		findings_add(f, FIT_ROOM, FIT_FATAL,
			     "the memory cgroup of %s, %.160s, has %llu of %llu MiB left, and the guest's RAM, which is charged to it, needs %llu MiB: raise its limit, run %s in another, or start the destination QEMU with prealloc=on",
			     of, path, room_mib(room), room_mib(limit), mib_up(now), it);
	else if (now > room)
		findings_add(f, FIT_ROOM, FIT_WARNING,
			     "the memory cgroup of %s, %.160s, has %llu of %llu MiB left, and the guest's RAM, which is charged to it, needs %llu MiB: some would be swapped out: raise its limit, or run %s in another",
			     of, path, room_mib(room), room_mib(limit), mib_up(now), it);
	else if (now > high_room)
		findings_add(f, FIT_ROOM, FIT_WARNING,
			     "the memory cgroup of %s, %.160s, is slowed down (memory.high, %llu MiB) when it takes %llu MiB more, and the guest's RAM needs %llu MiB: raise memory.high, or run %s in another",
			     of, path, room_mib(high), room_mib(high_room), mib_up(now), it);
}

static bool has_cgroup(const json_t *cgroups, const char *path)
{
	for (size_t i = 0; path && i < CGROUPS_MAX; i++) {
		const char *other = host_text(json_array_get(cgroups, i), "path");

		if (other && !strcmp(path, other))
			return true;
	}
	return false;
}

/*
 * Pages of files are charged to the receiver's cgroups, those that the guest touches first to
 * QEMU's; private memory is all charged to QEMU's. A cgroup above both has to have room for both.
 */
static void compare_cgroups(const json_t *dst, uint64_t files, uint64_t private, struct findings *f)
{
	const json_t *cgroup, *ours = json_object_get(dst, "cgroups");
	const json_t *its = json_object_get(dst, "qemu-cgroups");
	uint64_t swap = 0;
	size_t i;

	host_number(json_object_get(dst, "memory"), "swap", &swap);
	for (i = 0; i < CGROUPS_MAX && (cgroup = json_array_get(ours, i)); i++)
		if (!has_cgroup(its, host_text(cgroup, "path")))
			compare_cgroup(cgroup, false, files, swap, f);
	for (i = 0; i < CGROUPS_MAX && (cgroup = json_array_get(its, i)); i++)
		compare_cgroup(cgroup, true,
			       plus(private, has_cgroup(ours, host_text(cgroup, "path")) ? files : 0),
			       swap, f);
}

void host_compare_room(const json_t *src, const json_t *view, struct findings *f)
{
	const json_t *dst = json_object_get(view, "host");
	struct need memory = { .n = 0 }, files = { .n = 0 }, private = { .n = 0 };
	struct mates mates = { .n = 0 };
	struct needs all = { .n = 0 };

	pair_up(src, view, &mates);
	sum_up(&mates, dst, &all);
	for (unsigned int j = 0; j < all.n; j++) {
		const struct need *n = &all.of[j];

		if (is_hugetlb(dst, n)) {
			compare_hugetlb(n, fs_of(dst, n), f);
			continue;
		}
		compare_tmpfs(n, fs_of(dst, n), f);
		add_need(&memory, n);
		add_need(is_on_fs(dst, n, "memory") ? &private : &files, n);
	}
	compare_pools(&all, dst, f);
	if (!memory.n)
		return;
	compare_memory(&memory, json_object_get(dst, "memory"), f);
	compare_cgroups(dst, minus(files.now, files.held), minus(private.now, private.held), f);
}
