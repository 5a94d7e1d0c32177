// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>

#include "cmd/shared.h"
#include "devstate/mode.h"
#include "fit/findings.h"
#include "plan/limits.h"
#include "tls/tls.h"
#include "wire/wire.h"

const struct cmd_option cmd_vm_options[CMD_VM_OPTIONS] = {
	[CMD_QMP] = {
		"qmp", .value = "SOCKET",
		.set = cmd_set_text, .offset = offsetof(struct cmd_vm, qmp),
		.help = "the source QEMU's QMP socket, from -qmp unix:SOCKET,server=on,wait=off",
	},
	[CMD_DOMAIN] = {
		"domain", .value = "NAME",
		.set = cmd_set_text, .offset = offsetof(struct cmd_vm, domain),
		.help = "the libvirt domain NAME instead, which needs a second QMP socket "
			"(docs/libvirt.md)",
		.more = "The domain is one of the system instance, and runs.\n"
			"libvirt holds its own monitor socket, so the domain needs another one;\n"
			".Nm\n"
			"names the lines that its XML lacks.\n"
			"The domain's memory may be of any kind.\n"
			"libvirt does not hear of a migration: afterwards the domain is paused at "
			"the source.",
	},
	[CMD_PID] = {
		"pid", .value = "PID", .set = cmd_set_pid, .offset = offsetof(struct cmd_vm, pid),
		.help = "the QEMU process, if another process made the socket",
	},
};

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
		vm->pid = vm->found.pid;
	return 0;
}

int cmd_find_vm(const struct command *c, struct cmd_vm *vm, struct err *e)
{
	if (!vm->qmp == !vm->domain)
		return err_set(
			e, GW_USAGE, EINVAL,
			"%s needs --qmp SOCKET or --domain NAME: see \"godwit %s --help\"",
			c->name, c->name);
	return cmd_find_domain(vm, e);
}

static int shared_set_limit(const struct cmd_option *o, const char *text, void *to, struct err *e)
{
	return limits_set(to, o->name, text, e);
}

const struct cmd_option cmd_limits[CMD_LIMITS] = {
	[CMD_DOWNTIME_LIMIT] = {
		"downtime-limit", .value = "MS", .initial = "300", .set = shared_set_limit,
		.help = "switch over when the predicted downtime is at most MS milliseconds",
	},
	[CMD_DOWNTIME_RAMP] = {
		"downtime-ramp", .value = "MS", .initial = "0", .set = shared_set_limit,
		.help = "raise that limit up to MS milliseconds, by a tenth of the way for each "
			"round that does not help; 0: never",
		.more = "A round does not help when it leaves about as much as the best one "
			"before.",
	},
	[CMD_MAX_ROUNDS] = {
		"max-rounds", .value = "N", .initial = "30", .set = shared_set_limit,
		.help = "give up when N rounds have not reached that limit",
	},
	[CMD_TIMEOUT] = {
		"timeout", .value = "S", .initial = "0", .set = shared_set_limit,
		.help = "seconds for the whole migration, counted from its beginning; 0: no limit",
	},
	[CMD_ON_TIMEOUT] = {
		"on-timeout", .words = "cancel|pause", .initial = "cancel", .set = shared_set_limit,
		.help = "what to do when that time is over; cancel: give up; pause: stop the "
			"guest and send the rest, whatever downtime that costs",
	},
	[CMD_BANDWIDTH] = {
		"bandwidth", .value = "MIB", .initial = "0", .set = shared_set_limit,
		.help = "send at most MIB MiB/s until the switchover; 0: no limit",
		.more = "All connections share it.\n"
			"It does not hold back the last round, so with\n"
			".Fl -pause\n"
			"it holds back nothing.",
	},
	[CMD_COMPRESS] = {
		"compress", .value = "HOW", .initial = "auto", .set = shared_set_limit,
		.help = "how RAM is packed: auto, off, lz4, zstd[:LEVEL] or zlib[:LEVEL]; auto: "
			"by what is slowest, the link, this host or the receiver",
		.more = "With\n"
			".Cm auto\n"
			"each stream chooses for each frame of up to 64 pages: raw, lz4, zstd:1 or "
			"zstd:3.\n"
			"LEVEL is 1 to 19 for zstd, 1 to 9 for zlib, and 1 if it is left out.\n"
			"An older receiver gets RAM as it is with\n"
			".Cm auto ,\n"
			"and is refused with a codec that it does not know.",
	},
	[CMD_POSTCOPY] = {
		"postcopy", .words = "off|auto|on|now", .initial = "auto", .set = shared_set_limit,
		.help = "when the guest runs at the destination before all of its RAM is there, "
			"whose pages follow, at once when it touches them; auto: when rounds do "
			"not help; on: after the first round; now: without another round",
		.more = "The downtime then does not depend on what the guest writes.\n"
			"Until the last page has come neither host has all of the guest.\n"
			"If one of both, or one of both QEMUs, is lost in that time, the guest is "
			"lost with it.\n"
			"The destination needs godwit.ko and\n"
			".Pa /dev/userfaultfd ,\n"
			"and RAM in files of tmpfs or hugetlbfs; where it has not,\n"
			".Cm auto\n"
			"is\n"
			".Cm off ,\n"
			"and the others are refused.\n"
			"With\n"
			".Fl -verify\n"
			"or\n"
			".Fl -pause\n"
			"it is\n"
			".Cm off\n"
			"as well.\n"
			"A migration that began with\n"
			".Cm off\n"
			"cannot change to another.",
	},
	[CMD_THROTTLE] = {
		"throttle", .value = "HOW", .initial = "off", .set = shared_set_limit,
		.help = "slow the guest's vCPUs until the switchover: auto: as much as it takes "
			"for rounds to help; PERCENT: of the time that each vCPU stands still; "
			"off: not",
		.more = "With\n"
			".Cm auto\n"
			"there is post-copy only where that does not help either.\n"
			"vCPUs stand still for 10 ms at a time (with 99 %: 30 ms), and run as "
			"ever at once when the migration ends, however it ends.",
	},
};

