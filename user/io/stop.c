// SPDX-License-Identifier: GPL-2.0-only
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

#include "io/stop.h"

/* A signal handler has nowhere else to leave its word; every thread looks here. Lock-free, so handlers may. */
static atomic_bool stop;
static atomic_bool ignored;

static void on_signal(int sig)
{
	(void)sig;
	stop = true;
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
	return stop && !ignored;
}

void stop_ignore(void)
{
	ignored = true;
}
