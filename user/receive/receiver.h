/* SPDX-License-Identifier: GPL-2.0-only */
/* The receiver: the destination side of a migration. */
#ifndef GODWIT_RECEIVER_H
#define GODWIT_RECEIVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "net/engine.h"
#include "tls/tls.h"

/**
 * struct receiver_options - what the user asked for
 * @qmp_path: the destination QEMU's QMP socket; that QEMU was started with -incoming defer
 * @pid: the VMM; 0: the process that listens on the QMP socket
 * @listen: ADDR:PORT
 * @listen_fd: a socket that listens there already, which the receiver takes over; -1: none, the
 *	receiver opens one
 * @tls: NULL: in the clear
 * @insecure: listen on an address that other hosts can reach, in the clear and without a password
 * @timeout_ms: longest silence of the sender or of QEMU, once a sender has come
 * @resolve_s: how long to wait for a sender that may not know how the migration ended
 * @recover_s: how long to wait for the sender of a guest that runs here and lacks RAM
 * @recover: take such a guest over from a receiver that has ended
 * @streams: how many the sender may open, 1 to WIRE_STREAMS_MAX
 * @unpack_threads: how many of them may unpack at once; 0: one for each CPU
 * @reuse: a file with old RAM, to which the sender may refer; NULL: none. @reuse_other: of another
 *	guest, perhaps. @reuse_mib: memory for its index
 */
struct receiver_options {
	const char *qmp_path;
	pid_t pid;
	const char *listen;
	int listen_fd;
	struct tls_creds *tls;
	bool insecure;
	unsigned int timeout_ms;
	unsigned int resolve_s;
	unsigned int recover_s;
	bool recover;
	unsigned int streams;
	unsigned int unpack_threads;
	const char *reuse;
	bool reuse_other;
	unsigned int reuse_mib;
	const struct engine_ops *engine;
};

/**
 * struct receiver_result - for the last line
 * @paused: the guest was paused at the source and is paused here
 * @ended: it has run here, and has ended of its own accord
 */
struct receiver_result {
	uint64_t data_pages;
	uint64_t zero_pages;
	uint64_t reused_pages;
	uint64_t rounds;
	bool paused;
	bool ended;
};

/*
 * Serves one migration. Return: 0: the guest runs here, or is paused as it was at the source. Else
 * it does not run here, unless e->exit is GW_UNKNOWN.
 */
int receiver_run(const struct receiver_options *o, struct receiver_result *res, struct err *e);

#endif
