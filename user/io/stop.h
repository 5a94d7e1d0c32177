/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SIGINT, SIGTERM and SIGHUP ask to stop, as do `godwit cancel` and --timeout; everything that waits looks here at least
 * ten times a second.
 */
#ifndef GODWIT_STOP_H
#define GODWIT_STOP_H

#include <stdbool.h>

#include "err.h"

enum stop_reason { STOP_SIGNAL = 1, STOP_COMMAND, STOP_TIME };

/* The signals ask from now on. */
void stop_install(void);
/* false: it is too late, stop_ignore() or stop_commit() came first. Of several reasons the first counts. */
bool stop_request(enum stop_reason why);
/* Has anybody asked? Also calls what stop_look() has set. */
bool stop_requested(void);
/* The reason as an error: GW_CANCELLED, or GW_TIME_LIMIT. Return: -EINTR. */
int stop_err(struct err *e);

/* Behind the commit point there is nothing left to stop: requests are refused from here on. */
void stop_ignore(void);
/* The same, unless somebody has asked before: then false. No request is lost between the two. */
bool stop_commit(void);
/* What is waited for now may be left: requests are heard again. */
void stop_heed(void);

/*
 * look: called by stop_requested(), in the thread that set it and no other. Who else may ask to stop is served there, as
 * whoever waits is sure to come by. NULL: no more.
 */
void stop_look(void (*look)(void *arg), void *arg);

#define STOP_SLICE_NS 100000000ull	/* no wait is longer than this without a look */

#endif
