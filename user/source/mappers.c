// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the processes beside the VMM that map guest RAM have open. The module sees their stores, and those of block devices; it
 * does not see a device that has the RAM pinned, nor a debugger.
 *
 * To have a VFIO container, or a device of the like, is no reason to refuse: a switch has one for its network cards, and gives
 * it no guest RAM. So then the RAM is looked at: a device that may write a page has it pinned. Direct I/O pins pages as well, but
 * not for long, and is seen; so a page counts that stays pinned for STAYS_NS. (With huge pages, disks that never rest for as
 * long look the same. At the stop, disk I/O has been drained.)
 *
 * Not seen: pins of a process that maps the RAM no more, where none that does has such a device; a device by a descriptor
 * that a thread does not share with its process, or that is closed and lives on in an io_uring or a mapping.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/sock.h"
#include "source/source.h"
#include "vmm/mapper.h"

#define ROOM		1024u
#define STAYS_NS	1000000000ull
/* For who is on the way out, or in, and for processes that come and go. */
#define SETTLES_NS	1000000000ull

struct mappers {
	uint32_t pids[ROOM];
	unsigned int n;
};

static int compare(const void *a, const void *b)
{
	const uint32_t *left = a, *right = b;

	return *left < *right ? -1 : *left > *right;
}

static int ask(struct dirty_source *s, struct mappers *m, struct err *e)
{
	int n = s->ops->mappers(s, m->pids, ROOM, e);

	if (n < 0)
		return n;
	if ((unsigned int)n > ROOM)
		return err_set(e, GW_VM_STATE, E2BIG, "%d processes map the RAM, and godwit looks at %u: see who maps it in /proc/*/maps", n, ROOM);
	m->n = (unsigned int)n;
	qsort(m->pids, m->n, sizeof(m->pids[0]), compare);
	return 0;
}

static bool same(const struct mappers *a, const struct mappers *b)
{
	return a->n == b->n && !memcmp(a->pids, b->pids, a->n * sizeof(a->pids[0]));
}

/* 1: *page of the block stays pinned; 0: none does. */
static int stays_pinned(struct dirty_source *s, unsigned int block, uint64_t *page, struct err *e)
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

static int check_pinned(struct dirty_source *s, const struct mapper *m, struct err *e)
{
	uint64_t page = 0;
	int r = 0;

	for (unsigned int i = 0; !r && i < s->vm->nblocks; i++) {
		r = stays_pinned(s, i, &page, e);
		if (r > 0)
			r = mapper_refuse(m, s->vm->blocks[i].name, page, e);
	}
	return r;
}

/* A pin cannot be told whose it is, so one look at them is enough for all processes. */
static int look(struct dirty_source *s, const char *root, const struct mappers *m, struct err *e)
{
	struct mapper with_device = { 0 }, one;
	char proc[64];
	int r = 0;

	for (unsigned int i = 0; !r && i < m->n; i++) {
		if (!m->pids[i] || m->pids[i] == (uint32_t)s->vm->pid)
			continue;
		snprintf(proc, sizeof(proc), "%.50s/%u", root, m->pids[i]);
		r = mapper_look(proc, &one, e);
		if (*one.device)
			with_device = one;
	}
	return r || !*with_device.device ? r : check_pinned(s, &with_device, e);
}

static int unsettled(bool unseen, struct err *e)
{
	if (!unseen)
		return err_set(e, GW_BUSY, EAGAIN, "processes that map guest RAM come and go without end: try again later");
	return err_set(e, GW_PINNED, EBUSY,
		       "guest RAM is mapped by a process that cannot be seen from here, and so not what it writes: run godwit in the host's pid namespace; if it is there, a device (vhost) has outlived its process: end who holds that open");
}

int source_check_mappers(struct dirty_source *s, const char *root, struct err *e)
{
	uint64_t deadline = now_ns() + SETTLES_NS;
	struct mappers seen, now;
	int r;

	s->changed = false;
	if (!s->ops->mappers)
		return 0;
	r = ask(s, &seen, e);
	while (!r) {
		bool unseen = seen.n && !seen.pids[0];

		r = look(s, root, &seen, e);
		/* Has a number gone to another process before we looked? */
		if (!r)
			r = ask(s, &now, e);
		if (r || (!unseen && same(&seen, &now)))
			return r;
		if (now_ns() > deadline)
			return unsettled(unseen, e);
		seen = now;
		nap_ms(10);
	}
	return r;
}
