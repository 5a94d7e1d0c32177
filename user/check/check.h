/* SPDX-License-Identifier: GPL-2.0-only */
/* Can this VM be migrated, from here, to there? A list of rows, each with what to change when the answer is no. */
#ifndef GODWIT_CHECK_H
#define GODWIT_CHECK_H

#include <stdbool.h>
#include <sys/types.h>

#include "err.h"
#include "io/engine.h"
#include "vmm/way.h"

/**
 * enum check_result - what is said of one thing
 * CHECK_OK: as it should be
 * CHECK_WARNING: a migration is possible, but not as good as it could be
 * CHECK_NO: `godwit send` would refuse
 * CHECK_UNKNOWN: it could not be looked at because of another row's "no"
 */
enum check_result { CHECK_OK, CHECK_WARNING, CHECK_NO, CHECK_UNKNOWN, CHECK_RESULTS };

/**
 * struct check_row - one thing
 * @name: the thing
 * @exit: with CHECK_NO, the exit status that `godwit send` would have; else GW_OK
 * @text: what was found; else why not, and the way out
 */
struct check_row {
	const char *name;
	enum check_result result;
	enum gw_exit exit;
	char text[1024];
};

#define CHECK_ROWS_MAX	64

struct check {
	unsigned int n;
	struct check_row rows[CHECK_ROWS_MAX];
};

/**
 * struct check_options - what the user asked for; as in struct sender_options
 * @addr: the receiver's ADDR:PORT; NULL: only this host
 * @accepted: as in struct sender_options
 * @probe_ms: measure the link's speed for about so long; 0: do not
 */
struct check_options {
	const char *qmp_path;
	pid_t pid;
	const char *addr;
	unsigned int downtime_limit_ms;
	unsigned int timeout_ms;
	unsigned int probe_ms;
	const struct engine_ops *engine;
	enum way_wish wish;
	unsigned int accepted;
	bool pause;
};

/* Changes nothing on either host. What is wrong is in the rows. */
void check_run(const struct check_options *o, struct check *c);
/* The first "no", as an exit status; GW_OK: it can be migrated. */
enum gw_exit check_verdict(const struct check *c);
const char *check_result_name(enum check_result result);

#endif
