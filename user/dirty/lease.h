/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The right to clear KVM's dirty log. KVM has one log for a VM, and a migration of QEMU's own reads
 * it, too: a bit that godwit clears after QEMU has sent that page is a write that QEMU never hears
 * of. Nothing tells godwit that such a migration begins, so it asks QEMU again and again, and
 * clears only for a short while after QEMU has said that none is under way: under a lease.
 *
 * A migration that begins before that answer is seen in it. One that begins after it may lose what
 * is cleared before the next answer; that one shows it, together with when it began, and it can be
 * cancelled as long as it has not completed. Of one that begins and completes between two answers
 * the second tells, and godwit says that writes may be missing there.
 *
 * A lease lies in shared memory: the guardian (txn/guardian.h) looks at it when the sender has
 * died.
 */
#ifndef GODWIT_LEASE_H
#define GODWIT_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * An answer is due every STOP_SLICE_NS. Longer than that, as a clear that is put off slows the
 * migration down: QEMU may take its time to answer.
 */
#define LEASE_NS	500000000ull

struct lease;

/* NULL: out of memory. It has expired already. */
struct lease *lease_new(void);
void lease_free(struct lease *l);
/* QEMU has just answered that it has no migration under way. */
void lease_renew(struct lease *l);
/* Ends the lease. On return no clear is under way, and none begins before lease_renew(). */
void lease_revoke(struct lease *l);
/* Around each clear, by any thread. false: the lease has expired, nothing may be cleared. */
bool lease_begin(struct lease *l);
void lease_end(struct lease *l);
/*
 * Not earlier than the end of the last clear, CLOCK_MONOTONIC; 0: there was none. What has begun
 * later has lost nothing. Of a process that has died in a clear: now, as the module may be at it
 * still.
 */
uint64_t lease_cleared_ns(const struct lease *l);

#endif
