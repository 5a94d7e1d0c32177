/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SIGINT, SIGTERM and SIGHUP, `godwit cancel` and --timeout request a stop. Every wait asks
 * stop_requested() at least ten times a second.
 */
#ifndef GODWIT_STOP_H
#define GODWIT_STOP_H

#include <stdbool.h>

#include "base/err.h"

enum stop_reason { STOP_SIGNAL = 1, STOP_COMMAND, STOP_TIME };

/* From now on the signals request a stop. */
void stop_install(void);
/*
 * false: too late, stop_ignore() or stop_commit() came first. Of several reasons the first counts.
 */
bool stop_request(enum stop_reason why);
/* Also calls this thread's hook, see stop_set_hook(). */
bool stop_requested(void);
/* The reason as an error: GW_CANCELLED, or GW_TIME_LIMIT. Return: -EINTR. */
int stop_err(struct err *e);

/* After the commit point there is nothing left to stop: requests are refused from now on. */
void stop_ignore(void);
/*
 * The same in one atomic step with the test that no request came before, so none is lost in
 * between. false: one did (or requests were refused already), and nothing is changed.
 */
bool stop_commit(void);
/* The caller may give up its next wait: requests are accepted again. */
void stop_heed(void);

/*
 * stop_requested() calls the hook, in the thread that set the hook and in no other. The hook serves
 * the control socket: a thread that waits is sure to call stop_requested(). NULL: no hook.
 */
void stop_set_hook(void (*hook)(void *arg), void *arg);

#define STOP_SLICE_NS 100000000ull	/* no wait goes longer without stop_requested() */

#endif
