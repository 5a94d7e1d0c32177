/* SPDX-License-Identifier: GPL-2.0-only */
/* The report as text, with the labels of `virsh domjobinfo`. */
#ifndef GODWIT_REPORT_TEXT_H
#define GODWIT_REPORT_TEXT_H

#include <stdio.h>

#include "base/err.h"
#include "report/report.h"

#define REPORT_SUMMARY	128	/* bytes of the first line */

/* Writes "migrated, all RAM verified", or how and where the migration failed. */
void report_summary(const struct report *r, const struct err *outcome, char text[REPORT_SUMMARY]);
void report_print(FILE *f, const struct report *r, const struct err *outcome);

static inline double ns_to_ms(uint64_t ns) { return (double)ns / 1e6; }
static inline double ns_to_seconds(uint64_t ns) { return (double)ns / 1e9; }
static inline double bytes_to_mib(uint64_t bytes) { return (double)bytes / (1 << 20); }
/* How many times smaller these pages were on the link; 1: there were none. */
double report_ratio(uint64_t pages, uint64_t bytes);
/* Bytes per second that were sent in the row's rounds. */
double report_row_sent(const struct report_row *row);
/*
 * Page faults a second, since the guest runs at the destination. 0 also where this sender has taken
 * over from another one: it does not know since when that is.
 */
double report_fault_rate(const struct report *r);

#endif
