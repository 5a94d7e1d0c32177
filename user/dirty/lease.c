// SPDX-License-Identifier: GPL-2.0-only
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "dirty/lease.h"

/**
 * struct lease
 * @until_ns: when it expires, CLOCK_MONOTONIC
 * @clearing: clears under way
 * @cleared_ns: when the last one ended
 */
struct lease {
	_Atomic uint64_t until_ns;
	atomic_uint clearing;
	_Atomic uint64_t cleared_ns;
};

struct lease *lease_new(void)
{
	void *p = mmap(NULL, sizeof(struct lease), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

void lease_free(struct lease *l)
{
	if (l)
		munmap(l, sizeof(*l));
}

void lease_renew(struct lease *l)
{
	atomic_store(&l->until_ns, now_ns() + LEASE_NS);
}

/*
 * A thread counts itself before it looks whether the lease is over, and we end the lease before we
 * look for such threads: so either it sees the end, or we wait for it.
 */
bool lease_begin(struct lease *l)
{
	if (now_ns() >= atomic_load(&l->until_ns))
		return false;
	atomic_fetch_add(&l->clearing, 1);
	if (now_ns() < atomic_load(&l->until_ns))
		return true;
	atomic_fetch_sub(&l->clearing, 1);
	return false;
}

void lease_end(struct lease *l)
{
	uint64_t now = now_ns(), seen = atomic_load(&l->cleared_ns);

	/* Never back: another thread's may have ended later, and be here first. */
	while (seen < now && !atomic_compare_exchange_weak(&l->cleared_ns, &seen, now))
		;
	atomic_fetch_sub(&l->clearing, 1);
}

void lease_revoke(struct lease *l)
{
	uint64_t now = now_ns();

	if (atomic_load(&l->until_ns) > now)
		atomic_store(&l->until_ns, now);
	while (atomic_load(&l->clearing))
		nap_ms(1);
}

uint64_t lease_cleared_ns(const struct lease *l)
{
	return atomic_load(&l->clearing) ? now_ns() : atomic_load(&l->cleared_ns);
}
