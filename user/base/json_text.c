// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/json_text.h"
#include "base/text.h"

json_t *text_to_json(const char *text)
{
	char line[sizeof(((struct err *)NULL)->text)];
	json_t *j = json_string(text);

	return j ? j : json_string(one_line(line, sizeof(line), text));
}

json_t *path_to_json(const char *path)
{
	size_t len = strlen(path);
	CLEANUP_FREE char *hex = NULL;
	json_t *j = json_string(path);

	if (j)
		return j;
	hex = malloc(2 * len + 1);
	for (size_t i = 0; hex && i < len; i++)
		snprintf(hex + 2 * i, 3, "%02x", (unsigned char)path[i]);
	return hex ? json_pack("{s:s}", "bytes", hex) : NULL;
}

const char *path_from_json(const json_t *j, char *buf, size_t size)
{
	const char *hex = json_string_value(json_object_get(j, "bytes"));
	size_t len = hex ? strlen(hex) : 0;

	if (json_is_string(j))
		return json_string_value(j);
	if (!len || len % 2 || len / 2 >= size || strspn(hex, "0123456789abcdef") != len)
		return NULL;
	for (size_t i = 0; i < len / 2; i++) {
		unsigned int byte;

		sscanf(hex + 2 * i, "%2x", &byte);
		buf[i] = (char)byte;
	}
	buf[len / 2] = '\0';
	return buf;
}
