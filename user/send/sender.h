/* SPDX-License-Identifier: GPL-2.0-only */
/* The source side of a migration, from the preflight checks to the report. */
#ifndef GODWIT_SENDER_H
#define GODWIT_SENDER_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "codec/codec.h"
#include "codec/delta.h"
#include "devstate/mode.h"
#include "net/engine.h"
#include "plan/limits.h"
#include "report/report.h"
#include "tls/tls.h"

/**
 * struct sender_options - what the user asked for
 * @qmp_path: the source QEMU's QMP socket
 * @pid: the VMM; 0: the process that listens on the socket
 * @addr: the receiver's ADDR:PORT
 * @tls: NULL: in the clear
 * @limits: at the beginning; the operator can change them while the migration runs
 * @control: the control socket's path; NULL: CONTROL_DIR/PID.sock
 * @timeout_ms: longest silence of the peer or of QEMU
 * @reconnect_s: how long to try again when the link is lost in pre-copy; 0: not at all
 * @recover_s: how long to try again when the link is lost in post-copy
 * @recover: the guest has moved, and lacks RAM: goes on where another sender has ended
 * @resolve_s: how long to ask the receiver when the connection broke after the commit point
 * @wish: how the device state travels
 * @accepted: differences between both ends that the operator accepts, see findings.h
 * @no_compare: look for none
 * @verify: compare hashes of all RAM before the commit point
 * @streams: connections for RAM; the receiver may allow fewer. 0: as many as the link needs, and at
 *	least one for each of @cpus
 * @engine: how godwit waits for sockets
 * @zero_copy: of RAM to the network, see engine.h
 * @delta: whether pages that are sent again go as their changes
 * @delta_mib: memory for what it notes of pages; 0: as with DELTA_OFF
 * @reuse_mib: memory for what the receiver says that it has in a file; 0: nothing is reused
 * @leave_image: where to leave the guest's RAM once it runs at the destination; NULL: nowhere
 * @ended: called before that, when all else is over and nobody waits for anything: @report and
 *	*outcome are what the caller gets
 * @pack_threads: how many streams may pack at once; 0: one for each CPU
 * @pause: no module: stop the guest first, send everything once
 * @progress: called about ten times a second; may be NULL
 */
struct sender_options {
	const char *qmp_path;
	pid_t pid;
	const char *addr;
	struct tls_creds *tls;
	struct limits limits;
	const char *control;
	unsigned int timeout_ms;
	unsigned int reconnect_s;
	unsigned int recover_s;
	bool recover;
	unsigned int resolve_s;
	unsigned int streams;
	unsigned int cpus;
	const struct engine_ops *engine;
	enum engine_zero_copy zero_copy;
	enum delta_wish delta;
	unsigned int delta_mib;
	unsigned int reuse_mib;
	const char *leave_image;
	void (*ended)(const struct report *report, const struct err *outcome, void *arg);
	unsigned int pack_threads;
	enum mode_wish wish;
	unsigned int accepted;
	bool no_compare;
	bool verify;
	bool pause;
	report_fn progress;
	void *progress_arg;
};

/**
 * sender_run() - migrate
 * Return: 0: the guest runs at the destination. Else -errno, and *e says why. Unless that is
 * GW_UNKNOWN, GW_NOT_PUT_BACK, GW_INCOMPLETE or GW_GUEST_LOST, the source VM is as it was before,
 * but for what others did to it.
 */
int sender_run(const struct sender_options *o, struct report *report, struct err *e);

#endif
