/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The report and the progress of a migration as JSON, in the words of QEMU's query-migrate; docs/report.schema.json describes
 * them, with units.
 */
#ifndef GODWIT_REPORT_JSON_H
#define GODWIT_REPORT_JSON_H

#include <jansson.h>
#include <stdio.h>

#include "err.h"
#include "migrate/report.h"

/**
 * struct saved_report - a report that was read from a file
 * @json: what @report.phase lies in
 * @outcome: how the migration ended
 */
struct saved_report {
	json_t *json;
	struct report report;
	struct err outcome;
};

int report_write_json(const char *path, const struct report *r, const struct err *outcome, struct err *e);
/* GW_USAGE when the file is no such report. saved_report_free() in either case. */
int report_read_json(const char *path, struct saved_report *out, struct err *e);
void saved_report_free(struct saved_report *s);

/* One object on a line of its own. outcome: NULL while it runs. -EIO when it cannot be written. */
int report_write_progress(FILE *f, const struct report *r, const struct err *outcome);

#endif
