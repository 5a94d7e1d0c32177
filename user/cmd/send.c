// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/stop.h"
#include "base/thread.h"
#include "cmd/cmd.h"
#include "cmd/progress.h"
#include "report/json.h"
#include "report/metrics.h"
#include "report/text.h"
#include "reuse/image.h"
#include "send/sender.h"
#include "wire/wire.h"

#define METRICS_NS 5000000000ull

struct send_args {
	struct sender_options o;
	struct cmd_vm vm;
	struct progress progress;
	const char *how;	/* --progress */
	const char *json;
	const char *metrics;
	uint64_t metrics_ns;	/* when they are due */
	const char *io;
	struct tls_options tls;
	bool told;		/* how it ended, before the image is written */
};

static int send_set_zero_copy(const struct cmd_option *o, const char *text, void *to, struct err *e)
{
	(void)o;
	return engine_zero_copy(text, to, e);
}

static const struct cmd_option send_streams = {
	"streams", .value = "N", .min = 1, .max = WIRE_STREAMS_MAX, .set = cmd_set_number,
	.offset = offsetof(struct send_args, o.streams),
	.help = "open N connections for RAM, with a thread each; without this option one for each "
		"CPU, or more on a link with a long round trip",
	.more = "The receiver's own\n"
		".Fl -streams\n"
		"limits it.\n"
		"Where a long link loses packets more of them carry more:\n"
		".Xr godwit-check 1\n"
		"says how many.",
};

static const struct cmd_option send_zero_copy = {
	"zero-copy", .words = "auto|on|off", .initial = "auto", .set = send_set_zero_copy,
	.offset = offsetof(struct send_args, o.zero_copy),
	.help = "auto: zero-copy until the kernel falls back to copying; on: always try; off: "
		"never",
	.more = "With zero-copy the network card reads pages where they are, and the network "
		"stack makes no copy.\n"
		"The kernel falls back to copying where both ends are on one machine, for "
		"example; with\n"
		".Cm on\n"
		"the report counts these copies.\n"
		"Zero-copy needs io_uring, Linux 6.1 or newer, and a limit of locked memory\n"
		".Pq Ic ulimit -l\n"
		"of a few MiB for each stream, unless root sends.\n"
		"Without one of them, sends are plain.",
};

static int send_set_delta(const struct cmd_option *o, const char *text, void *to, struct err *e)
{
	(void)o;
	return delta_parse(text, to, e);
}

static const struct cmd_option send_delta[] = {
	{
		"delta", .words = "auto|on|off", .initial = "auto", .set = send_set_delta,
		.offset = offsetof(struct send_args, o.delta),
		.help = "of a page that is sent again, send only the parts that have changed; "
			"auto: if it was packed, as the link is slow then",
		.more = "The sender keeps hashes of what it has sent, 64 bytes a page.\n"
			"With\n"
			".Cm on\n"
			"it keeps them of each page, also on a fast link, and an older receiver is "
			"refused.",
	},
	{
		"delta-memory", .value = "MIB", .max = 1u << 20, .initial = "512",
		.set = cmd_set_number, .offset = offsetof(struct send_args, o.delta_mib),
		.help = "keep at most so many MiB of these hashes, 16 for each GiB of RAM that "
			"was sent; 0: keep none",
		.more = "When they are used up, pages of which there are none yet are sent whole.",
	},
};

static const struct cmd_option send_reuse[] = {
	{
		"reuse-memory", .value = "MIB", .max = 1u << 20, .initial = "512",
		.set = cmd_set_number, .offset = offsetof(struct send_args, o.reuse_mib),
		.help = "use at most so many MiB for what the receiver says it has in a file, "
			"7 for each GiB of that; 0: send all pages",
	},
	{
		"leave-image", .value = "FILE", .set = cmd_set_text,
		.offset = offsetof(struct send_args, o.leave_image),
		.help = "when the guest runs at the destination, leave its RAM in FILE, for "
			"\"godwit receive --reuse\" when it comes back",
		.more = "The report comes first, and the sender ends when FILE is whole: leave the "
			"source QEMU alone until then.\n"
			"FILE has the guest's secrets, and is for its owner only.\n"
			"If it cannot be written that is a warning: the guest has moved.",
	},
};

static const struct cmd_option send_reconnect = {
	"reconnect", .value = "S", .max = WIRE_KEEP_MAX, .initial = "0", .set = cmd_set_number,
	.offset = offsetof(struct send_args, o.reconnect_s),
	.help = "when the link is lost before the switchover, try for S seconds to connect again, and "
		"go on where the migration was; 0: fail at once",
	.more = "The receiver waits as long, with the RAM that it has.\n"
		"It has to notice the loss, too: S is best more than twice\n"
		".Fl -peer-timeout\n"
		"of both ends.",
};

static const struct cmd_option send_recover = {
	"recover", .set = cmd_set_flag, .offset = offsetof(struct send_args, o.recover),
	.help = "send the RAM that a guest still lacks which has moved by post-copy, where another "
		"sender has ended (status 32)",
};

