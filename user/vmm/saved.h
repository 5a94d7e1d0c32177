/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * QEMU's device state without a migration: `stop`, then the QMP command xen-save-devices-state (which needs no Xen), made
 * into what a destination that waits with -incoming understands. It takes as long for any amount of RAM, where `migrate`
 * goes through all of it, and it sends no RAM at all: private.h.
 */
#ifndef GODWIT_SAVED_H
#define GODWIT_SAVED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "vmm/qmp.h"

#define SAVED_MAX	(64u << 20)	/* bytes; without RAM it is some 100 KiB */

/**
 * struct saved - the device state on its way
 * @file: where QEMU writes it; -1: not open
 * @fdset: QEMU's name for that
 * @machine: the machine type, as the stream names it
 * @state: what came, @len bytes of it
 */
struct saved {
	int file;
	long long fdset;
	char machine[64];
	uint8_t *state;
	size_t len;
};

#define SAVED_NONE	((struct saved) { .file = -1, .fdset = -1 })

/* Prepares it while the guest runs; saved_close() also after an error. */
int saved_open(struct saved *s, struct qmp *q, struct err *e);
/* Begins to save. Its answer comes with qmp_event(), see qmp_answered(). */
int saved_begin(struct saved *s, struct qmp *q, struct err *e);
/*
 * After the answer: has it given up its disks? QEMU answers well also when it could not, and then the destination does not get
 * them, or both have them. Only 10.0 and newer say so; of older ones nothing is known. Errors: GW_VM_STATE, naming the disk.
 */
int saved_check_disks(struct qmp *q, struct err *e);
/*
 * After the answer: s->state becomes a stream for -incoming. running: whether the guest is to run there. GW_QMP: QEMU's state
 * is not what this knows.
 */
int saved_finish(struct saved *s, bool running, struct err *e);
/*
 * Of a part of a device state, QEMU's own stream or what saved_finish() makes: does the guest run where it is loaded? 1: yes, 0: no,
 * -1: this part does not say. A part that overlaps the one before by SAVED_OVERLAP bytes misses nothing.
 */
#define SAVED_OVERLAP	160u
int saved_says_running(const uint8_t *p, size_t len);
void saved_close(struct saved *s);
/* QEMU keeps its set of descriptors until this: the mark of a VM whose guest has moved, see saved_before(). */
void saved_forget(struct qmp *q);
/* Is there anything to forget? A VM that stands still with it has moved, or nobody knows. */
bool saved_before(struct qmp *q);

/*
 * What saved_finish() does. Pure; out has room for len + SAVED_MORE bytes. Return: bytes of out, or -EPROTO.
 * The stream lacks the configuration section with the machine type, and a description at its end; and it says that the
 * guest ran, in the section "globalstate". Source: QEMU migration/savevm.c, migration/global_state.c.
 */
#define SAVED_MORE	128u
long saved_to_stream(const uint8_t *state, size_t len, const char *machine, bool running, uint8_t *out);

#endif
