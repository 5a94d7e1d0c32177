/* SPDX-License-Identifier: GPL-2.0-only */
/* The numbers of a report by their JSON keys: one table is used to write and to read them. */
#ifndef GODWIT_REPORT_FIELDS_H
#define GODWIT_REPORT_FIELDS_H

#include <jansson.h>

struct field;

/**
 * struct field_table - the fields of one JSON object
 * @key: of that object in the outer one; NULL: it is the outermost
 */
struct field_table {
	const char *key;
	const struct field *fields;
	size_t n;
};

#define REPORT_TABLES	7

extern const struct field_table report_tables[REPORT_TABLES];	/* of a struct report */
extern const struct field_table row_table;			/* of a struct report_row */

/* Adds the fields to o. 0, or -1: out of memory. */
int fields_encode(json_t *o, const struct field_table *t, const void *from);
/*
 * Reads the fields; those that earlier versions did not have may be missing. NULL, or the key of
 * the first that is missing, has another type, or is out of range.
 */
const char *fields_decode(const json_t *o, const struct field_table *t, void *to);

#endif
