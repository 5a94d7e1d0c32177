/* SPDX-License-Identifier: GPL-2.0-only */
/* What a VMM does while a harvest stands at a place of its way. */
#ifndef KST_PAUSED_H
#define KST_PAUSED_H

#include "session.h"

/* As the module's parameter has them (enum godwit_pause). */
enum harvest_pause { PAUSE_SLOTS_SEEN = 1, PAUSE_LAST_LOOK, PAUSE_FLAGS };

/*
 * Harvests, and calls act(arg) as soon as the harvest pauses there: it goes on when act() has
 * returned. What the harvest returns; h may be NULL. Ends the process if it never comes there.
 */
int harvest_while(struct session *s, struct godwit_harvest *h, enum harvest_pause where,
		  void (*act)(void *arg), void *arg);
/* For a fixture's teardown: no harvest pauses. */
void no_harvest_pauses(void);

#endif /* KST_PAUSED_H */
