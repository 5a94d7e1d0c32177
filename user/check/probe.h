/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Asks a receiver whether this VM can migrate to it, and measures the link. The receiver goes on
 * waiting for a sender afterwards.
 */
#ifndef GODWIT_PROBE_H
#define GODWIT_PROBE_H

#include <stdint.h>

#include "base/err.h"
#include "devstate/private_ram.h"
#include "fit/fit.h"
#include "net/channel.h"
#include "plan/loss.h"
#include "vmm/vm.h"

/**
 * struct probe_question - can this VM migrate to the receiver?
 * @addr: the receiver's ADDR:PORT
 * @tls: NULL: in the clear
 * @fit: out: what differs between the machines of the receiver and of @qmp, if the receiver can
 *	tell
 * @wish: @running: for mode_choose()
 * @mode: @private: in: what it has chosen; out: as fit_choose_mode()
 * @timeout_ms: longest silence of the receiver
 */
struct probe_question {
	const char *addr;
	struct tls_creds *tls;
	struct vm *vm;
	struct qmp *qmp;
	struct fit *fit;
	enum mode_wish wish;
	bool running;
	enum devstate_mode *mode;
	struct private_ram *private;
	const struct engine_ops *engine;
	unsigned int timeout_ms;
};

/**
 * struct probe_answer - what the receiver says of itself
 * @features: those that both ends offer
 * @streams: how many it allows
 * @qemu_version: of its QEMU, as qmp_version()
 * @save_mode: its QEMU can load a device state in save mode
 */
struct probe_answer {
	uint64_t features;
	unsigned int streams;
	unsigned int qemu_version;
	bool save_mode;
};

/*
 * Connects, and asks the receiver. The caller frees *out, also after an error. Errors: those of
 * hello(), and the receiver's reason to refuse (GW_RAM_DIFFERS ...).
 */
int probe_open(const struct probe_question *question, struct channel **out,
	       struct probe_answer *answer, struct err *e);
/* The shortest of a few round trips, and the offset of the receiver's clock by it (hello.h). */
int probe_delay(struct channel *ch, uint64_t *rtt_ns, int64_t *offset_ns, struct err *e);
/**
 * probe_speed() - measure the speed of one connection
 * @ms: send for about so long
 * @bytes_per_s: measured until the receiver has read the last byte
 * @loss: what was lost, and how much a segment carries. Not in the first half of that time, in
 *	which TCP looks for the link's rate, and loses what is too much
 */
int probe_speed(struct channel *ch, unsigned int ms, uint64_t *bytes_per_s, struct loss *loss,
		struct err *e);

#endif
