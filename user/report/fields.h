/* SPDX-License-Identifier: GPL-2.0-only */
/* The numbers of a report by name: each in one table, for writing and for reading. */
#ifndef GODWIT_REPORT_FIELDS_H
#define GODWIT_REPORT_FIELDS_H

#include <jansson.h>

struct field;

/**
 * struct field_table - the fields of one JSON object
 * @key: of that object in the one around it; NULL: the outermost
 */
struct field_table {
	const char *key;
	const struct field *fields;
	size_t n;
};

#define REPORT_TABLES	3

extern const struct field_table report_tables[REPORT_TABLES];	/* of a struct report */
extern const struct field_table row_table;			/* of a struct report_row */

/* Adds them to o. 0, or -1 for want of memory. */
int fields_encode(json_t *o, const struct field_table *t, const void *from);
/* Reads all of them. NULL, or the key of the first that is missing, or of another type, or out of all range. */
const char *fields_decode(const json_t *o, const struct field_table *t, void *to);

#endif
