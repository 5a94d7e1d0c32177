// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#include "cmd/cmd.h"

int cmd_fail(const struct err *e)
{
	if (e->exit)
		fprintf(stderr, "godwit: %s\n", e->text);
	return e->exit;
}

static int common_number(const struct cmd_option *o, const char *text, unsigned int min,
			 unsigned int max, unsigned int *out, struct err *e)
{
	char *end;
	unsigned long v;

	errno = 0;
	v = strtoul(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || v < min || v > max)
		return err_set(e, GW_USAGE, EINVAL,
			       "--%s takes a whole number from %u to %u, not \"%s\"", o->name, min,
			       max, text);
	*out = (unsigned int)v;
	return 0;
}

int cmd_set_flag(const struct cmd_option *o, const char *text, void *to, struct err *e)
{
	(void)o;
	(void)text;
	(void)e;
	*(bool *)to = true;
	return 0;
}

int cmd_set_text(const struct cmd_option *o, const char *text, void *to, struct err *e)
{
	(void)o;
	(void)e;
	*(const char **)to = text;
	return 0;
}

int cmd_set_number(const struct cmd_option *o, const char *text, void *to, struct err *e)
{
	return common_number(o, text, o->min, o->max, to, e);
}

int cmd_set_seconds(const struct cmd_option *o, const char *text, void *to, struct err *e)
{
	unsigned int s;
	int r = common_number(o, text, o->min, o->max, &s, e);

	if (!r)
		*(unsigned int *)to = s * 1000;
	return r;
}

int cmd_set_pid(const struct cmd_option *o, const char *text, void *to, struct err *e)
{
	unsigned int pid;
	int r = common_number(o, text, 1, 1u << 22, &pid, e);

	if (!r)
		*(pid_t *)to = (pid_t)pid;
	return r;
}
