/* SPDX-License-Identifier: GPL-2.0-only */
/* Asking a receiver whether a guest would be welcome, and how far away it is. It goes on waiting for a guest. */
#ifndef GODWIT_PROBE_H
#define GODWIT_PROBE_H

#include <stdint.h>

#include "err.h"
#include "fit/fit.h"
#include "io/channel.h"
#include "vmm/private.h"
#include "vmm/vm.h"

/**
 * struct probe_question - would this VM be welcome?
 * @addr: the receiver's ADDR:PORT
 * @private: QEMU's private RAM, if the device state could be saved, else nothing is in it
 * @timeout_ms: longest silence of the receiver
 * @fit: where to say what differs of the machines behind it and behind @qmp, if the receiver can tell; NULL: do not ask
 */
struct probe_question {
	const char *addr;
	struct vm *vm;
	struct qmp *qmp;
	struct fit *fit;
	const struct private_ram *private;
	const struct engine_ops *engine;
	unsigned int timeout_ms;
};

/**
 * struct probe_answer - what the receiver says of itself
 * @streams: connections for RAM that it allows
 * @qemu_version: of its QEMU, as qmp_version()
 * @saved: it can load a device state that was saved
 */
struct probe_answer {
	unsigned int streams;
	unsigned int qemu_version;
	bool saved;
};

/* Would this VM's RAM fit there? Errors: those of hello(), and what the receiver refuses (GW_RAM_DIFFERS ...). */
int probe_open(const struct probe_question *question, struct channel **out, struct probe_answer *answer, struct err *e);
/* The shortest of a few round trips, and what it says of the receiver's clock (hello.h). */
int probe_delay(struct channel *ch, uint64_t *rtt_ns, int64_t *offset_ns, struct err *e);
/**
 * probe_speed() - how much one connection carries
 * @ms: send for about so long
 * @bytes_per_s: until the receiver has taken the last byte
 */
int probe_speed(struct channel *ch, unsigned int ms, uint64_t *bytes_per_s, struct err *e);

#endif