const struct cmd_option cmd_compress_threads = {
	"compress-threads", .value = "N", .min = 1, .max = WIRE_STREAMS_MAX, .set = cmd_set_number,
	.help = "let at most N streams pack at once; without this option one for each CPU that "
		"this process may use",
};

static int shared_set_device_state(const struct cmd_option *o, const char *text, void *to,
				   struct err *e)
{
	(void)o;
	return mode_parse(text, to, e);
}

const struct cmd_option cmd_device_state = {
	"device-state", .words = "auto|migrate|save", .initial = "auto",
	.set = shared_set_device_state,
	.help = "how device state and QEMU's private RAM travel; migrate: by a migration of "
		"QEMU's without guest RAM; save: saved by QEMU and sent by godwit; auto: save "
		"where QEMU would send RAM itself (private memory, a memfd), and from 128 GiB of "
		"RAM on, else migrate",
	.more = "QEMU's private RAM is what QEMU has for devices\n"
		".Pq displays, flash, ROMs .\n"
		"With\n"
		".Cm migrate\n"
		"QEMU goes through all of the guest's RAM, which takes 75 microseconds of "
		"downtime for each GiB.\n"
		"With\n"
		".Cm save\n"
		"it takes some 5 milliseconds for any size, and both ends need the same devices "
		"and private RAM.\n"
		".Cm auto\n"
		"saves a running guest only; but a newer QEMU does not leave a memfd out of its "
		"migration, and none leaves out\n"
		"the guest's RAM where that is private, at either end, so there it always saves.",
};

static int shared_set_accept(const struct cmd_option *o, const char *text, void *to, struct err *e)
{
	(void)o;
	return fit_accept(text, to, e);
}

const struct cmd_option cmd_accept = {
	"accept", .value = "WHAT", .words = "machine|cpu|memory|device|disk|backend|host|room",
	.set = shared_set_accept,
	.help = "migrate although the destination differs in WHAT",
	.more = "Otherwise the migration ends with status 29 before anything is sent where the "
		"destination is not the machine\n"
		"that the guest was started on, and the message names each difference with the "
		"option to change.\n"
		"QEMU still refuses, with the guest stopped, what it cannot load.",
};

const struct cmd_option cmd_peer_timeout = {
	"peer-timeout", .value = "S", .min = 1, .max = 3600, .initial = "30",
	.set = cmd_set_seconds,
	.help = "give up when the peer or QEMU is silent for S seconds",
	.more = "The peer may be silent for 20 round trips of the link longer.",
};

/* Stored as text: engine_choose() probes the kernel, for the engine that is wanted in the end. */
const struct cmd_option cmd_io = {
	"io", .words = "auto|uring|poll", .initial = "auto", .set = cmd_set_text,
	.help = "how to wait for the network; uring: io_uring; poll: poll(2); auto: io_uring "
		"where the kernel offers it, else poll(2)",
};

const struct cmd_option cmd_tls_options[CMD_TLS_OPTIONS] = {
	[CMD_TLS_CREDS] = {
		"tls-creds", .value = "DIR",
		.set = cmd_set_text, .offset = offsetof(struct tls_options, creds),
		.help = "encrypt and authenticate the connections by TLS, with the certificates in DIR",
		.more = "DIR is as QEMU and libvirt have it:\n"
			".Pa ca-cert.pem ,\n"
			"maybe\n"
			".Pa ca-crl.pem ,\n"
			"and\n"
			".Pa server-cert.pem\n"
			"and\n"
			".Pa server-key.pem\n"
			"at the receiver,\n"
			".Pa client-cert.pem\n"
			"and\n"
			".Pa client-key.pem\n"
			"at the sender.\n"
			"Without this option, and without\n"
			".Fl -tls-psk\n"
			"and\n"
			".Fl -insecure ,\n"
			"it is the first of\n"
			".Pa /etc/pki/godwit\n"
			"and\n"
			".Pa /etc/pki/qemu\n"
			"that has a\n"
			".Pa ca-cert.pem .",
	},
	[CMD_TLS_PSK] = {
		"tls-psk", .value = "FILE",
		.set = cmd_set_text, .offset = offsetof(struct tls_options, psk),
		.help = "the same with the pre-shared keys in FILE, as \"psktool -u godwit -p FILE\" makes it",
		.more = "Both ends have the same file.\n"
			"A sender is the user of its first line.",
	},
	[CMD_TLS_HOSTNAME] = {
		"tls-hostname", .value = "HOST",
		.set = cmd_set_text, .offset = offsetof(struct tls_options, hostname),
		.help = "the receiver's certificate must be for HOST, not for the name or number in ADDR:PORT",
	},
	[CMD_TLS_INSECURE] = {
		"insecure", .set = cmd_set_flag, .offset = offsetof(struct tls_options, insecure),
		.help = "without TLS, also where /etc/pki has certificates",
	},
};

const struct cmd_option cmd_json = { "json", .set = cmd_set_flag, .help = "print a JSON object" };
