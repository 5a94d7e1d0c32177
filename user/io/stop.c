// SPDX-License-Identifier: GPL-2.0-only
#include <signal.h>
#include <stddef.h>

#include "io/stop.h"

static volatile sig_atomic_t stop;	/* a signal handler has nowhere else to leave its word */
static bool ignored;

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
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
