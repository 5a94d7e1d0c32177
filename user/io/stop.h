/* SPDX-License-Identifier: GPL-2.0-only */
/* SIGINT, SIGTERM and SIGHUP ask to stop; everything that waits looks here at least ten times a second. */
#ifndef GODWIT_STOP_H
#define GODWIT_STOP_H

#include <stdbool.h>

void stop_install(void);
bool stop_requested(void);
/* Behind the commit point there is nothing left to stop: signals are noted and not obeyed. */
void stop_ignore(void);

#define STOP_SLICE_NS 100000000ull	/* no wait is longer than this without a look */

#endif
