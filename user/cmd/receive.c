// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>

#include "base/stop.h"
#include "cmd/cmd.h"
#include "net/activation.h"
#include "receive/receiver.h"
#include "wire/wire.h"

struct receive_args {
	struct receiver_options o;
	struct cmd_vm vm;	/* its pid */
	const char *io;
	struct tls_options tls;
};

static const struct cmd_option receive_options[] = {
	{
		"qmp", .value = "SOCKET",
		.set = cmd_set_text, .offset = offsetof(struct receive_args, o.qmp_path),
		.help = "the destination QEMU's QMP socket",
	},
	{
		"listen", .value = "ADDR:PORT",
		.set = cmd_set_text, .offset = offsetof(struct receive_args, o.listen),
		.help = "listen at ADDR:PORT, a loopback address unless there are credentials or --insecure; or at unix:/PATH, for this user only",
		.more = "An IPv6 address stands in brackets.",
	},
	{
		"insecure",
		.set = cmd_set_flag, .offset = offsetof(struct receive_args, tls.insecure),
		.help = "listen on any address without TLS, although the stream is neither "
			"encrypted nor authenticated then",
		.more = "A host that can connect can send a guest, and a host on the way can read "
			"it.",
	},
};

static const struct cmd_option receive_streams = {
	"streams", .value = "N", .min = 1, .max = WIRE_STREAMS_MAX,
	.initial = CMD_TEXT(WIRE_STREAMS_MAX),
	.set = cmd_set_number, .offset = offsetof(struct receive_args, o.streams),
	.help = "let the sender open at most N connections for RAM",
};

static const struct cmd_option receive_decompress_threads = {
	"decompress-threads", .value = "N", .min = 1, .max = WIRE_STREAMS_MAX,
	.set = cmd_set_number, .offset = offsetof(struct receive_args, o.unpack_threads),
	.help = "let at most N streams unpack RAM at once; without this option one for each CPU "
		"that this process may use",
};

static const struct cmd_option receive_reuse[] = {
	{
		"reuse", .value = "FILE", .set = cmd_set_text,
		.offset = offsetof(struct receive_args, o.reuse),
		.help = "FILE has old RAM of this guest, as \"godwit send --leave-image\" leaves it: "
			"the sender refers to pages that are in it, and sends the others",
		.more = "Nothing of FILE is trusted: a page is taken from it only if it has, at that "
			"moment, the hash of the page that the sender means.",
	},
	{
		"reuse-other", .set = cmd_set_flag,
		.offset = offsetof(struct receive_args, o.reuse_other),
		.help = "another guest may have written FILE: pages are compared by a cryptographic "
			"hash, which is slower",
	},
	{
		"reuse-memory", .value = "MIB", .min = 1, .max = 1u << 20, .initial = "512",
		.set = cmd_set_number, .offset = offsetof(struct receive_args, o.reuse_mib),
		.help = "use at most so many MiB for what is known of FILE, 5 for each GiB of it; "
			"what has no room is left out",
	},
};

static const struct cmd_option receive_recover = {
	"recover", .set = cmd_set_flag, .offset = offsetof(struct receive_args, o.recover),
	.help = "take over a guest that runs here and lacks RAM, from a receiver that has ended "
		"(status 32)",
};

static const struct cmd_option receive_recover_timeout = {
	"recover-timeout", .value = "S", .max = 86400, .initial = "300", .set = cmd_set_number,
	.offset = offsetof(struct receive_args, o.recover_s),
	.help = "when the link is lost in post-copy, wait S seconds for the sender to connect "
		"again",
	.more = "If QEMU has exited meanwhile it waits as long to tell the sender that the guest is lost.",
};

static const struct cmd_option receive_resolve_timeout = {
	"resolve-timeout", .value = "S", .max = 86400, .initial = "60", .set = cmd_set_number,
	.offset = offsetof(struct receive_args, o.resolve_s),
	.help = "when the connection breaks in the switchover, wait S seconds for the sender to "
		"ask how it ended",
	.more = "It waits for 20 round trips of the link longer.",
};

