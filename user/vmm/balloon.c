// SPDX-License-Identifier: GPL-2.0-only
/*
 * A balloon with free-page-hint tells QEMU during a migration which pages need not be sent; what becomes of them
 * when QEMU does not send RAM at all, nobody has promised.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "vmm/devices.h"
#include "vmm/text.h"
#include "vmm/vm.h"

static int qom_list(struct qmp *q, const char *path, json_t **out, struct err *e)
{
	return qmp_call(q, "qom-list", json_pack("{s:s}", "path", path), out, e);
}

static int check_balloon(struct qmp *q, const char *folder, const char *name, struct err *e)
{
	json_auto_t *on = NULL;
	struct err none = { 0 };
	char path[512], shown[512];
	int r;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	r = qmp_call(q, "qom-get", json_pack("{s:s, s:s}", "path", path, "property", "free-page-hint"), &on, &none);
	if (r == -EREMOTEIO)
		return 0;	/* older than the property */
	if (r)
		return err_set(e, none.exit, -r, "%s", none.text);
	if (!json_is_true(on))
		return 0;
	return err_set(e, GW_PINNED, EBUSY, "the balloon %s has free-page-hint=on, which is not safe here: unplug it (device_del), or start QEMU without",
		       one_line(shown, sizeof(shown), path));
}

static int check_folder(struct qmp *q, const char *folder, struct err *e)
{
	static const char balloon[] = "child<virtio-balloon";
	json_auto_t *list = NULL;
	json_t *item;
	size_t i;
	int r = qom_list(q, folder, &list, e);

	json_array_foreach(list, i, item) {
		const char *name = json_string_value(json_object_get(item, "name"));
		const char *type = json_string_value(json_object_get(item, "type"));

		if (!r && name && type && !strncmp(type, balloon, sizeof(balloon) - 1))
			r = check_balloon(q, folder, name, e);
	}
	return r;
}

int devices_check_balloon(struct qmp *q, struct err *e)
{
	int r = check_folder(q, "/machine/peripheral", e);

	return r ? r : check_folder(q, "/machine/peripheral-anon", e);
}

int vm_check_devices(struct qmp *q, pid_t pid, struct err *e)
{
	char proc[32];
	int r;

	snprintf(proc, sizeof(proc), "/proc/%d", (int)pid);
	r = devices_check_pins(proc, e);
	if (!r)
		r = devices_check_tracer(proc, "QEMU", e);
	return r ? r : devices_check_balloon(q, e);
}
