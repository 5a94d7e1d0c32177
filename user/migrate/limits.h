/* SPDX-License-Identifier: GPL-2.0-only */
/* What the user allows a migration: options of `godwit send`, and while it runs of `godwit set`, by the same names. */
#ifndef GODWIT_LIMITS_H
#define GODWIT_LIMITS_H

#include <jansson.h>

#include "err.h"

enum on_timeout { ON_TIMEOUT_CANCEL, ON_TIMEOUT_PAUSE };

/**
 * struct limits
 * @downtime_limit_ms: the switchover is begun when this is predicted to hold
 * @downtime_ramp_ms: what that is raised to, a step for each round that does not help; 0: it stays as it is
 * @max_rounds: give up after so many
 * @timeout_s: for all of the migration; 0: any time
 * @on_timeout: enum on_timeout: give up then, or stop the guest and finish, whatever downtime that costs
 * @bandwidth_mib: MiB per second that may be sent until the switchover; 0: no limit
 */
struct limits {
	unsigned int downtime_limit_ms;
	unsigned int downtime_ramp_ms;
	unsigned int max_rounds;
	unsigned int timeout_s;
	unsigned int on_timeout;
	unsigned int bandwidth_mib;
};

extern const struct limits limits_default;

/**
 * limits_set() - one of them, from the command line
 * @name: as the option is called, without dashes
 * Errors: GW_USAGE, naming the option and what it takes.
 */
int limits_set(struct limits *l, const char *name, const char *text, struct err *e);

/* As a JSON object, all of them; NULL: no memory. Numbers, and "on-timeout" a string. */
json_t *limits_to_json(const struct limits *l);
/*
 * Those that the object names; all or, on an error, none. GW_USAGE: no object, a name that is no limit, another type, out of
 * range.
 */
int limits_from_json(struct limits *l, const json_t *j, struct err *e);

#endif
