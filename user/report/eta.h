/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Estimates when the migration ends, for the progress line, by the rates of the last whole round.
 */
#ifndef GODWIT_REPORT_ETA_H
#define GODWIT_REPORT_ETA_H

#include "report/report.h"

/**
 * enum eta - what is known of the end
 * @ETA_UNKNOWN: nothing yet
 * @ETA_KNOWN: it comes after *ns
 * @ETA_AT_LEAST: it does not come before *ns: the guest's dirty rate is not known yet
 * @ETA_NEVER: the guest writes as fast as the link sends, and what a round leaves does not fit the
 *	limit
 */
enum eta { ETA_UNKNOWN, ETA_KNOWN, ETA_AT_LEAST, ETA_NEVER };

enum eta report_eta(const struct report *r, uint64_t *ns);

#endif
