// SPDX-License-Identifier: GPL-2.0-only
/*
 * From a table of options to getopt_long(). argp would print help from a table of its own, but it
 * sorts options by name, knows no lists of words and no defaults, and makes neither manual page nor
 * completion.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cmd/option.h"

#define OPTIONS_MAX	64u
#define LONG_BASE	256	/* getopt_long() returns this and the option's place, or a letter */

const struct cmd_option cmd_help_option = {
	"help", .help = "print a summary of the options and exit",
};

struct parse_tables {
	struct option rows[OPTIONS_MAX + 1];
	char letters[2 * OPTIONS_MAX + 1];
};

static bool parse_takes_value(const struct cmd_option *o)
{
	return o->value || o->words;
}

/* The option in place i, or the one with this letter, and its group; NULL: there is none. */
static const struct cmd_option *parse_find(const struct command *c, unsigned int i, int letter,
					   const struct cmd_group **group)
{
	unsigned int at = 0;

	for (const struct cmd_group *g = c->groups; g->options; g++)
		for (unsigned int k = 0; k < g->n; k++, at++)
			if (letter ? g->options[k].letter == letter : at == i) {
				*group = g;
				return &g->options[k];
			}
	return NULL;
}

static int parse_prepare(const struct command *c, struct parse_tables *t, struct err *e)
{
	const struct cmd_group *g;
	const struct cmd_option *o;
	char *letter = t->letters;
	unsigned int i;

	for (i = 0; i < OPTIONS_MAX && (o = parse_find(c, i, 0, &g)); i++) {
		t->rows[i].name = o->name;
		t->rows[i].has_arg = parse_takes_value(o) ? required_argument : no_argument;
		t->rows[i].val = LONG_BASE + (int)i;
		if (!o->letter)
			continue;
		*letter++ = o->letter;
		if (parse_takes_value(o))
			*letter++ = ':';
	}
	return parse_find(c, i, 0, &g) ? err_set(e, GW_INTERNAL, E2BIG, "too many options") : 0;
}

static bool parse_is_word(const char *words, const char *text, size_t len)
{
	for (const char *at = words; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
		if (strcspn(at, "|") == len && !strncmp(at, text, len))
			return true;
	return false;
}

static int parse_check_words(const struct cmd_option *o, const char *text, struct err *e)
{
	const char *separators = o->value ? "," : "";
	const char *at = text;
	char words[256];

	while (parse_is_word(o->words, at, strcspn(at, separators))) {
		at += strcspn(at, separators);
		if (!*at++)
			return 0;
	}
	cmd_list_words(o->words, words, sizeof(words));
	return err_set(e, GW_USAGE, EINVAL, "--%s takes %s%s, not \"%s\"", o->name, words,
		       o->value ? ", or several of them separated by commas" : "", text);
}

static int parse_store(const struct cmd_group *g, const struct cmd_option *o, const char *text,
		       void *args, struct err *e)
{
	int r = o->words ? parse_check_words(o, text, e) : 0;

	return r ? r : (g->set ? g->set : o->set)(o, text, (char *)args + g->base + o->offset, e);
}

static int parse_defaults(const struct command *c, void *args, struct err *e)
{
	int r = 0;

	for (const struct cmd_group *g = c->groups; g->options; g++)
		for (unsigned int i = 0; !r && !g->set && i < g->n; i++)
			if (g->options[i].initial)
				r = parse_store(g, &g->options[i], g->options[i].initial, args, e);
	return r;
}

static int parse_operand(const struct command *c, int argc, char **argv, void *args, struct err *e)
{
	if (!c->operand && optind != argc)
		return err_set(e, GW_USAGE, EINVAL,
			       "%s takes options only, not \"%s\": see \"godwit %s --help\"",
			       c->name, argv[optind], c->name);
	if (c->operand && optind + 1 != argc)
		return err_set(e, GW_USAGE, EINVAL, "%s needs one %s: see \"godwit %s --help\"",
			       c->name, c->operand, c->name);
	if (c->operand)
		*(const char **)((char *)args + c->operand_at) = argv[optind];
	return 0;
}

int cmd_parse(const struct command *c, int argc, char **argv, void *args, struct err *e)
{
	struct parse_tables t = { 0 };
	const struct cmd_option *o;
	const struct cmd_group *g;
	int opt, r;

	r = parse_prepare(c, &t, e);
	if (!r)
		r = parse_defaults(c, args, e);
	while (!r && (opt = getopt_long(argc, argv, t.letters, t.rows, NULL)) != -1) {
		o = opt < LONG_BASE ? parse_find(c, 0, opt, &g) :
				      parse_find(c, (unsigned int)(opt - LONG_BASE), 0, &g);
		if (!o)		/* getopt_long() has said why */
			return err_set(e, GW_USAGE, EINVAL, "see \"godwit %s --help\"", c->name);
		if (!o->set) {
			cmd_help(c, stdout);
			return -ECANCELED;
		}
		r = parse_store(g, o, optarg, args, e);
	}
	return r ? r : parse_operand(c, argc, argv, args, e);
}
