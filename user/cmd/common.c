// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cmd/cmd.h"
#include "wire/wire.h"

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

unsigned int cmd_default_streams(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (cpus < 1)
		return 1;
	return cpus < WIRE_STREAMS_MAX ? (unsigned int)cpus : WIRE_STREAMS_MAX;
}
