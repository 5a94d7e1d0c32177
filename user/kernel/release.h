/* SPDX-License-Identifier: GPL-2.0-only */
/* How old a Linux is, by its release (uname -r), where nothing else tells what it does. */
#ifndef GODWIT_RELEASE_H
#define GODWIT_RELEASE_H

#include <stdbool.h>
#include <stdio.h>

/* Is it older than version major.minor? A release that cannot be read is. */
static inline bool release_before(const char *release, unsigned int major, unsigned int minor)
{
	unsigned int is_major = 0, is_minor = 0;

	sscanf(release, "%u.%u", &is_major, &is_minor);
	return is_major < major || (is_major == major && is_minor < minor);
}

#endif
