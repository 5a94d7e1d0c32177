// SPDX-License-Identifier: GPL-2.0-only
/* godwit: live migration of KVM guests. */
#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"

static const struct command {
	const char *name;
	int (*main)(int argc, char **argv);
	const char *help;
} commands[] = {
	{ "send", cmd_send, "migrate a guest from here to another host" },
	{ "receive", cmd_receive, "wait here for a guest from another host" },
	{ "check", cmd_check, "can a guest be migrated, and if not, what is to be changed?" },
	{ "estimate", cmd_estimate, "how long would a migration take, and would it end?" },
	{ "report", cmd_report, "what a migration did, as text or as a picture" },
	{ "cancel", cmd_cancel, "cancel a migration that runs from here" },
	{ "set", cmd_set, "change the limits of one" },
	{ "resolve", cmd_resolve, "a migration that ended in doubt: where does the guest run?" },
	{ "rate", cmd_rate, "how fast does a guest write to its memory?" },
	{ "list", cmd_list, "the sessions of godwit.ko" },
	{ "watch", cmd_watch, "what happens to them" },
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void help(FILE *to)
{
	fputs("usage: godwit COMMAND [options]; \"godwit COMMAND --help\" explains a command\n\n", to);
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "--version")) {
		puts("godwit " GODWIT_VERSION);
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "--help")) {
		help(stdout);
		return 0;
	}
	for (size_t i = 0; argc > 1 && i < COMMANDS; i++)
		if (!strcmp(argv[1], commands[i].name))
			return commands[i].main(argc - 1, argv + 1);
	help(stderr);
	return GW_USAGE;
}
