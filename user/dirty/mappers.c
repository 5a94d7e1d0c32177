// SPDX-License-Identifier: GPL-2.0-only
/*
 * Checks the open files of the processes beside the VMM that map guest RAM. The module sees the
 * stores of these processes, and those of block devices; it does not see those of a device that has
 * the RAM pinned, nor those of a debugger.
 *
 * godwit does not refuse a process because it has a VFIO container, or a similar device: a switch
 * has one for its network cards, and gives it no guest RAM. godwit then checks the RAM: a device
 * that may write a page has the page pinned. Direct I/O pins pages as well, but not for long, and
 * the module sees its writes; so only a page that stays pinned for STAYS_NS counts. (With huge
 * pages, disks that never pause for as long look the same. Once the guest is stopped, disk I/O has
 * been drained.)
 *
 * Not seen: pins of a process that does not map the RAM any more, if no process that does map it
 * has such a device; a device whose descriptor a thread does not share with its process, or whose
 * descriptor is closed while an io_uring or a mapping keeps the device.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "dirty/source.h"
#include "vmm/mapper.h"

#define ROOM		1024u		/* processes */
#define STAYS_NS	1000000000ull
/* Until processes that start, exit, or come and go have settled. */
#define SETTLES_NS	1000000000ull

struct mappers {
	uint32_t pids[ROOM];
	unsigned int n;
};

static int mappers_compare(const void *a, const void *b)
{
	const uint32_t *left = a, *right = b;

	return *left < *right ? -1 : *left > *right;
}

static int mappers_ask(struct dirty_source *s, struct mappers *m, struct err *e)
{
	int n = s->ops->mappers(s, m->pids, ROOM, e);

	if (n < 0)
		return n;
	if ((unsigned int)n > ROOM)
		return err_set(e, GW_VM_STATE, E2BIG,
			       "%d processes map guest RAM, and godwit checks up to %u: find them in /proc/*/maps, and end some",
			       n, ROOM);
	m->n = (unsigned int)n;
	qsort(m->pids, m->n, sizeof(m->pids[0]), mappers_compare);
	return 0;
}

static bool mappers_same(const struct mappers *a, const struct mappers *b)
{
	return a->n == b->n && !memcmp(a->pids, b->pids, a->n * sizeof(a->pids[0]));
}

/* 1: *page of the block stays pinned; 0: none does; or -errno. */
static int mappers_find_pin(struct dirty_source *s, unsigned int block, uint64_t *page,
			    struct err *e)
{
	uint64_t end = s->vm->blocks[block].pages, at = 0, since = 0, first, count;
	int r;

	while (at < end && (r = s->ops->next_pinned(s, block, at, end, &first, &count, e))) {
		if (r < 0)
			return r;
		*page = first;
		if (first != at || !since)
			since = now_ns();
		else if (now_ns() - since >= STAYS_NS)
			return 1;
		at = first;
		nap_ms(1);
	}
	return 0;
}

static int mappers_check_pins(struct dirty_source *s, const struct mapper *m, struct err *e)
{
	uint64_t page = 0;
	int r = 0;

	for (unsigned int i = 0; !r && i < s->vm->nblocks; i++) {
		r = mappers_find_pin(s, i, &page, e);
		if (r > 0)
			r = mapper_refuse(m, s->vm->blocks[i].name, page, e);
	}
	return r;
}

/*
 * The kernel does not say which process made a pin, so one check of the pins serves all processes.
 */
static int mappers_check_all(struct dirty_source *s, const char *root, const struct mappers *m,
			     struct err *e)
{
	struct mapper with_device = { 0 }, one;
	char proc[64];
	int r = 0;

	for (unsigned int i = 0; !r && i < m->n; i++) {
		if (!m->pids[i] || m->pids[i] == (uint32_t)s->vm->pid)
			continue;
		snprintf(proc, sizeof(proc), "%.50s/%u", root, m->pids[i]);
		r = mapper_check(proc, &one, e);
		if (*one.device)
			with_device = one;
	}
	return r || !*with_device.device ? r : mappers_check_pins(s, &with_device, e);
}

static int mappers_unsettled(bool unseen, struct err *e)
{
	if (!unseen)
		return err_set(e, GW_BUSY, EAGAIN,
			       "processes that map guest RAM come and go without end: try again later");
	return err_set(e, GW_PINNED, EBUSY,
		       "a process outside this pid namespace maps guest RAM, and godwit cannot check its devices: run godwit in the host's pid namespace; if godwit runs there, a device (vhost) has outlived its process: end the process that holds the device open");
}

int source_check_mappers(struct dirty_source *s, const char *root, struct err *e)
{
	uint64_t deadline = now_ns() + SETTLES_NS;
	struct mappers seen, now;
	int r;

	s->changed = false;
	if (!s->ops->mappers)
		return 0;
	r = mappers_ask(s, &seen, e);
	while (!r) {
		bool unseen = seen.n && !seen.pids[0];

		s->beside = seen.n > 1;
		r = mappers_check_all(s, root, &seen, e);
		/* Asks again: another process may have got a pid before the check read /proc. */
		if (!r)
			r = mappers_ask(s, &now, e);
		if (r || (!unseen && mappers_same(&seen, &now)))
			return r;
		if (now_ns() > deadline)
			return mappers_unsettled(unseen, e);
		seen = now;
		nap_ms(10);
	}
	return r;
}
