/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Save mode: QEMU's device state without a migration. godwit stops the guest, runs the QMP command
 * xen-save-devices-state (which needs no Xen), and makes the result into a stream that a
 * destination with -incoming loads. The command takes the same time for any amount of RAM, where
 * `migrate` goes through all RAM, and it sends no RAM at all: godwit sends the private RAM
 * (private_ram.h).
 */
#ifndef GODWIT_SAVE_H
#define GODWIT_SAVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "qmp/qmp.h"

#define SAVE_MAX	(64u << 20)	/* bytes; without RAM it is some 100 KiB */

/**
 * struct save_state - one device state, from save_open() to save_close()
 * @file: the memfd that QEMU writes it to; -1: not open
 * @fdset: the id of QEMU's descriptor set for that file
 * @machine: the machine type, as the stream names it
 * @state: the stream that save_finish() makes, @len bytes
 */
struct save_state {
	int file;
	long long fdset;
	char machine[64];
	uint8_t *state;
	size_t len;
};

#define SAVE_NONE	((struct save_state) { .file = -1, .fdset = -1 })

/* Prepares the save while the guest runs; save_close() also after an error. */
int save_open(struct save_state *s, struct qmp *q, struct err *e);
/* Begins to save. qmp_event() reads QEMU's reply, see qmp_answered(). */
int save_begin(struct save_state *s, struct qmp *q, struct err *e);
/*
 * After QEMU's reply: did QEMU give up its disks? QEMU replies with success also when it could not;
 * then the destination does not get the disks, or both QEMUs have them. Only 10.0 and newer report
 * which disks they kept; of an older QEMU godwit learns nothing, and 0 is returned. Errors:
 * GW_VM_STATE, naming the disk.
 */
int save_check_disks(struct qmp *q, struct err *e);
/* Has it a disk, or again? 1: yes, *node says which; 0: no, or an older QEMU; else -errno. */
int save_active_disk(struct qmp *q, char *node, size_t len, struct err *e);
/*
 * After QEMU's reply: makes s->state a stream for -incoming. running: the guest is to run at the
 * destination. GW_QMP: QEMU saved a format that godwit does not know, or too much. GW_VM_STATE: the
 * guest is not to run, and the state has more than one section that says whether it is.
 */
int save_finish(struct save_state *s, bool running, struct err *e);
/*
 * Reads a part of QEMU's own stream: what does each note there say that may be QEMU's, of whether
 * the guest ran when QEMU stopped it? 0: there is none in this part. A caller that passes parts
 * which overlap by SAVE_OVERLAP bytes misses nothing.
 */
#define SAVE_OVERLAP	160u
#define SAVE_SAYS_RUNS	1u
#define SAVE_SAYS_STANDS 2u
unsigned int save_says(const uint8_t *p, size_t len);
/*
 * Did the guest run when QEMU's migration stopped it? says: of all parts. ran: it did before
 * `migrate`, by QEMU's answer, and an operator may have stopped it since. stopped: QEMU has said
 * STOP since. The guest may have written notes, too: one counts only if no other contradicts it,
 * and if QEMU's answer and events do not. In doubt it did not: an operator may have paused it.
 */
bool save_ran(unsigned int says, bool ran, bool stopped);
void save_close(struct save_state *s);
/*
 * Removes godwit's descriptor set from QEMU. QEMU keeps the set until then, as the mark of a VM
 * whose guest has moved: see save_has_fdset().
 */
void save_remove_fdset(struct qmp *q);
/* Does QEMU have godwit's set? The guest of a stopped VM with it has moved, or is in doubt. */
bool save_has_fdset(struct qmp *q);

/*
 * The pure part of save_finish(); out has room for len + SAVE_MORE bytes. Return: bytes of out;
 * -EPROTO; or -ENOTUNIQ: which section to correct is not known. What QEMU saves lacks the
 * configuration section with the machine type at its beginning, and a description at its end; and
 * its section "globalstate" says that the guest ran. Source: QEMU migration/savevm.c,
 * migration/global_state.c.
 */
#define SAVE_MORE	128u
long save_to_stream(const uint8_t *state, size_t len, const char *machine, bool running,
		    uint8_t *out);

#endif
