/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Whether the destination fits, over the control connection: before RAM is asked for, and again
 * before the switchover.
 */
#ifndef GODWIT_FIT_H
#define GODWIT_FIT_H

#include "fit/findings.h"
#include "fit/view.h"
#include "io/channel.h"

/**
 * struct fit - both ends, and what differs
 * @here, @there: their views, see compare.h; NULL: none yet, or the receiver is too old to make one
 * @glance_here, @glance_there: what fit_again() looks at first: { devices, disks }
 */
struct fit {
	json_t *here, *there;
	json_t *glance_here, *glance_there;
	struct findings findings;
};

/**
 * fit_ask() - the receiver's view and ours, made at the same time, and what differs between them
 * @fit: fit->findings.accepted is the caller's
 * Return: 0, also when nothing fits: findings_verdict() says so. Errors: those of a channel and of
 * view_make(), GW_BAD_PEER, GW_TIMEOUT (the receiver lives, and does not answer).
 */
int fit_ask(struct channel *ch, struct qmp *q, struct vm *vm, struct fit *fit, struct err *e);
/**
 * fit_again() - the same shortly before the switchover
 * An operator may have plugged, unplugged or resized something since, at either end. Five commands
 * say whether (a few ms); only if so both ends are looked at again. The guest runs meanwhile.
 * Return: 0: nothing has changed, or both have been compared anew: *changed says which. Errors: as
 * above.
 */
int fit_again(struct channel *ch, struct qmp *q, struct vm *vm, struct fit *fit, bool *changed,
	      struct err *e);
/*
 * When nothing can be plugged any more, or nothing that is would be used: has it been since? Four
 * commands. Errors: GW_VM_STATE.
 */
int fit_check_same(struct qmp *q, const struct fit *fit, struct err *e);
/* The receiver's answer, when ASK_VIEW has come with these flags. Changes nothing. */
int fit_answer(struct channel *ch, struct qmp *q, struct vm *vm, unsigned int flags, struct err *e);
void fit_free(struct fit *fit);

#endif
