/* SPDX-License-Identifier: GPL-2.0-only */
/* Whether the destination fits, over the control connection: before RAM is asked for, and again before the switchover. */
#ifndef GODWIT_FIT_H
#define GODWIT_FIT_H

#include "fit/findings.h"
#include "fit/view.h"
#include "io/channel.h"

/**
 * struct fit - both ends, and what differs
 * @here, @there: their views, see compare.h; NULL: none yet, or the receiver is too old to make one
 * @glance: what fit_again() looks at first
 */
struct fit {
	json_t *here, *there, *glance;
	struct findings findings;
};

/**
 * fit_ask() - the receiver's view and ours, made at the same time, and what differs between them
 * @fit: fit->findings.accepted is the caller's
 * Return: 0, also when nothing fits: findings_verdict() says so. Errors: those of a channel and of view_make(), GW_BAD_PEER.
 */
int fit_ask(struct channel *ch, struct qmp *q, struct vm *vm, struct fit *fit, struct err *e);
/**
 * fit_again() - the same shortly before the switchover
 * An operator may have plugged, unplugged or resized something since. Five commands say whether (a few ms); only if so both ends
 * are looked at again. The guest runs meanwhile. Return: 0: nothing has changed, or it fits all the same: *changed says which.
 * Errors: as above.
 */
int fit_again(struct channel *ch, struct qmp *q, struct vm *vm, struct fit *fit, bool *changed, struct err *e);
/* The receiver's answer, when ASK_VIEW has come. brief: it had WIRE_BRIEF. Changes nothing. */
int fit_answer(struct channel *ch, struct qmp *q, struct vm *vm, bool brief, struct err *e);
void fit_free(struct fit *fit);

#endif
