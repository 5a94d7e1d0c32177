// SPDX-License-Identifier: GPL-2.0-only
/* A table of options as the help text of its command. */
#include <stdio.h>
#include <string.h>

#include "cmd/option.h"

#define WIDTH	80u
#define COLUMN	25u	/* where the texts of options begin */

void cmd_list_words(const char *words, char *out, size_t size)
{
	size_t n = 0;

	for (const char *at = words, *next; at; at = next) {
		const char *separator = "";

		next = strchr(at, '|') ? strchr(at, '|') + 1 : NULL;
		if (next)
			separator = strchr(next, '|') ? ", " : " or ";
		if (n < size)
			n += (size_t)snprintf(out + n, size - n, "%.*s%s", (int)strcspn(at, "|"),
					      at, separator);
	}
}

/* Broken between words, but not within brackets; column: where the line stands. */
static void help_wrap(FILE *to, unsigned int indent, unsigned int column, const char *text)
{
	unsigned int at = column;

	for (size_t len; *text; text += len + strspn(text + len, " ")) {
		len = *text == '(' || *text == '[' ? strcspn(text, ")]") : 0;
		len += strcspn(text + len, " ");
		if (at > column && at + 1 + len > WIDTH) {
			fprintf(to, "\n%*s", (int)indent, "");
			at = column = indent;
		}
		at += (unsigned int)fprintf(to, "%s%.*s", at > column ? " " : "", (int)len, text);
	}
	fputc('\n', to);
}

/* has_default: unless what is not named stays as it is. */
static void help_option(FILE *to, const struct cmd_option *o, bool has_default)
{
	const char *value = o->value ? o->value : o->words;
	char words[256] = "", text[1024];
	unsigned int at;

	at = o->letter ? (unsigned int)fprintf(to, "  -%c, --%s", o->letter, o->name) :
			 (unsigned int)fprintf(to, "  --%s", o->name);
	if (value)
		at += (unsigned int)fprintf(to, " %s", value);
	if (at + 2 > COLUMN) {
		fputc('\n', to);
		at = 0;
	}
	fprintf(to, "%*s", (int)(COLUMN - at), "");
	if (o->value && o->words)
		cmd_list_words(o->words, words, sizeof(words));
	snprintf(text, sizeof(text), "%s%s%s%s%s%s%s", o->help, *words ? ": " : "", words,
		 *words ? ", or several of them separated by commas" : "",
		 has_default && o->initial ? " (default: " : "",
		 has_default && o->initial ? o->initial : "", has_default && o->initial ? ")" : "");
	help_wrap(to, COLUMN, COLUMN, text);
}

void cmd_help_options(const struct cmd_group *groups, FILE *to)
{
	for (const struct cmd_group *g = groups; g->options; g++) {
		if (g->title)
			fprintf(to, "\n%s:\n", g->title);
		for (unsigned int i = 0; i < g->n; i++)
			help_option(to, &g->options[i], !g->set);
	}
}

void cmd_help(const struct command *c, FILE *to)
{
	unsigned int at = (unsigned int)fprintf(to, "usage: godwit %s ", c->name);

	help_wrap(to, at, at, c->usage);
	fputc('\n', to);
	help_wrap(to, 0, 0, c->about);
	cmd_help_options(c->groups, to);
}
