// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <time.h>

#include "base/stop.h"
#include "cmd/cmd.h"
#include "kernel/netlink.h"

static void watch_print_event(const struct session_event *ev, void *arg)
{
	struct timespec now;
	struct tm tm;
	char at[32];

	(void)arg;
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	strftime(at, sizeof(at), "%H:%M:%S", &tm);
	printf("%s.%03ld  session %u  %-13s  VM %u  owner %u  changes %u\n", at,
	       now.tv_nsec / 1000000, ev->id, session_event_name(ev->cmd), ev->vm_pid,
	       ev->owner_pid, ev->changes);
	fflush(stdout);
}

static void watch_dump_event(const struct session_event *ev, void *arg)
{
	struct timespec now;
	json_t *o;

	(void)arg;
	clock_gettime(CLOCK_REALTIME, &now);
	o = json_pack("{s:f, s:s, s:i, s:i, s:i, s:i}", "time",
		      (double)now.tv_sec + (double)now.tv_nsec / 1e9, "event",
		      session_event_name(ev->cmd), "id", (int)ev->id, "vm-pid", (int)ev->vm_pid,
		      "owner-pid", (int)ev->owner_pid, "changes", (int)ev->changes);
	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	fflush(stdout);
	json_decref(o);
}

static const struct cmd_option watch_options[] = {
	{ "json", .set = cmd_set_flag, .help = "print each event as a JSON object" },
};

static const struct cmd_group watch_groups[] = {
	{ "Options", CMD_ROWS(watch_options) },
	CMD_HELP,
	{ NULL }
};

static int watch_main(int argc, char **argv)
{
	struct netlink *nl = NULL;
	struct err e = { 0 };
	bool json = false;
	int r;

	if (cmd_parse(&cmd_watch, argc, argv, &json, &e))
		return cmd_fail(&e);
	stop_install();
	r = netlink_open(&nl, &e);
	if (!r)
		r = netlink_subscribe(nl, &e);
	if (!r) {
		fprintf(stderr, "godwit: watching\n");
		while ((r = netlink_watch(nl, json ? watch_dump_event : watch_print_event, NULL,
					  &e)) == -ENOBUFS)
			fprintf(stderr, "godwit: events were lost: this terminal is too slow\n");
	}
	netlink_close(nl);
	return r ? cmd_fail(&e) : 0;
}

const struct command cmd_watch = {
	"watch", "print session events",
	.usage = "[options]",
	.about = "Prints the events of the sessions of godwit.ko, a line an event, until it is "
		"interrupted: attached, slots-changed, vm-gone, retired.",
	.groups = watch_groups, .reports = true, .main = watch_main,
};
