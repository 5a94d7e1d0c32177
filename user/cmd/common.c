// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "cmd/cmd.h"

int cmd_fail(const struct err *e)
{
	fprintf(stderr, "godwit: %s\n", e->text);
	return e->exit;
}

int cmd_number(const char *what, const char *text, unsigned int min, unsigned int max, unsigned int *out, struct err *e)
{
	char *end;
	unsigned long v;

	errno = 0;
	v = strtoul(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || v < min || v > max)
		return err_set(e, GW_USAGE, EINVAL, "%s takes a whole number from %u to %u, not \"%s\"", what, min, max, text);
	*out = (unsigned int)v;
	return 0;
}
