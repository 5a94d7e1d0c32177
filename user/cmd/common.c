// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <getopt.h>
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

int cmd_peer_timeout(const char *text, unsigned int *timeout_ms, struct err *e)
{
	unsigned int s;
	int r = cmd_number("--peer-timeout", text, 1, 3600, &s, e);

	if (!r)
		*timeout_ms = s * 1000;
	return r;
}

int cmd_vm_option(struct cmd_vm *vm, int opt, const char *text, struct err *e)
{
	switch (opt) {
	case CMD_QMP:
		vm->qmp = text;
		return 0;
	case CMD_DOMAIN:
		vm->domain = text;
		return 0;
	default:
		return cmd_number("--pid", text, 1, 1u << 22, &vm->pid, e);
	}
}

int cmd_find_domain(struct cmd_vm *vm, struct err *e)
{
	int r;

	if (!vm->domain)
		return 0;
	r = libvirt_find(LIBVIRT_RUN, vm->domain, &vm->found, e);
	if (r)
		return r;
	vm->qmp = vm->found.qmp_path;
	if (!vm->pid)
		vm->pid = (unsigned int)vm->found.pid;
	return 0;
}

bool cmd_parse_json(int argc, char **argv, const char *usage, bool *json, int *status)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 }
	};
	struct err e = { 0 };
	int opt;

	*status = GW_USAGE;
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (opt == 'h') {
			fputs(usage, stdout);
			*status = 0;
		}
		if (opt != 'j')
			return false;
		*json = true;
	}
	if (optind == argc)
		return true;
	err_set(&e, GW_USAGE, EINVAL, "%s takes no arguments: see \"godwit %s --help\"", argv[0], argv[0]);
	cmd_fail(&e);
	return false;
}
