// SPDX-License-Identifier: GPL-2.0-only
/* godwit: live migration of KVM guests. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cmd.h"

static const struct command *const commands[] = {
	&cmd_send, &cmd_receive, &cmd_check, &cmd_estimate, &cmd_report, &cmd_cancel,
	&cmd_set,  &cmd_resolve, &cmd_rate,  &cmd_list,	    &cmd_watch,
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* Those of godwit itself, which has a command's name in their place otherwise. */
static const struct cmd_option main_options[] = {
	{ "help",
	  .help = "print the commands and exit; after a command: print its options and exit" },
	{ "version", .help = "print the version and exit" },
};

static const struct cmd_group main_groups[] = {
	{ "Options", CMD_ROWS(main_options) },
	{ NULL }
};

static void main_help(FILE *to)
{
	fputs("usage: godwit COMMAND [options]\n\nCommands:\n", to);
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
	cmd_help_options(main_groups, to);
}

/* For packaging/, and so in no help text. */
static void main_describe(void)
{
	const struct command all = { "", "live migration of running KVM guests",
				     "COMMAND [options]", .groups = main_groups };

	cmd_describe(&all, stdout);
	for (size_t i = 0; i < COMMANDS; i++)
		cmd_describe(commands[i], stdout);
}

/* What a migration has come to stays its status, also where that cannot be printed. */
static int main_end(int status, bool reports)
{
	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return status;
	/* A reader that has seen enough ("| head") is none to be told. */
	if (errno != EPIPE)
		fputs("godwit: standard output does not take all that is printed: its disk may be full\n",
		      stderr);
	return status == GW_OK && reports ? GW_INTERNAL : status;
}

static int main_command(const struct command *c, int argc, char **argv)
{
	char name[32];

	/* As getopt_long() begins its messages. */
	snprintf(name, sizeof(name), "godwit %s", c->name);
	argv[0] = name;
	return main_end(c->main(argc, argv), c->reports);
}

/*
 * A shell or a service manager may start godwit without them ("2>&-"). QEMU's monitor or a guest's
 * RAM would take the number, and be written all that is printed.
 */
static bool main_standard_files(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
			return false;
	return true;
}

int main(int argc, char **argv)
{
	const char *first = argc > 1 ? argv[1] : "";

	if (!main_standard_files()) {
		fputs("godwit: standard input, output or error is closed, and /dev/null cannot be opened in its place\n",
		      stderr);
		return GW_INTERNAL;
	}
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(first, commands[i]->name))
			return main_command(commands[i], argc - 1, argv + 1);
	if (!strcmp(first, "--version")) {
		puts("godwit " GODWIT_VERSION);
	} else if (!strcmp(first, "--help")) {
		main_help(stdout);
	} else if (!strcmp(first, "--options")) {
		main_describe();
	} else {
		main_help(stderr);
		return GW_USAGE;
	}
	return main_end(GW_OK, true);
}
