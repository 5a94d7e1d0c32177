// SPDX-License-Identifier: GPL-2.0-only
/* cancel and set: a word to a migration that runs. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"
#include "io/stop.h"
#include "migrate/ask.h"
#include "migrate/limits.h"

#define WHICH_USAGE \
	"  --qmp SOCKET           of the guest with this QMP socket\n" \
	"  --pid PID              of this QEMU process\n" \
	"  --control PATH         the one whose sender was given --control PATH\n"

static const char cancel_usage[] =
	"usage: godwit cancel [options]\n"
	"\n"
	"Cancels the migration that runs from this host and waits until it has ended: the guest runs on here as before.\n"
	"Once the device state is on its way to the destination it is too late. With several migrations, say which:\n"
	"\n"
	WHICH_USAGE;

static const char set_usage[] =
	"usage: godwit set [options] [LIMIT...]\n"
	"\n"
	"Changes limits of the migration that runs from this host, and prints all of them; without any only prints them.\n"
	"With several migrations, say which:\n"
	"\n"
	WHICH_USAGE
	"\n"
	"Limits, as \"godwit send --help\" explains them:\n"
	"\n"
	"  --downtime-limit MS    at most this downtime\n"
	"  --downtime-ramp MS     raise it up to this when rounds do not help; 0: do not\n"
	"  --max-rounds N         give up after so many rounds\n"
	"  --timeout S            seconds for all of the migration, from its beginning; 0: any time\n"
	"  --on-timeout cancel|pause  what to do then\n"
	"  --bandwidth MIB        MiB/s until the switchover; 0: no limit\n";

enum { OPT_QMP = 1, OPT_PID, OPT_CONTROL, OPT_HELP, OPT_LIMIT };

static const struct option options[] = {
	{ "qmp", required_argument, NULL, OPT_QMP },
	{ "pid", required_argument, NULL, OPT_PID },
	{ "control", required_argument, NULL, OPT_CONTROL },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "downtime-limit", required_argument, NULL, OPT_LIMIT },
	{ "downtime-ramp", required_argument, NULL, OPT_LIMIT },
	{ "max-rounds", required_argument, NULL, OPT_LIMIT },
	{ "timeout", required_argument, NULL, OPT_LIMIT },
	{ "on-timeout", required_argument, NULL, OPT_LIMIT },
	{ "bandwidth", required_argument, NULL, OPT_LIMIT },
	{ NULL, 0, NULL, 0 }
};

struct control_args {
	struct ask_which which;
	json_t *limits;
	bool help;
};

/* A limit is checked here, so that the message comes before anybody is asked. */
static int add_limit(json_t *limits, const char *name, const char *text, struct err *e)
{
	struct limits scratch = limits_default;
	json_auto_t *all = NULL;
	int r = limits_set(&scratch, name, text, e);

	if (r)
		return r;
	all = limits_to_json(&scratch);
	return json_object_set(limits, name, json_object_get(all, name)) ? err_set(e, GW_INTERNAL, ENOMEM, "out of memory") : 0;
}

static int parse(struct control_args *a, int argc, char **argv, struct err *e)
{
	unsigned int n;
	int opt, index = 0, r = 0;

	while (!r && !a->help && (opt = getopt_long(argc, argv, "", options, &index)) != -1) {
		switch (opt) {
		case OPT_QMP:
			a->which.qmp_path = optarg;
			break;
		case OPT_PID:
			r = cmd_number("--pid", optarg, 1, 1u << 22, &n, e);
			a->which.vm_pid = r ? 0 : (pid_t)n;
			break;
		case OPT_CONTROL:
			a->which.control = optarg;
			break;
		case OPT_LIMIT:
			r = add_limit(a->limits, options[index].name, optarg, e);
			break;
		case OPT_HELP:
			a->help = true;
			break;
		default:
			r = err_set(e, GW_USAGE, EINVAL, "see \"godwit %s --help\"", argv[0]);
		}
	}
	if (!r && !a->help && optind != argc)
		r = err_set(e, GW_USAGE, EINVAL, "%s takes options only, not \"%s\": see \"godwit %s --help\"", argv[0],
			    argv[optind], argv[0]);
	return r;
}

int cmd_cancel(int argc, char **argv)
{
	struct control_args a = { .limits = json_object() };
	json_auto_t *ret = NULL, *limits = a.limits;
	struct err e = { 0 };
	const char *status;

	if (parse(&a, argc, argv, &e))
		return cmd_fail(&e);
	if (a.help) {
		fputs(cancel_usage, stdout);
		return 0;
	}
	if (json_object_size(limits)) {
		err_set(&e, GW_USAGE, EINVAL, "cancel takes no limits: see \"godwit cancel --help\"");
		return cmd_fail(&e);
	}
	stop_install();
	if (ask(&a.which, "cancel", NULL, &ret, &e))
		return cmd_fail(&e);
	status = json_string_value(json_object_get(ret, "status"));
	if (json_integer_value(json_object_get(ret, "exit")) == GW_CANCELLED) {
		puts("cancelled: the guest runs on here as before");
		return 0;
	}
	/* It was ending for another reason, which is told. */
	err_set(&e, (enum gw_exit)json_integer_value(json_object_get(ret, "exit")), ECANCELED, "the migration ended by itself (%s): %s",
		status, json_string_value(json_object_get(ret, "message")));
	return cmd_fail(&e);
}

int cmd_set(int argc, char **argv)
{
	struct control_args a = { .limits = json_object() };
	json_auto_t *ret = NULL, *limits = a.limits;
	struct err e = { 0 };
	const char *name;
	json_t *value;

	if (parse(&a, argc, argv, &e))
		return cmd_fail(&e);
	if (a.help) {
		fputs(set_usage, stdout);
		return 0;
	}
	stop_install();
	/* None: a look at how they are. */
	if (ask(&a.which, "set", json_incref(limits), &ret, &e))
		return cmd_fail(&e);
	json_object_foreach(ret, name, value) {
		if (json_is_string(value))
			printf("%-16s %s\n", name, json_string_value(value));
		else
			printf("%-16s %lld\n", name, (long long)json_integer_value(value));
	}
	return 0;
}
