/* SPDX-License-Identifier: GPL-2.0-only */
/* The devices that the operator gave, with an id or without, as QEMU lists them. */
#ifndef GODWIT_PLUGGED_H
#define GODWIT_PLUGGED_H

#include <jansson.h>

#include "qmp/qmp.h"

#define PLUGGED_FOLDERS	2u

extern const char *const plugged_folders[PLUGGED_FOLDERS];

/* struct plugged - of each folder the answer to qom-list: names, and types as "child<TYPE>" */
struct plugged {
	json_t *list[PLUGGED_FOLDERS];
};

/* One round trip. plugged_free() also after an error. Errors: those of qmp_call(). */
int plugged_ask(struct qmp *q, struct plugged *p, struct err *e);
void plugged_free(struct plugged *p);

#endif
