// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guest is stopped, and takes its links with it as they are: one that QEMU took down when its
 * backend died here would stay down at the destination, whose backend lives. With the guest stopped
 * QEMU starts nothing for a link that is up.
 */
#include <jansson.h>

#include "fit/host.h"
#include "fit/links.h"

int links_raise(struct qmp *q, const struct vm *vm, struct journal *j, struct err *e)
{
	json_auto_t *links = NULL;
	json_t *link;
	size_t i;
	int r = host_lost_links(q, vm, &links, e);

	if (!r && links)
		r = journal_links(j, json_incref(links), e);
	json_array_foreach(links, i, link) {
		struct err why = { 0 };
		json_t *name = json_object_get(link, "name");

		if (!r)
			r = qmp_call(q, "set_link",
				     json_pack("{s:O, s:b}", "name", name, "up", 1), NULL, &why);
		/* The guest moves all the same, as it did. */
		if (r && why.exit == GW_QMP)
			r = 0;
		else if (r && why.exit)
			*e = why;
	}
	return r;
}
