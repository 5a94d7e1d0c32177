// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#include "io/stop.h"

/* A signal handler has nowhere else to leave its word; every thread looks here. Lock-free, so handlers may. */
enum { STOP_NONE, STOP_TOO_LATE = -1 };
static atomic_int state = STOP_NONE;

static _Thread_local struct {
	void (*look)(void *arg);
	void *arg;
} beside;

bool stop_request(enum stop_reason why)
{
	int before = STOP_NONE;

	return atomic_compare_exchange_strong(&state, &before, (int)why) || before != STOP_TOO_LATE;
}

static void on_signal(int sig)
{
	(void)sig;
	stop_request(STOP_SIGNAL);
}

void stop_install(void)
{
	struct sigaction sa = { .sa_handler = on_signal };	/* no SA_RESTART: waits end */

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
	signal(SIGPIPE, SIG_IGN);
}

bool stop_requested(void)
{
	if (beside.look)
		beside.look(beside.arg);
	return state > STOP_NONE;
}

int stop_err(struct err *e)
{
	switch ((int)state) {
	case STOP_COMMAND:
		return err_set(e, GW_CANCELLED, EINTR, "cancelled by \"godwit cancel\"");
	case STOP_TIME:
		return err_set(e, GW_TIME_LIMIT, EINTR,
			       "cancelled, as the time that --timeout allows is over: allow more, or let --on-timeout pause finish it");
	default:
		return err_set(e, GW_CANCELLED, EINTR, "cancelled by a signal");
	}
}

void stop_ignore(void)
{
	state = STOP_TOO_LATE;
}

void stop_heed(void)
{
	int before = STOP_TOO_LATE;

	atomic_compare_exchange_strong(&state, &before, STOP_NONE);
}

bool stop_commit(void)
{
	int before = STOP_NONE;

	return atomic_compare_exchange_strong(&state, &before, STOP_TOO_LATE);
}

void stop_look(void (*look)(void *arg), void *arg)
{
	beside.look = look;
	beside.arg = arg;
}
