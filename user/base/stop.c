// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#include "base/stop.h"

/*
 * File scope, as a signal handler gets no argument to write through; every thread reads it.
 * Lock-free, so a handler may write it. Besides these two it holds an enum stop_reason.
 */
enum { STOP_NONE, STOP_TOO_LATE = -1 };
static atomic_int stop_state = STOP_NONE;

static _Thread_local struct {
	void (*call)(void *arg);
	void *arg;
} stop_hook;

bool stop_request(enum stop_reason why)
{
	int before = STOP_NONE;

	return atomic_compare_exchange_strong(&stop_state, &before, (int)why) ||
	       before != STOP_TOO_LATE;
}

static void stop_on_signal(int sig)
{
	(void)sig;
	stop_request(STOP_SIGNAL);
}

void stop_install(void)
{
	struct sigaction sa = { .sa_handler = stop_on_signal };	/* no SA_RESTART: waits end */

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
	/* A file that may grow no more is an error like any other (EFBIG). */
	signal(SIGXFSZ, SIG_IGN);
	/* "stty tostop": no word of a background job's may stop it while a guest waits for it. */
	signal(SIGTTOU, SIG_IGN);
}

bool stop_requested(void)
{
	if (stop_hook.call)
		stop_hook.call(stop_hook.arg);
	return stop_state > STOP_NONE;
}

int stop_err(struct err *e)
{
	switch ((int)stop_state) {
	case STOP_COMMAND:
		return err_set(e, GW_CANCELLED, EINTR, "cancelled by \"godwit cancel\"");
	case STOP_TIME:
		return err_set(e, GW_TIME_LIMIT, EINTR,
			       "cancelled, as the time that --timeout allows is over: allow more, or finish with --on-timeout pause");
	default:
		return err_set(e, GW_CANCELLED, EINTR, "cancelled by a signal");
	}
}

void stop_ignore(void)
{
	stop_state = STOP_TOO_LATE;
}

void stop_heed(void)
{
	int before = STOP_TOO_LATE;

	atomic_compare_exchange_strong(&stop_state, &before, STOP_NONE);
}

bool stop_commit(void)
{
	int before = STOP_NONE;

	return atomic_compare_exchange_strong(&stop_state, &before, STOP_TOO_LATE);
}

void stop_set_hook(void (*hook)(void *arg), void *arg)
{
	stop_hook.call = hook;
	stop_hook.arg = arg;
}
