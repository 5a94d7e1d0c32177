/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Text and paths in JSON, which is UTF-8: of what is not, json_string() and json_pack() make
 * nothing.
 */
#ifndef GODWIT_JSON_TEXT_H
#define GODWIT_JSON_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* To be shown: what is no UTF-8 as one_line() shows it, as much of that as an error's text has. */
json_t *text_to_json(const char *text);
/* To be read back: a path, or an address. A string, or {"bytes": HEX}. */
json_t *path_to_json(const char *path);
/* What that was made of, in buf or in j. NULL: neither, or it does not fit. */
const char *path_from_json(const json_t *j, char *buf, size_t size);

#endif
