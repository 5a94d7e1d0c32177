// SPDX-License-Identifier: GPL-2.0-only
#include <jansson.h>
#include <stdio.h>

#include "base/json_text.h"
#include "cmd/cmd.h"
#include "kernel/netlink.h"

static void list_print_session(const struct session_info *s, void *arg)
{
	uint64_t pages = 0, ns = 0;

	(void)arg;
	for (int i = 0; i < GODWIT_ROWS; i++)
		pages += s->pages[i];
	for (int i = 0; i < GODWIT_PHASES; i++)
		ns += s->ns[i];
	printf("%7u  %-8s  %7u  %-15s  %7u  %5u  %8llu  %10llu  %10.1f\n", s->id,
	       session_state_name(s->state), s->vm_pid, s->owner_comm, s->owner_pid, s->memslots,
	       (unsigned long long)s->harvests, (unsigned long long)pages, (double)ns / 1e6);
}

static json_t *list_by_name(const uint64_t *values, unsigned int n,
			    const char *(*name)(unsigned int))
{
	json_t *o = json_object();

	for (unsigned int i = 0; i < n; i++)
		json_object_set_new(o, name(i), json_integer((json_int_t)values[i]));
	return o;
}

static void list_add_session(const struct session_info *s, void *arg)
{
	json_t *o = json_pack("{s:i, s:s, s:i, s:o}", "id", (int)s->id, "state",
			      session_state_name(s->state), "owner-pid", (int)s->owner_pid,
			      "owner-comm", text_to_json(s->owner_comm));

	if (s->vm_pid) {
		json_object_set_new(o, "vm-pid", json_integer(s->vm_pid));
		json_object_set_new(o, "memslots", json_integer(s->memslots));
		json_object_set_new(o, "changes", json_integer(s->changes));
		json_object_set_new(o, "harvests", json_integer((json_int_t)s->harvests));
		json_object_set_new(o, "clears", json_integer((json_int_t)s->clears));
		json_object_set_new(o, "pages",
				    list_by_name(s->pages, GODWIT_ROWS, ledger_row_name));
		json_object_set_new(o, "ns",
				    list_by_name(s->ns, GODWIT_PHASES, harvest_phase_name));
	}
	json_array_append_new(arg, o);
}

static const struct cmd_option list_options[] = {
	{ "json", .set = cmd_set_flag,
	  .help = "print a JSON array, with pages by writer and time by phase" },
};

static const struct cmd_group list_groups[] = {
	{ "Options", CMD_ROWS(list_options) },
	CMD_HELP,
	{ NULL }
};

static int list_main(int argc, char **argv)
{
	struct netlink *nl = NULL;
	struct err e = { 0 };
	bool json = false;
	json_t *all;

	if (cmd_parse(&cmd_list, argc, argv, &json, &e))
		return cmd_fail(&e);
	if (netlink_open(&nl, &e))
		return cmd_fail(&e);
	if (json) {
		all = json_array();
		if (!netlink_sessions(nl, list_add_session, all, &e)) {
			json_dumpf(all, stdout, JSON_INDENT(2));
			putchar('\n');
		}
		json_decref(all);
	} else {
		puts("SESSION  STATE      VM-PID  OWNER            OWN-PID  SLOTS  HARVESTS       PAGES     TIME-MS");
		netlink_sessions(nl, list_print_session, NULL, &e);
	}
	netlink_close(nl);
	return e.exit ? cmd_fail(&e) : 0;
}

const struct command cmd_list = {
	"list", "list the sessions of godwit.ko",
	.usage = "[options]",
	.about = "Lists the sessions of godwit.ko: the VM, the owner and the cost of each.",
	.groups = list_groups, .reports = true, .main = list_main,
};
