// SPDX-License-Identifier: GPL-2.0-only
/*
 * A balloon with free-page-hint tells QEMU during a migration which pages QEMU need not send. QEMU
 * promises nothing about these pages when it sends no RAM at all, so godwit refuses the balloon.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "vmm/devices.h"
#include "vmm/plugged.h"
#include "vmm/vm.h"

static int balloon_check_one(struct qmp *q, const char *folder, const char *name, struct err *e)
{
	json_auto_t *on = NULL;
	struct err own = { 0 };
	char path[512], shown[512];
	int r;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	r = qmp_call(q, "qom-get",
		     json_pack("{s:s, s:s}", "path", path, "property", "free-page-hint"), &on, &own);
	if (r == -EREMOTEIO)
		return 0;	/* older than the property */
	if (r)
		return err_set(e, own.exit, -r, "%s", own.text);
	if (!json_is_true(on))
		return 0;
	return err_set(e, GW_PINNED, EBUSY,
		       "the balloon %s has free-page-hint=on, which is not safe while QEMU sends no RAM: unplug the balloon (device_del), or start QEMU without it",
		       one_line(shown, sizeof(shown), path));
}

static int balloon_check_folder(struct qmp *q, const char *folder, const json_t *list,
				struct err *e)
{
	static const char balloon[] = "child<virtio-balloon";
	const json_t *item;
	size_t i;
	int r = 0;

	json_array_foreach(list, i, item) {
		const char *name = json_string_value(json_object_get(item, "name"));
		const char *type = json_string_value(json_object_get(item, "type"));

		if (!r && name && type && !strncmp(type, balloon, sizeof(balloon) - 1))
			r = balloon_check_one(q, folder, name, e);
	}
	return r;
}

int vm_check_balloon(struct qmp *q, struct err *e)
{
	struct plugged p;
	int r = plugged_ask(q, &p, e);

	for (unsigned int i = 0; !r && i < PLUGGED_FOLDERS; i++)
		r = balloon_check_folder(q, plugged_folders[i], p.list[i], e);
	plugged_free(&p);
	return r;
}
