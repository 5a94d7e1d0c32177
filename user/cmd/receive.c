// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <getopt.h>
#include <stdio.h>

#include "cmd/cmd.h"
#include "io/activation.h"
#include "io/stop.h"
#include "migrate/receiver.h"
#include "wire/wire.h"

static const char usage[] =
	"usage: godwit receive --qmp SOCKET [--listen ADDR:PORT] [options]\n"
	"\n"
	"Waits at ADDR:PORT for one guest and hands it to the QEMU behind the QMP socket SOCKET, which was\n"
	"started with -incoming defer and the same devices as the source. Whoever only asks (godwit check, godwit\n"
	"estimate) is answered, and it waits on. Started by a socket unit of systemd it listens on that unit's\n"
	"socket, and takes no --listen.\n"
	"\n"
	"  --qmp SOCKET           the destination QEMU's QMP socket\n"
	"  --listen ADDR:PORT     where to listen; loopback only, unless --insecure\n"
	"  --insecure             listen on any address: the stream is not encrypted, anybody may connect\n"
	"  --pid PID              the QEMU process, if another process made the socket\n"
	"  --streams N            let the sender open at most N connections for RAM (16)\n"
	"  --io auto|uring|poll   how to wait for the network: io_uring, poll(), or the better one to be had (auto)\n"
	"  --peer-timeout S       give up when the sender or QEMU is silent for S seconds (30)\n"
	"  --resolve-timeout S    when the connection breaks in the switchover, wait S seconds for the sender to ask how it\n"
	"                         ended (60)\n";

enum { OPT_QMP = 1, OPT_LISTEN, OPT_INSECURE, OPT_PID, OPT_STREAMS, OPT_IO, OPT_PEER_TIMEOUT, OPT_RESOLVE_TIMEOUT, OPT_HELP };

static const struct option options[] = {
	{ "qmp", required_argument, NULL, OPT_QMP },
	{ "listen", required_argument, NULL, OPT_LISTEN },
	{ "insecure", no_argument, NULL, OPT_INSECURE },
	{ "pid", required_argument, NULL, OPT_PID },
	{ "streams", required_argument, NULL, OPT_STREAMS },
	{ "io", required_argument, NULL, OPT_IO },
	{ "peer-timeout", required_argument, NULL, OPT_PEER_TIMEOUT },
	{ "resolve-timeout", required_argument, NULL, OPT_RESOLVE_TIMEOUT },
	{ "help", no_argument, NULL, OPT_HELP },
	{ NULL, 0, NULL, 0 }
};

static int parse(struct receiver_options *o, bool *help, int argc, char **argv, struct err *e)
{
	const char *io = NULL;
	unsigned int n;
	int opt, r = 0;

	while (!r && (opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case OPT_QMP:
			o->qmp_path = optarg;
			break;
		case OPT_LISTEN:
			o->listen = optarg;
			break;
		case OPT_INSECURE:
			o->insecure = true;
			break;
		case OPT_PID:
			r = cmd_number("--pid", optarg, 1, 1u << 22, &n, e);
			o->pid = r ? 0 : (pid_t)n;
			break;
		case OPT_STREAMS:
			r = cmd_number("--streams", optarg, 1, WIRE_STREAMS_MAX, &o->streams, e);
			break;
		case OPT_IO:
			io = optarg;
			break;
		case OPT_PEER_TIMEOUT:
			r = cmd_peer_timeout(optarg, &o->timeout_ms, e);
			break;
		case OPT_RESOLVE_TIMEOUT:
			r = cmd_number("--resolve-timeout", optarg, 0, 86400, &o->resolve_s, e);
			break;
		case OPT_HELP:
			*help = true;
			return 0;
		default:
			r = err_set(e, GW_USAGE, EINVAL, "see \"godwit receive --help\"");
		}
	}
	if (!r && (!o->qmp_path || optind != argc))
		r = err_set(e, GW_USAGE, EINVAL, "receive needs --qmp SOCKET, and no argument: see \"godwit receive --help\"");
	return r ? r : engine_choose(io, &o->engine, e);
}

/* Where to listen: the socket that was passed, whose address is left in name, or --listen. */
static int choose_listener(struct receiver_options *o, char name[ACTIVATION_NAME], struct err *e)
{
	int r = activation_socket(&o->listen_fd, name, e);

	if (r)
		return r;
	if (o->listen && o->listen_fd >= 0)
		return err_set(e, GW_USAGE, EINVAL, "a socket that listens on %s was passed: leave out --listen", name);
	if (!o->listen && o->listen_fd < 0)
		return err_set(e, GW_USAGE, EINVAL, "receive needs --listen ADDR:PORT: see \"godwit receive --help\"");
	if (!o->listen)
		o->listen = name;
	return 0;
}

int cmd_receive(int argc, char **argv)
{
	struct receiver_options o = { .timeout_ms = 30000, .resolve_s = 60, .streams = WIRE_STREAMS_MAX, .listen_fd = -1 };
	struct receiver_result res = { 0 };
	char listens_at[ACTIVATION_NAME];
	struct err e = { 0 };
	bool help = false;

	if (parse(&o, &help, argc, argv, &e))
		return cmd_fail(&e);
	if (help) {
		fputs(usage, stdout);
		return 0;
	}
	if (choose_listener(&o, listens_at, &e))
		return cmd_fail(&e);
	stop_install();
	if (receiver_run(&o, &res, &e))
		return cmd_fail(&e);
	printf("godwit: received in %llu rounds, %llu pages with data, %llu zero; the guest %s here\n",
	       (unsigned long long)res.rounds, (unsigned long long)res.data_pages, (unsigned long long)res.zero_pages,
	       res.paused ? "is paused, as it was," : "runs");
	return 0;
}
