// SPDX-License-Identifier: GPL-2.0-only
#include <stdatomic.h>

#include "base/clock.h"
#include "page/page.h"
#include "ram/missing.h"
#include "ram/pagemap.h"

#define HUGE_2M		(2u << 20)
#define RUNS		256u
#define AHEAD		(4ull << 30)	/* a page map before 6.7 takes 5 ms/GiB */
#define VALID_NS	1000000000ull

/**
 * struct first_look - what a first look found of [from, end)
 * @ns: when it had ended
 * @writes: writes of this process by then
 * @there: the runs that are there, in order
 */
struct first_look {
	pid_t pid;
	uint64_t hva;
	uint64_t from, end;
	uint64_t ns;
	unsigned long writes;
	unsigned int nr;
	struct {
		uint64_t from, end;
	} there[RUNS];
};

static atomic_ulong writes;

void missing_void(void)
{
	atomic_fetch_add(&writes, 1);
}

/* From from on to the end of the block, or as far as one look goes: beyond a run at least. */
static int look_ahead(const struct ram_block *b, uint64_t from, struct first_look *l)
{
	uint64_t end = b->hva + b->pages * PAGE_BYTES, at, len;
	int r = 1;

	*l = (struct first_look) { .pid = b->pid, .hva = b->hva, .from = from, .end = from };
	l->writes = atomic_load(&writes);	/* a write that ends during the look voids it */
	while (l->nr < RUNS && (!l->nr || l->end - from < AHEAD)) {
		r = pagemap_next(b->pagemap, l->end, end, &at, &len);
		if (r <= 0)
			break;
		l->there[l->nr].from = at;
		l->there[l->nr++].end = l->end = at + len;
	}
	if (!r)
		l->end = end;
	l->ns = now_ns();
	return r < 0 ? r : 0;
}

static bool was_missing(const struct ram_block *b, uint64_t from, uint64_t end,
			const struct first_look *l)
{
	if (l->pid != b->pid || l->hva != b->hva || l->writes != atomic_load(&writes) ||
	    from < l->from || end > l->end || now_ns() - l->ns > VALID_NS)
		return false;
	for (unsigned int i = 0; i < l->nr && l->there[i].from < end; i++)
		if (l->there[i].end > from)
			return false;
	return true;
}

int missing_next(const struct ram_block *b, uint64_t from, uint64_t end, uint64_t *at,
		 uint64_t *len)
{
	static _Thread_local struct first_look look;
	int r;

	for (;;) {
		r = pagemap_next(b->pagemap, from, end, at, len);
		if (r < 0 || from >= end || (r && *at == from) ||
		    was_missing(b, from, r ? *at : end, &look))
			return r;
		r = look_ahead(b, from, &look);
		if (r)
			return r;
		nap_ms(b->page_size > HUGE_2M ? 200 : 5);
	}
}
