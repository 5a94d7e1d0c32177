// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>

#include "base/stop.h"
#include "cmd/cmd.h"
#include "doubt/resolve.h"

struct resolve_args {
	struct resolve_options o;
	struct cmd_vm vm;
	struct tls_options tls;
};

static const struct cmd_option resolve_options[] = {
	{
		"to", .value = "ADDR:PORT",
		.set = cmd_set_text, .offset = offsetof(struct resolve_args, o.doubt.addr),
		.help = "ask at ADDR:PORT instead of where the guest was sent to",
	},
	{
		"forget", .set = cmd_set_flag, .offset = offsetof(struct resolve_args, o.forget),
		.help = "do not ask: take the mark of the earlier migration out of QEMU, so that "
			"the guest may be sent again; look at the destination first",
		.more = "The mark is an object\n"
			".Ql godwit-migration .\n"
			"This does nothing to the guest.",
	},
	{
		"resolve-timeout", .value = "S", .max = 86400, .initial = "60",
		.set = cmd_set_number,
		.offset = offsetof(struct resolve_args, o.doubt.seconds),
		.help = "ask for S seconds",
	},
};

static const struct cmd_group resolve_groups[] = {
	{ "Options", CMD_ROWS(cmd_vm_options), offsetof(struct resolve_args, vm) },
	{ CMD_ROWS(resolve_options) },
	{ CMD_ROWS(cmd_tls_options), offsetof(struct resolve_args, tls) },
	CMD_ONE(cmd_peer_timeout, struct resolve_args, o.doubt.timeout_ms),
	CMD_HELP,
	{ NULL }
};

static int resolve_parse(struct resolve_args *a, int argc, char **argv, struct err *e)
{
	int r = cmd_parse(&cmd_resolve, argc, argv, a, e);

	if (!r)
		r = cmd_find_vm(&cmd_resolve, &a->vm, e);
	a->o.qmp_path = a->vm.qmp;
	a->o.pid = a->vm.pid;
	/* --forget asks nobody. */
	return r || a->o.forget ? r : tls_creds_open(&a->tls, TLS_SENDER, &a->o.doubt.tls, e);
}

static int resolve_main(int argc, char **argv)
{
	enum commit_state verdict = COMMIT_PREPARED;
	struct resolve_args a = { 0 };
	struct err e = { 0 };
	int r;

	if (resolve_parse(&a, argc, argv, &e))
		return cmd_fail(&e);
	stop_install();
	r = engine_choose(NULL, &a.o.doubt.engine, &e);
	if (!r)
		r = resolve_run(&a.o, &verdict, &e);
	tls_creds_free(a.o.doubt.tls);
	if (r)
		return cmd_fail(&e);
	if (a.o.forget)
		printf("godwit: forgotten: this guest may be sent again\n");
	else if (verdict == COMMIT_RUNS)
		printf("godwit: the guest is at the destination; here it stays stopped\n");
	else
		printf("godwit: the guest is not at the destination, and never will be; here it is as it was before\n");
	return 0;
}

const struct command cmd_resolve = {
	"resolve", "settle where the guest runs after a migration that ended in doubt",
	.usage = "(--qmp SOCKET | --domain NAME) [options]",
	.about = "A migration that ended with status 23, 32 or 33 left its guest stopped here, as "
		"it may run at the destination, or has run there. This asks the receiver's host "
		"how it ended. If the guest runs there, or has, it stays stopped here; if it does "
		"not and never will, it runs on here. A \"godwit receive\" must be reachable there: "
		"the one that waited for the guest, or another.",
	.groups = resolve_groups, .main = resolve_main,
};
