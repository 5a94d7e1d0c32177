// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/json_text.h"
#include "base/text.h"
#include "txn/mark.h"

static bool mark_is_listed(const json_t *objects)
{
	const json_t *object;
	size_t i;

	json_array_foreach(objects, i, object) {
		const char *name = json_string_value(json_object_get(object, "name"));

		if (name && !strcmp(name, MARK_ID))
			return true;
	}
	return false;
}

/* 1: *data is the mark's, "TOKEN ADDR"; 0: there is none; -errno. */
static int mark_get(struct qmp *q, json_t **data, struct err *e)
{
	json_auto_t *objects = NULL;
	int r = qmp_call(q, "qom-list", json_pack("{s:s}", "path", "/objects"), &objects, e);

	if (r || !mark_is_listed(objects))
		return r;
	r = qmp_call(q, "qom-get",
		     json_pack("{s:s, s:s}", "path", "/objects/" MARK_ID, "property", "data"),
		     data, e);
	if (!r && !json_is_string(*data))
		r = err_set(e, GW_NOT_QEMU, EPROTO,
			    "qom-get: the data of object \"" MARK_ID "\" is not text: is this QEMU's own QMP socket?");
	return r ? r : 1;
}

int mark_read(struct qmp *q, char target[MARK_MAX], struct err *e)
{
	json_auto_t *data = NULL;
	int r = mark_get(q, &data, e);
	const char *text, *at;

	if (r <= 0)
		return r;
	text = json_string_value(data);
	at = strchr(text, ' ');
	one_line(target, MARK_MAX, at ? at + 1 : text);
	return 1;
}

int mark_make(struct qmp *q, const char *token, const char *addr, struct err *e)
{
	char data[MARK_MAX];

	snprintf(data, sizeof(data), "%s %s", token, addr);
	return qmp_call(q, "object-add",
			json_pack("{s:s, s:s, s:o}", "qom-type", "secret", "id", MARK_ID,
				  "data", text_to_json(data)), NULL, e);
}

int mark_remove(struct qmp *q, const char *token, struct err *e)
{
	json_auto_t *data = NULL;
	int r = mark_get(q, &data, e);

	if (r <= 0 || strncmp(json_string_value(data), token, strlen(token)))
		return r < 0 ? r : 0;
	return qmp_call(q, "object-del", json_pack("{s:s}", "id", MARK_ID), NULL, e);
}
