/* SPDX-License-Identifier: GPL-2.0-only */
/* What both files of the journal know: what is recorded, and how that is undone. */
#ifndef GODWIT_JOURNAL_INTERNAL_H
#define GODWIT_JOURNAL_INTERNAL_H

#include "devstate/migration.h"
#include "txn/journal.h"

void journal_drop_last(struct journal *j);
/*
 * What QEMU reports of a migration at its end: a second migration of some 100 KiB hardly agrees
 * with the first in milliseconds and in bytes.
 */
json_t *journal_identity(const struct migration_status *m);

#endif
