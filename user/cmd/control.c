// SPDX-License-Identifier: GPL-2.0-only
/* cancel and set: what a running migration is asked. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/stop.h"
#include "cmd/cmd.h"
#include "control/client.h"
#include "plan/limits.h"

struct control_args {
	struct control_which which;
	json_t *limits;
};

static const struct cmd_option control_options[] = {
	{
		"qmp", .value = "SOCKET",
		.set = cmd_set_text, .offset = offsetof(struct control_args, which.qmp_path),
		.help = "the migration of the guest with the QMP socket SOCKET",
	},
	{
		"pid", .value = "PID",
		.set = cmd_set_pid, .offset = offsetof(struct control_args, which.vm_pid),
		.help = "the migration of the guest in the QEMU process PID",
	},
	{
		"control", .value = "PATH",
		.set = cmd_set_text, .offset = offsetof(struct control_args, which.control),
		.help = "the migration whose \"godwit send\" was given --control PATH",
	},
};

/* Into the object *to. Checks the limit, so that the message comes before the sender is asked. */
static int control_add_limit(const struct cmd_option *o, const char *text, void *to, struct err *e)
{
	struct limits scratch = limits_default;
	json_auto_t *all = NULL;
	int r = limits_set(&scratch, o->name, text, e);

	if (r)
		return r;
	all = limits_to_json(&scratch);
	if (json_object_set(*(json_t **)to, o->name, json_object_get(all, o->name)))
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	return 0;
}

static const struct cmd_group cancel_groups[] = {
	{ "Which migration, if several run from this host", CMD_ROWS(control_options) },
	CMD_HELP,
	{ NULL }
};

static const struct cmd_group set_groups[] = {
	{ "Which migration, if several run from this host", CMD_ROWS(control_options) },
	{ "What to change", CMD_ROWS(cmd_limits), offsetof(struct control_args, limits),
	  control_add_limit },
	CMD_HELP,
	{ NULL }
};

static int cancel_main(int argc, char **argv)
{
	struct control_args a = { 0 };
	json_auto_t *ret = NULL;
	struct err e = { 0 };
	const char *status;

	if (cmd_parse(&cmd_cancel, argc, argv, &a, &e))
		return cmd_fail(&e);
	stop_install();
	if (control_ask(&a.which, "cancel", NULL, &ret, &e))
		return cmd_fail(&e);
	status = json_string_value(json_object_get(ret, "status"));
	if (json_integer_value(json_object_get(ret, "exit")) == GW_CANCELLED) {
		puts("cancelled: the guest runs on here as before");
		return 0;
	}
	/* It was ending for another reason, which is told. */
	err_set(&e, (enum gw_exit)json_integer_value(json_object_get(ret, "exit")), ECANCELED,
		"the migration ended by itself (%s): %s", status,
		json_string_value(json_object_get(ret, "message")));
	return cmd_fail(&e);
}

const struct command cmd_cancel = {
	"cancel", "cancel a running migration",
	.usage = "[options]",
	.about = "Cancels the migration that runs from this host and waits until it has ended: "
		"the guest runs on here as before. It is too late once the device state is on its "
		"way to the destination.",
	.groups = cancel_groups, .main = cancel_main,
};

static int set_main(int argc, char **argv)
{
	struct control_args a = { .limits = json_object() };
	json_auto_t *ret = NULL, *limits = a.limits;
	struct err e = { 0 };
	const char *name;
	json_t *value;

	if (cmd_parse(&cmd_set, argc, argv, &a, &e))
		return cmd_fail(&e);
	stop_install();
	/* None: a look at how they are. */
	if (control_ask(&a.which, "set", json_incref(limits), &ret, &e))
		return cmd_fail(&e);
	json_object_foreach(ret, name, value) {
		if (json_is_string(value))
			printf("%-16s %s\n", name, json_string_value(value));
		else
			printf("%-16s %lld\n", name, (long long)json_integer_value(value));
	}
	return 0;
}

const struct command cmd_set = {
	"set", "change limits and compression of a running migration",
	.usage = "[options] [limits]",
	.about = "Changes the named limits of the migration that runs from this host, or how its "
		"RAM is packed from the next frame on, and prints all of them as they are then. "
		"Without one of them it only prints.",
	.groups = set_groups, .main = set_main,
};