static const struct cmd_option send_recover_timeout = {
	"recover-timeout", .value = "S", .max = 86400, .initial = "300", .set = cmd_set_number,
	.offset = offsetof(struct send_args, o.recover_s),
	.help = "when the link is lost in post-copy, try to connect again for S seconds",
};

static const struct cmd_option send_resolve_timeout = {
	"resolve-timeout", .value = "S", .max = 86400, .initial = "60", .set = cmd_set_number,
	.offset = offsetof(struct send_args, o.resolve_s),
	.help = "when the connection breaks in the switchover, ask the receiver for S seconds "
		"whether the guest runs there",
	.more = "It goes on for 20 round trips of the link longer.\n"
		"If no receiver answers, the exit status is 23, and\n"
		".Xr godwit-resolve 1\n"
		"asks later.",
};

static const struct cmd_option send_no_compare = {
	"no-compare", .set = cmd_set_flag, .offset = offsetof(struct send_args, o.no_compare),
	.help = "do not look whether the destination is the same machine and has room for the guest",
	.more = "The comparison asks each QEMU questions while the guest runs, for a tenth of a "
		"second or two: some forty of\n"
		"QEMU 10.1 and newer, two to three hundred of an older one.\n"
		"Without it QEMU refuses what it cannot load when the guest is stopped, and a guest "
		"may come to harm that\n"
		"finds another processor or device: for a destination that was made of the same "
		"definition by a program.\n"
		"Where the RAM is private at the destination only, give\n"
		".Fl -device-state Cm save\n"
		"too.",
};

static const struct cmd_option send_proof[] = {
	{
		"verify", .set = cmd_set_flag, .offset = offsetof(struct send_args, o.verify),
		.help = "compare hashes of all RAM before the switchover",
		.more = "The guest stands still meanwhile, which costs downtime.\n"
			"When they differ, the guest runs on at the source.",
	},
	{
		"pause", .set = cmd_set_flag, .offset = offsetof(struct send_args, o.pause),
		.help = "without godwit.ko: stop the guest first, then copy all of its RAM",
	},
};

static const struct cmd_option send_output[] = {
	{
		"control", .value = "PATH",
		.set = cmd_set_text, .offset = offsetof(struct send_args, o.control),
		.help = "listen for \"godwit cancel\" and \"godwit set\" at PATH, a new UNIX "
			"socket, in place of /run/godwit/PID.sock",
	},
	{
		"progress", .words = "auto|plain|json|none", .initial = "auto", .set = cmd_set_text,
		.offset = offsetof(struct send_args, how),
		.help = "auto: repaint one line on a terminal, else print a line every two "
			"seconds; plain: print such lines on a terminal too; json: print a JSON "
			"object a line to standard output; none: print nothing until the end",
		.more = "JSON objects come twice a second and whenever a round or a phase "
			"begins.\n"
			"They take the place of the report: the last one says how the migration "
			"ended.\n"
			"A line that its reader does not take at once, as a terminal that is held "
			"or a pipe that is full, is left out: no guest waits for it.",
	},
	{
		"json", .value = "FILE",
		.set = cmd_set_text, .offset = offsetof(struct send_args, json),
		.help = "also write the report to FILE, which \"godwit report FILE\" shows",
		.more = "It is a JSON object, and is written when the migration was refused or "
			"failed as well.\n"
			"Its\n"
			".Va status\n"
			"is the name of the exit status.",
	},
	{
		"metrics", .value = "FILE.prom",
		.set = cmd_set_text, .offset = offsetof(struct send_args, metrics),
		.help = "keep metrics in FILE.prom for the textfile collector of Prometheus's "
			"node_exporter",
		.more = "The file is replaced every five seconds and at the end.",
	},
};

static const struct cmd_group send_groups[] = {
	{ "Guest", CMD_ROWS(cmd_vm_options), offsetof(struct send_args, vm) },
	{ "Limits, which \"godwit set\" changes while the migration runs", CMD_ROWS(cmd_limits),
	  offsetof(struct send_args, o.limits) },
	{ "Connections", .options = &send_streams, .n = 1 },
	{ CMD_ROWS(cmd_tls_options), offsetof(struct send_args, tls) },
	CMD_ONE(cmd_io, struct send_args, io),
	{ .options = &send_zero_copy, .n = 1 },
	CMD_ONE(cmd_compress_threads, struct send_args, o.pack_threads),
	{ CMD_ROWS(send_delta) },
	{ CMD_ROWS(send_reuse) },
	CMD_ONE(cmd_peer_timeout, struct send_args, o.timeout_ms),
	{ .options = &send_reconnect, .n = 1 },
	{ .options = &send_recover, .n = 1 },
	{ .options = &send_recover_timeout, .n = 1 },
	{ .options = &send_resolve_timeout, .n = 1 },
	{ "Migration", .options = &cmd_device_state, .n = 1,
	  .base = offsetof(struct send_args, o.wish) },
	CMD_ONE(cmd_accept, struct send_args, o.accepted),
	{ .options = &send_no_compare, .n = 1 },
	{ CMD_ROWS(send_proof) },
	{ "Output and control", CMD_ROWS(send_output) },
	CMD_HELP,
	{ NULL }
};

