// SPDX-License-Identifier: GPL-2.0-only
/* Results: a table on standard output, and JSON. ratio is peer / godwit: more is better. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static json_t *results;

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

uint64_t median(uint64_t *values, unsigned int n)
{
	qsort(values, n, sizeof(*values), compare);
	return values[n / 2];
}

void result_add(const char *name, const char *unit, double godwit, const char *peer,
		double peer_value, double goal)
{
	bool bigger_is_better = strchr(unit, '/');
	double ratio = bigger_is_better ? godwit / peer_value : peer_value / godwit;
	json_t *entry = json_pack("{s:s, s:s, s:f, s:{s:f}, s:o, s:o}", "name", name, "unit", unit,
				  "godwit", godwit, "peers", peer, peer_value, "ratio",
				  ratio < 1e9 ? json_real(ratio) : json_null(),
				  "goal", goal > 0 ? json_real(goal) : json_null());

	if (!results)
		results = json_array();
	if (!entry || json_array_append_new(results, entry))
		die("out of memory");
	printf("%-66s %12.1f %12.1f %-6s %7.2f", name, godwit, peer_value, unit, ratio);
	if (goal > 0)
		printf("  goal %g: %s", goal, ratio >= goal ? "reached" : "MISSED");
	printf("\n");
	fflush(stdout);
}

static bool is_here(const char *name)
{
	size_t i;
	json_t *entry;

	json_array_foreach(results, i, entry)
		if (!strcmp(name, json_string_value(json_object_get(entry, "name"))))
			return true;
	return false;
}

void results_write(const char *path)
{
	json_t *old = json_load_file(path, 0, NULL), *all = json_array(), *entry;
	size_t i;

	json_array_foreach(old, i, entry) {
		const char *name = json_string_value(json_object_get(entry, "name"));

		if (name && !is_here(name))
			json_array_append(all, entry);
	}
	json_array_extend(all, results);
	if (json_dump_file(all, path, JSON_INDENT(2) | JSON_REAL_PRECISION(6)))
		die("%s cannot be written", path);
	json_decref(all);
	json_decref(old);
	json_decref(results);
}
