// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "page/page.h"
#include "postcopy/faults.h"

bool faults_room(const struct faults *f)
{
	return f->nr_asked < WIRE_WANTED_MAX;
}

/* 1: *want is to be asked for. */
static int faults_serve(struct faults *f, struct lazy_mm *mm, uint64_t address,
			struct wire_extent *want, struct err *e)
{
	uint64_t page, unit;
	const struct guest_map *m = guest_maps_at(&mm->maps, address, &page);

	f->seen++;
	/* Only what lies in these maps is registered. */
	if (!m)
		return err_set(e, GW_INTERNAL, EFAULT,
			       "the kernel told of a page fault outside of the guest's RAM");
	unit = page / f->ram->owed.block[m->block].unit;
	switch (owed_fault(&f->ram->owed, m->block, unit)) {
	case OWED_HERE:
		f->zeros++;
		return lazy_settle(f->ram, mm, address, m->block, unit, e);
	case OWED_WAIT:
		return 0;
	case OWED_ASK:
		break;
	}
	*want = owed_extent(&f->ram->owed, m->block, unit);
	f->asked_ns[f->nr_asked] = now_ns();
	f->asked[f->nr_asked++] = *want;
	return 1;
}

int faults_read(struct faults *f, unsigned int mm, struct wire_extent want[WIRE_WANT_MAX],
		struct err *e)
{
	struct uffd_msg msg[WIRE_WANT_MAX];
	unsigned int room = WIRE_WANTED_MAX - f->nr_asked, n = 0;
	ssize_t got;
	int r = 0;

	if (room > WIRE_WANT_MAX)
		room = WIRE_WANT_MAX;
	if (!room)
		return 0;
	got = read(f->ram->mm[mm].uffd, msg, room * sizeof(msg[0]));
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 :
			err_set(e, GW_INTERNAL, errno, "cannot read page faults: %s",
				strerror(errno));
	for (size_t i = 0; i < (size_t)got / sizeof(msg[0]) && r >= 0; i++) {
		/* No other event was asked for. */
		if (msg[i].event != UFFD_EVENT_PAGEFAULT)
			continue;
		r = faults_serve(f, &f->ram->mm[mm], msg[i].arg.pagefault.address, &want[n], e);
		n += r > 0;
	}
	return r < 0 ? r : (int)n;
}

int faults_answered(struct faults *f, const struct wire_extent *x, struct err *e)
{
	for (unsigned int i = 0; i < f->nr_asked; i++) {
		struct wire_extent *a = &f->asked[i];

		/* What is left of a unit that has come in part begins where that ended. */
		if (a->block != x->block || x->first != a->first || x->pages > a->pages)
			continue;
		a->first += x->pages;
		a->pages -= x->pages;
		if (!a->pages) {
			latency_add(&f->waited, now_ns() - f->asked_ns[i]);
			*a = f->asked[--f->nr_asked];
			f->asked_ns[i] = f->asked_ns[f->nr_asked];
		}
		return 0;
	}
	return err_set(e, GW_BAD_PEER, EPROTO,
		       "the sender sent page %llu of block %u on the request connection, and was not asked for it",
		       (unsigned long long)x->first, x->block);
}