static const struct cmd_group receive_groups[] = {
	{ "Options", CMD_ROWS(receive_options) },
	{ .options = cmd_tls_options, .n = CMD_TLS_RECEIVER,
	  .base = offsetof(struct receive_args, tls) },
	{ .options = &cmd_vm_options[CMD_PID], .n = 1, .base = offsetof(struct receive_args, vm) },
	{ .options = &receive_streams, .n = 1 },
	{ .options = &receive_decompress_threads, .n = 1 },
	{ CMD_ROWS(receive_reuse) },
	CMD_ONE(cmd_io, struct receive_args, io),
	CMD_ONE(cmd_peer_timeout, struct receive_args, o.timeout_ms),
	{ .options = &receive_recover, .n = 1 },
	{ .options = &receive_recover_timeout, .n = 1 },
	{ .options = &receive_resolve_timeout, .n = 1 },
	CMD_HELP,
	{ NULL }
};

static int receive_parse(struct receive_args *a, int argc, char **argv, struct err *e)
{
	int r = cmd_parse(&cmd_receive, argc, argv, a, e);

	if (!r && !a->o.qmp_path)
		r = err_set(e, GW_USAGE, EINVAL,
			    "receive needs --qmp SOCKET: see \"godwit receive --help\"");
	if (!r && a->o.reuse_other && !a->o.reuse)
		r = err_set(e, GW_USAGE, EINVAL, "--reuse-other says something of the file of --reuse: give that, too");
	if (!r && a->o.reuse && a->o.recover)
		r = err_set(e, GW_USAGE, EINVAL, "--recover is for a guest that runs here already: leave out --reuse");
	a->o.pid = a->vm.pid;
	a->o.insecure = a->tls.insecure;
	if (!r)
		r = engine_choose(a->io, &a->o.engine, e);
	return r ? r : tls_creds_open(&a->tls, TLS_RECEIVER, &a->o.tls, e);
}

/* Where to listen: the socket that was passed, whose address is left in name, or --listen. */
static int receive_choose_listener(struct receiver_options *o, char name[ADDRESS_MAX],
				   struct err *e)
{
	int r = activation_socket(&o->listen_fd, name, e);

	if (r)
		return r;
	if (o->listen && o->listen_fd >= 0)
		return err_set(e, GW_USAGE, EINVAL,
			       "a socket that listens on %s was passed: leave out --listen", name);
	if (!o->listen && o->listen_fd < 0)
		return err_set(e, GW_USAGE, EINVAL,
			       "receive needs --listen " ADDRESS_FORM ": see \"godwit receive --help\"");
	if (!o->listen)
		o->listen = name;
	return 0;
}

static int receive_main(int argc, char **argv)
{
	struct receive_args a = { .o = { .listen_fd = -1 } };
	struct receiver_result res = { 0 };
	char listens_at[ADDRESS_MAX];
	struct err e = { 0 };
	int r;

	if (receive_parse(&a, argc, argv, &e))
		return cmd_fail(&e);
	if (receive_choose_listener(&a.o, listens_at, &e))
		return cmd_fail(&e);
	stop_install();
	r = receiver_run(&a.o, &res, &e);
	tls_creds_free(a.o.tls);
	if (r)
		return cmd_fail(&e);
	if (res.reused_pages)
		printf("godwit: took %llu pages from %s\n", (unsigned long long)res.reused_pages,
		       a.o.reuse);
	printf("godwit: received in %llu rounds, %llu pages with data, %llu zero; the guest %s here\n",
	       (unsigned long long)res.rounds, (unsigned long long)res.data_pages,
	       (unsigned long long)res.zero_pages, res.ended ? "has ended" :
	       res.paused ? "is paused, as it was," : "runs");
	return 0;
}

const struct command cmd_receive = {
	"receive", "wait for a guest from another host",
	.usage = "--qmp SOCKET [--listen ADDR:PORT] [options]",
	.about = "Waits at ADDR:PORT, or at unix:/PATH, for one guest and hands it to the QEMU behind the QMP socket "
		"SOCKET, which was started with -incoming defer and the same devices as the "
		"source. The receiver answers \"godwit check\" and \"godwit estimate\" and waits "
		"on. A socket unit of systemd takes the place of --listen.",
	.groups = receive_groups, .main = receive_main,
};
