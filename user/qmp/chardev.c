// SPDX-License-Identifier: GPL-2.0-only
#include <string.h>

#include "qmp/chardev.h"

bool chardev_is_dead(const json_t *chardev)
{
	static const char dead[] = "disconnected:";
	const char *name = json_string_value(json_object_get(chardev, "filename"));

	return name && !strncmp(name, dead, strlen(dead));
}
