/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Asks over the control connection whether the destination fits: before the sender asks for RAM,
 * and again before the switchover.
 */
#ifndef GODWIT_FIT_H
#define GODWIT_FIT_H

#include "fit/findings.h"
#include "devstate/mode.h"
#include "fit/view.h"
#include "net/channel.h"

/**
 * struct fit - both ends, and what differs
 * @here, @there: their views, see compare.h; NULL: none yet, or the receiver is too old to make one
 * @glance_here, @glance_there: what fit_again() compares first: { devices, disks }
 * @known: of our QEMU, between two comparisons
 */
struct fit {
	json_t *here, *there;
	json_t *glance_here, *glance_there;
	struct qom_known known;
	struct findings findings;
};

/**
 * fit_ask() - make the receiver's view and ours at the same time, and compare them
 * @fit: the caller has set fit->findings.accepted
 * Return: 0, also when nothing fits: findings_verdict() says so. Errors: those of a channel and of
 * view_make(), GW_BAD_PEER, GW_TIMEOUT (the receiver lives, and does not answer).
 */
int fit_ask(struct channel *ch, struct qmp *q, struct vm *vm, struct fit *fit, struct err *e);
/**
 * fit_again() - the same, shortly before the switchover
 * An operator may have plugged, unplugged or resized something since, at either end. Five commands
 * show that (a few ms), and only then both ends make new views. The guest runs meanwhile.
 * Return: 0: nothing has changed, or both have been compared again: *changed says which. Errors: as
 * above.
 */
int fit_again(struct channel *ch, struct qmp *q, struct vm *vm, struct fit *fit, bool *changed,
	      struct err *e);
/*
 * When nothing can be plugged any more, or the guest could not use it: has a device been plugged
 * since the last comparison? Four commands. Errors: GW_VM_STATE.
 */
int fit_check_same(struct qmp *q, const struct fit *fit, struct err *e);
/* Sends the receiver's answer to ASK_VIEW with these flags. Changes nothing in its QEMU. */
int fit_answer(struct channel *ch, struct qmp *q, struct vm *vm, struct qom_known *known,
	       unsigned int flags, struct err *e);
/**
 * fit_choose_mode() - the mode once more, with what the receiver's view says
 * @mode, @ram: in: of mode_choose() before; out: save mode, if nothing else can fill that RAM
 * Errors: those of mode_choose()
 */
int fit_choose_mode(const struct fit *fit, enum mode_wish wish, struct qmp *q, struct vm *vm,
		    bool running, enum devstate_mode *mode, struct private_ram *ram, struct err *e);
void fit_free(struct fit *fit);

#endif
