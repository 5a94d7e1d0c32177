/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The options of a command, as one table. The parser, the help text, the manual page and the
 * completion are all made from it: getopt_long() has rows for nothing else, `godwit COMMAND --help`
 * prints it, and `godwit --options` hands it to packaging/, which makes the other two when the tree
 * is built.
 */
#ifndef GODWIT_OPTION_H
#define GODWIT_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

struct cmd_option;

/* Stores a value. Errors: GW_USAGE, with a text that names the option. */
typedef int (*cmd_set_fn)(const struct cmd_option *o, const char *text, void *to, struct err *e);

/**
 * struct cmd_option - one option
 * @name: without dashes
 * @letter: its short form; 0: it has none
 * @value: what stands for the value in texts, as "MS"; completion goes by it (SOCKET: a file).
 *	NULL: one of @words, or without those a flag
 * @words: "auto|on|off": the parser refuses every other. With @value: several of them, separated
 *	by commas
 * @min, @max: the range of a number (cmd_set_number(), cmd_set_seconds()); 0, 0: @set knows it
 * @initial: stored before the command line is read, and shown as the default; NULL: none
 * @set: stores a value; NULL: the option is --help
 * @offset: where to, from the base of the option's group
 * @help: what the option does, as one clause without a full stop; its manual entry begins with it
 * @more: what the manual page says after that, in mdoc(7); NULL: nothing
 */
struct cmd_option {
	const char *name;
	char letter;
	const char *value;
	const char *words;
	unsigned int min, max;
	const char *initial;
	cmd_set_fn set;
	size_t offset;
	const char *help;
	const char *more;
};

/**
 * struct cmd_group - options below one heading, or of more than one command
 * @title: the heading; NULL: they stand below the one before
 * @base: from the command's arguments to the struct that the options' offsets are in
 * @set: takes every value in place of the options' own, which have no default here; NULL: none does
 */
struct cmd_group {
	const char *title;
	const struct cmd_option *options;
	unsigned int n;
	size_t base;
	cmd_set_fn set;
};

/* A number's text, of a macro that is one. */
#define CMD_TEXT(number)	CMD_TEXT_(number)
#define CMD_TEXT_(number)	#number
#define CMD_ROWS(array)	.options = (array), .n = sizeof(array) / sizeof((array)[0])

/**
 * struct command
 * @summary: one clause, for lists of commands
 * @usage: what stands after the name
 * @about: a paragraph for its help
 * @operand: the one argument that it takes; NULL: it takes options only
 * @operand_at: where that is stored, a const char *
 * @groups: up to one without options
 * @reports: what it prints is all that it is for: if that cannot be written it has failed
 * @main: argv[0] is what its messages call it. Returns the exit status
 */
struct command {
	const char *name;
	const char *summary;
	const char *usage;
	const char *about;
	const char *operand;
	size_t operand_at;
	const struct cmd_group *groups;
	bool reports;
	int (*main)(int argc, char **argv);
};

/* The last group of each command. */
extern const struct cmd_option cmd_help_option;
#define CMD_HELP	{ .options = &cmd_help_option, .n = 1 }

/**
 * cmd_parse() - the command line into *args
 * Return: 0; -EINVAL (GW_USAGE); -ECANCELED after --help, which it has printed: *e has no error
 */
int cmd_parse(const struct command *c, int argc, char **argv, void *args, struct err *e);

int cmd_set_flag(const struct cmd_option *o, const char *text, void *to, struct err *e);
int cmd_set_text(const struct cmd_option *o, const char *text, void *to, struct err *e);
/* To an unsigned int. */
int cmd_set_number(const struct cmd_option *o, const char *text, void *to, struct err *e);
/* To an unsigned int, in milliseconds. */
int cmd_set_seconds(const struct cmd_option *o, const char *text, void *to, struct err *e);
/* To a pid_t. */
int cmd_set_pid(const struct cmd_option *o, const char *text, void *to, struct err *e);

/* "auto, on or off", cut off where it does not fit. */
void cmd_list_words(const char *words, char *out, size_t size);
void cmd_help(const struct command *c, FILE *to);
/* Its groups alone. */
void cmd_help_options(const struct cmd_group *groups, FILE *to);
/* For packaging/: a line for the command and each heading and option, with tabs between fields. */
void cmd_describe(const struct command *c, FILE *to);

#endif
