// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <getopt.h>
#include <stdio.h>

#include "cmd/cmd.h"
#include "io/stop.h"
#include "migrate/resolve.h"

static const char usage[] =
	"usage: godwit resolve (--qmp SOCKET | --domain NAME) [options]\n"
	"\n"
	"A migration that ended with status 23 left its guest stopped here, as it may run at the destination. This asks the\n"
	"receiver's host how it ended. If the guest runs there, it stays stopped here; if it does not and never will, it runs\n"
	"on here. A \"godwit receive\" must be reachable there: the one that was to have the guest, or another.\n"
	"\n"
	"  --qmp SOCKET           the source QEMU's QMP socket\n"
	"  --domain NAME          or the libvirt domain\n"
	"  --pid PID              the QEMU process, if another process made the socket\n"
	"  --to ADDR:PORT         where to ask (where the guest was sent to)\n"
	"  --forget               ask nobody: the guest is to run here, and may be sent again. This takes the mark of the earlier\n"
	"                         migration out of QEMU, and does nothing to the guest: look at the destination first\n"
	"  --resolve-timeout S    ask for S seconds (60)\n"
	"  --peer-timeout S       wait S seconds for each answer (30)\n";

enum { OPT_TO = CMD_OWN, OPT_FORGET, OPT_RESOLVE_TIMEOUT, OPT_PEER_TIMEOUT, OPT_HELP };

static const struct option options[] = {
	CMD_VM_OPTIONS,
	{ "to", required_argument, NULL, OPT_TO },
	{ "forget", no_argument, NULL, OPT_FORGET },
	{ "resolve-timeout", required_argument, NULL, OPT_RESOLVE_TIMEOUT },
	{ "peer-timeout", required_argument, NULL, OPT_PEER_TIMEOUT },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 }
};

static int resolve_parse(struct resolve_options *o, struct cmd_vm *vm, bool *help, int argc, char **argv, struct err *e)
{
	int opt, r = 0;

	while (!r && (opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case CMD_QMP:
		case CMD_DOMAIN:
		case CMD_PID:
			r = cmd_vm_option(vm, opt, optarg, e);
			break;
		case OPT_TO:
			o->doubt.addr = optarg;
			break;
		case OPT_FORGET:
			o->forget = true;
			break;
		case OPT_RESOLVE_TIMEOUT:
			r = cmd_number("--resolve-timeout", optarg, 0, 86400, &o->doubt.seconds, e);
			break;
		case OPT_PEER_TIMEOUT:
			r = cmd_peer_timeout(optarg, &o->doubt.timeout_ms, e);
			break;
		case OPT_HELP:
			*help = true;
			return 0;
		default:
			r = err_set(e, GW_USAGE, EINVAL, "see \"godwit resolve --help\"");
		}
	}
	if (!r && optind != argc)
		r = err_set(e, GW_USAGE, EINVAL, "resolve takes options only, not \"%s\": see \"godwit resolve --help\"", argv[optind]);
	if (!r && !vm->qmp && !vm->domain)
		r = err_set(e, GW_USAGE, EINVAL, "resolve needs --qmp SOCKET or --domain NAME: see \"godwit resolve --help\"");
	return r ? r : cmd_find_domain(vm, e);
}

int cmd_resolve(int argc, char **argv)
{
	struct resolve_options o = { .doubt = { .timeout_ms = 30000, .seconds = 60 } };
	enum commit_state verdict = COMMIT_PREPARED;
	struct cmd_vm vm = { 0 };
	struct err e = { 0 };
	bool help = false;

	if (resolve_parse(&o, &vm, &help, argc, argv, &e))
		return cmd_fail(&e);
	if (help) {
		fputs(usage, stdout);
		return 0;
	}
	o.qmp_path = vm.qmp;
	o.pid = (pid_t)vm.pid;
	stop_install();
	if (engine_choose(NULL, &o.doubt.engine, &e) || resolve_run(&o, &verdict, &e))
		return cmd_fail(&e);
	if (o.forget)
		printf("godwit: forgotten: this guest may be sent again\n");
	else if (verdict == COMMIT_RUNS)
		printf("godwit: the guest is at the destination; here it stays stopped\n");
	else
		printf("godwit: the guest is not at the destination, and never will be; here all is as it was before\n");
	return 0;
}