static int send_parse(struct send_args *a, int argc, char **argv, struct err *e)
{
	int r = cmd_parse(&cmd_send, argc, argv, a, e);

	if (r)
		return r;
	r = cmd_find_vm(&cmd_send, &a->vm, e);
	if (r)
		return r;
	a->o.qmp_path = a->vm.qmp;
	a->o.pid = a->vm.pid;
	a->o.cpus = thread_cpus();
	if (a->o.verify && a->o.limits.postcopy >= POSTCOPY_ON)
		return err_set(e, GW_USAGE, EINVAL,
			       "--verify compares all RAM before the guest runs at the destination, and --postcopy lets it run before: leave out one");
	if (a->o.pause && a->o.limits.throttle)
		return err_set(e, GW_USAGE, EINVAL,
			       "--pause stops the guest before RAM is sent, so there is nothing to slow: leave out --throttle");
	/* Better now than when the guest has moved. */
	if (a->json && report_check_path(a->json, e))
		return -EINVAL;
	if (a->o.leave_image && image_check(a->o.leave_image, e))
		return -EINVAL;
	r = progress_init(&a->progress, a->how, e);
	if (!r)
		r = engine_choose(a->io, &a->o.engine, e);
	return r ? r : tls_creds_open(&a->tls, TLS_SENDER, &a->o.tls, e);
}

/* While it runs. What is wrong with the metrics is told at the end. */
static void send_show(const struct report *r, void *args)
{
	struct send_args *a = args;
	struct err ignored = { 0 };

	progress_show(r, &a->progress);
	if (!a->metrics || now_ns() < a->metrics_ns)
		return;
	/* A disk that takes its time must not prolong the blackout. */
	if (r->nr_rows > 1 && r->rows[r->nr_rows - 1].blackout && strcmp(r->phase, "post-copy"))
		return;
	a->metrics_ns = now_ns() + METRICS_NS;
	metrics_write(a->metrics, a->o.qmp_path, r, NULL, &ignored);
}

/* How it ended, everywhere where that was asked for. */
static void send_tell(struct send_args *a, const struct report *r, const struct err *outcome)
{
	struct err e = { 0 };

	progress_end(&a->progress, r, outcome);
	if (outcome->exit)
		cmd_fail(outcome);
	if (a->progress.how != PROGRESS_JSON)
		report_print(stdout, r, outcome);
	if (a->json && report_write_json(a->json, r, outcome, &e))
		cmd_fail(&e);
	e.exit = GW_OK;
	if (a->metrics && metrics_write(a->metrics, a->o.qmp_path, r, outcome, &e))
		cmd_fail(&e);
}

static void send_ended(const struct report *r, const struct err *outcome, void *args)
{
	struct send_args *a = args;

	a->told = true;
	send_tell(a, r, outcome);
	fflush(stdout);
}

/* The image is there, or not: what has been told before is told whole. */
static void send_tell_image(const struct send_args *a, const struct report *r,
			    const struct err *outcome)
{
	struct err e = { 0 };

	if (a->progress.how != PROGRESS_JSON && !strcmp(r->image.state, "left"))
		printf("godwit: left %.1f MiB of RAM in %s\n",
		       (double)r->image.bytes / (1 << 20), a->o.leave_image);
	if (a->json && report_write_json(a->json, r, outcome, &e))
		cmd_fail(&e);
}

static int send_main(int argc, char **argv)
{
	struct report report = { .phase = "connect" };
	struct send_args a = { 0 };
	struct err e = { 0 };

	if (send_parse(&a, argc, argv, &e))
		return cmd_fail(&e);
	/* As of the report's path. */
	if (a.metrics && metrics_write(a.metrics, a.o.qmp_path, &report, NULL, &e))
		return cmd_fail(&e);
	stop_install();
	a.o.progress = send_show;
	a.o.progress_arg = &a;
	a.o.ended = send_ended;
	sender_run(&a.o, &report, &e);
	tls_creds_free(a.o.tls);
	if (a.told)
		send_tell_image(&a, &report, &e);
	else
		send_tell(&a, &report, &e);
	return e.exit;
}

const struct command cmd_send = {
	"send", "migrate a guest from this host to another",
	.usage = "(--qmp SOCKET | --domain NAME) [options] ADDR:PORT",
	.about = "Migrates the running QEMU guest behind the QMP socket SOCKET, or of the libvirt "
		"domain NAME, to the \"godwit receive\" that listens at ADDR:PORT, or at unix:/PATH.",
	.operand = "ADDR:PORT", .operand_at = offsetof(struct send_args, o.addr),
	.groups = send_groups, .main = send_main,
};
