// SPDX-License-Identifier: GPL-2.0-only
/* A table of options for programs: packaging/ makes manual pages and completion of it. */
#include <stdio.h>
#include <string.h>

#include "cmd/option.h"

static const char *describe_text(const char *text)
{
	return text ? text : "";
}

static void describe_option(const struct cmd_option *o, bool has_default, FILE *to)
{
	fprintf(to, "option\t%s\t%.1s\t%s\t%s\t%s\t%u\t%u\t%s\n", o->name, &o->letter,
		describe_text(o->value), describe_text(o->words),
		has_default ? describe_text(o->initial) : "", o->min, o->max, o->help);
	for (const char *at = o->more; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
		fprintf(to, "\t%.*s\n", (int)strcspn(at, "\n"), at);
}

void cmd_describe(const struct command *c, FILE *to)
{
	fprintf(to, "command\t%s\t%s\t%s\t%s\n", c->name, c->summary, c->usage,
		describe_text(c->operand));
	for (const struct cmd_group *g = c->groups; g->options; g++) {
		if (g->title)
			fprintf(to, "group\t%s\n", g->title);
		for (unsigned int i = 0; i < g->n; i++)
			describe_option(&g->options[i], !g->set, to);
	}
}
