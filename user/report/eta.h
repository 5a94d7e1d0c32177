/* SPDX-License-Identifier: GPL-2.0-only */
/* When will the guest have moved? A guess for the progress line, from what the last whole round has shown. */
#ifndef GODWIT_REPORT_ETA_H
#define GODWIT_REPORT_ETA_H

#include "migrate/report.h"

/**
 * enum eta - what can be said
 * ETA_UNKNOWN: nothing yet
 * ETA_KNOWN: after so long
 * ETA_AT_LEAST: not before: it is not known yet how fast the guest writes
 * ETA_NEVER: the guest writes as fast as the link takes it, and what a round leaves does not fit the limit
 */
enum eta { ETA_UNKNOWN, ETA_KNOWN, ETA_AT_LEAST, ETA_NEVER };

enum eta report_eta(const struct report *r, uint64_t *ns);

#endif
