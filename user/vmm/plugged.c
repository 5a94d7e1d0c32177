// SPDX-License-Identifier: GPL-2.0-only
#include "vmm/plugged.h"

const char *const plugged_folders[PLUGGED_FOLDERS] = {
	"/machine/peripheral", "/machine/peripheral-anon",
};

int plugged_ask(struct qmp *q, struct plugged *p, struct err *e)
{
	struct qmp_batch b[PLUGGED_FOLDERS];
	int r;

	for (unsigned int i = 0; i < PLUGGED_FOLDERS; i++)
		b[i] = (struct qmp_batch) {
			.command = "qom-list", .must = true,
			.args = json_pack("{s:s}", "path", plugged_folders[i]),
		};
	r = qmp_call_all(q, b, PLUGGED_FOLDERS, e);
	for (unsigned int i = 0; i < PLUGGED_FOLDERS; i++)
		p->list[i] = b[i].ret;
	return r;
}

void plugged_free(struct plugged *p)
{
	for (unsigned int i = 0; i < PLUGGED_FOLDERS; i++)
		json_decref(p->list[i]);
}
