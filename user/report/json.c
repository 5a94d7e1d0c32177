// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json_text.h"
#include "page/page.h"
#include "report/eta.h"
#include "report/fields.h"
#include "report/json.h"
#include "report/text.h"

/* The part that report and progress have in common. outcome may be NULL. */
static json_t *report_encode(const struct report *r, const struct err *outcome)
{
	json_t *j = json_object(), *o;
	int failed = 0;

	if (outcome) {
		const char *status = gw_exit_name(outcome->exit);

		failed |= json_object_set_new(j, "status", json_string(status));
		failed |= json_object_set_new(j, "exit", json_integer(outcome->exit));
		failed |= json_object_set_new(j, "message", text_to_json(outcome->text));
	}
	failed |= json_object_set_new(j, "phase", json_string(r->phase));
	for (int i = 0; i < REPORT_TABLES; i++) {
		const struct field_table *t = &report_tables[i];

		o = t->key ? json_object() : j;
		failed |= fields_encode(o, t, r);
		if (t->key)
			failed |= json_object_set_new(j, t->key, o);
	}
	failed |= json_object_set_new(json_object_get(j, "ram"), "page-size",
				      json_integer(PAGE_BYTES));
	failed |= json_object_set_new(json_object_get(j, "postcopy"), "faults-rate",
				      json_real(report_fault_rate(r)));
	if (!failed)
		return j;
	json_decref(j);
	return NULL;
}

static int report_encode_rows(json_t *j, const struct report *r)
{
	json_t *rows = json_array(), *row;
	int failed = 0;

	for (unsigned int i = 0; i < r->nr_rows; i++) {
		row = json_object();
		failed |= fields_encode(row, &row_table, &r->rows[i]);
		failed |= json_array_append_new(rows, row);
	}
	return json_object_set_new(j, "rounds", rows) | failed;
}

static int report_no_place(const char *path, enum gw_exit exit, int errnum, struct err *e)
{
	return err_set(e, exit, errnum, "cannot write the report to %.400s: %s; give the path of a file in a directory that you can write to",
		       path, strerror(errnum));
}

int report_check_path(const char *path, struct err *e)
{
	char copy[PATH_MAX];
	struct stat st;

	if (strlen(path) >= sizeof(copy))
		return report_no_place(path, GW_USAGE, ENAMETOOLONG, e);
	if (!stat(path, &st))
		errno = S_ISDIR(st.st_mode) ? EISDIR : access(path, W_OK) ? errno : 0;
	else if (errno == ENOENT && *path)
		errno = access(dirname(strcpy(copy, path)), W_OK | X_OK) ? errno : 0;
	return errno ? report_no_place(path, GW_USAGE, errno, e) : 0;
}

int report_write_json(const char *path, const struct report *r, const struct err *outcome,
		      struct err *e)
{
	json_t *j = report_encode(r, outcome);
	FILE *f = fopen(path, "we");
	int error = f ? EIO : errno;
	int failed = !f || !j || report_encode_rows(j, r) ||
		     json_dumpf(j, f, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) ||
		     putc('\n', f) == EOF;

	if (f)
		failed |= fclose(f);
	json_decref(j);
	if (!failed)
		return 0;
	return report_no_place(path, GW_INTERNAL, error, e);
}

static int report_encode_eta(json_t *j, const struct report *r)
{
	uint64_t ns;
	enum eta eta = report_eta(r, &ns);

	if (eta == ETA_NEVER)
		return json_object_set_new(j, "converges", json_false());
	if (eta != ETA_KNOWN)
		return 0;
	return json_object_set_new(j, "converges", json_true()) |
	       json_object_set_new(j, "eta", json_real((double)ns / 1e6));
}

char *report_progress_line(const struct report *r, const struct err *outcome)
{
	json_t *j = report_encode(r, outcome);
	char *text = NULL, *line = NULL;

	if (j && (outcome || !report_encode_eta(j, r)))
		text = json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9));
	json_decref(j);
	if (text && asprintf(&line, "%s\n", text) < 0)
		line = NULL;
	free(text);
	return line;
}

/* The error for a file that is no report. */
static int report_bad_file(const char *path, const char *what, struct err *e)
{
	return err_set(e, GW_USAGE, EINVAL, "%s is not a report of \"godwit send --json\": %s",
		       path, what);
}

static int report_decode_table(const char *path, const json_t *o, const struct field_table *t,
			       void *to, struct err *e)
{
	const char *key = fields_decode(o, t, to);
	char what[128];

	if (!key)
		return 0;
	snprintf(what, sizeof(what), "\"%s\"%s%s is missing or invalid", key, t->key ? " in " : "",
		 t->key ? t->key : "");
	return report_bad_file(path, what, e);
}

static int report_decode_rows(const char *path, const json_t *rows, struct report *r, struct err *e)
{
	int ret = 0;

	if (!json_is_array(rows) || json_array_size(rows) > REPORT_ROWS)
		return report_bad_file(path, "\"rounds\" is missing or invalid", e);
	while (!ret && r->nr_rows < json_array_size(rows)) {
		struct report_row *row = &r->rows[r->nr_rows];

		ret = report_decode_table(path, json_array_get(rows, r->nr_rows), &row_table, row,
					  e);
		if (!ret && (row->end_ns < row->start_ns ||
			     (r->nr_rows && row->start_ns < row[-1].end_ns)))
			ret = report_bad_file(path, "the rounds are not in order", e);
		if (!ret)
			r->nr_rows++;
	}
	return ret;
}

static int report_decode_outcome(const char *path, const json_t *j, struct report_file *out,
				 struct err *e)
{
	const char *text = json_string_value(json_object_get(j, "message"));
	json_int_t exit = json_integer_value(json_object_get(j, "exit"));

	out->report.phase = json_string_value(json_object_get(j, "phase"));
	if (!text || !out->report.phase || exit < 0 || exit >= GW_EXITS)
		return report_bad_file(path, "\"exit\", \"message\" or \"phase\" is missing or invalid", e);
	out->outcome.exit = (enum gw_exit)exit;
	snprintf(out->outcome.text, sizeof(out->outcome.text), "%s", text);
	return 0;
}

int report_read_json(const char *path, struct report_file *out, struct err *e)
{
	json_error_t error;
	int r;

	*out = (struct report_file) { .json = json_load_file(path, 0, &error) };
	if (!out->json)
		return err_set(e, GW_USAGE, EINVAL, "cannot read %s: %s", path, error.text);
	r = report_decode_outcome(path, out->json, out, e);
	for (int i = 0; i < REPORT_TABLES && !r; i++) {
		const struct field_table *t = &report_tables[i];

		json_t *o = t->key ? json_object_get(out->json, t->key) : out->json;

		r = report_decode_table(path, o, t, &out->report, e);
	}
	if (r)
		return r;
	return report_decode_rows(path, json_object_get(out->json, "rounds"), &out->report, e);
}

void report_file_free(struct report_file *s)
{
	json_decref(s->json);
	s->json = NULL;
}
