// SPDX-License-Identifier: GPL-2.0-only
/*
 * A line of mountinfo, where any number of fields may stand before the dash:
 *
 *	36 35 0:27 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=1024k
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "fit/mounts.h"

static bool is_octal(char c)
{
	return c >= '0' && c <= '7';
}

/* "\040" and the like, in place. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *c = text; *c; c++) {
		if (c[0] == '\\' && is_octal(c[1]) && is_octal(c[2]) && is_octal(c[3])) {
			*to++ = (char)((c[1] - '0') << 6 | (c[2] - '0') << 3 | (c[3] - '0'));
			c += 3;
		} else {
			*to++ = *c;
		}
	}
	*to = '\0';
}

int mounts_parse(char *line, struct mount *m)
{
	char *word[6], *save = NULL, *dash;
	unsigned int major, minor;

	line[strcspn(line, "\n")] = '\0';
	dash = strstr(line, " - ");
	if (!dash)
		return -EPROTO;
	*dash = '\0';
	for (unsigned int i = 0; i < 6; i++) {
		word[i] = strtok_r(i ? NULL : line, " ", &save);
		if (!word[i])
			return -EPROTO;
	}
	if (sscanf(word[2], "%u:%u", &major, &minor) != 2)
		return -EPROTO;
	m->dev = makedev(major, minor);
	unescape(word[3]);
	unescape(word[4]);
	m->root = word[3];
	m->point = word[4];
	m->type = strtok_r(dash + 3, " ", &save);
	if (!m->type || !strtok_r(NULL, " ", &save))
		return -EPROTO;
	m->options = strtok_r(NULL, " ", &save);
	return m->options ? 0 : -EPROTO;
}

bool mounts_next(FILE *f, char **line, size_t *cap, struct mount *m)
{
	while (getline(line, cap, f) > 0)
		if (!mounts_parse(*line, m))
			return true;
	return false;
}

bool mounts_option(const char *options, const char *word)
{
	size_t len = strlen(word);

	for (const char *at = options; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (strcspn(at, ",=") == len && !strncmp(at, word, len))
			return true;
	return false;
}
