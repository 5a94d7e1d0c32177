/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The report and the progress of a migration as JSON, with the keys of QEMU's query-migrate;
 * docs/report.schema.json describes them, with units.
 */
#ifndef GODWIT_REPORT_JSON_H
#define GODWIT_REPORT_JSON_H

#include <jansson.h>

#include "base/err.h"
#include "report/report.h"

/**
 * struct report_file - a report that was read from a file
 * @json: holds the string @report.phase
 * @outcome: how the migration ended
 */
struct report_file {
	json_t *json;
	struct report report;
	struct err outcome;
};

/* Before anything is done: can a report be written there? GW_USAGE: no. */
int report_check_path(const char *path, struct err *e);
int report_write_json(const char *path, const struct report *r, const struct err *outcome,
		      struct err *e);
/* GW_USAGE: the file is no such report. report_file_free() also after an error. */
int report_read_json(const char *path, struct report_file *out, struct err *e);
void report_file_free(struct report_file *s);

/* One object on a line, for free(). outcome: NULL while the migration runs. NULL: out of memory. */
char *report_progress_line(const struct report *r, const struct err *outcome);

#endif
