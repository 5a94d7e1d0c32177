/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The limits that the user sets for a migration, and how its RAM is packed: options of `godwit
 * send`, and of `godwit set` while the migration runs, by the same names.
 */
#ifndef GODWIT_LIMITS_H
#define GODWIT_LIMITS_H

#include <jansson.h>

#include "base/err.h"
#include "codec/codec.h"
#include "plan/throttle.h"

enum on_timeout { ON_TIMEOUT_CANCEL, ON_TIMEOUT_PAUSE };
/* In this order each switches over sooner than the one before. */
enum postcopy_wish { POSTCOPY_OFF, POSTCOPY_AUTO, POSTCOPY_ON, POSTCOPY_NOW };

/**
 * struct limits
 * @downtime_limit_ms: the sender begins the switchover when it predicts a shorter downtime
 * @downtime_ramp_ms: what that limit is raised to, a step for each round that does not help; 0: it
 *	stays
 * @max_rounds: give up after so many rounds
 * @timeout_s: for the whole migration; 0: no limit
 * @on_timeout: enum on_timeout: give up then, or stop the guest and finish at any downtime
 * @bandwidth_mib: MiB per second that the sender may send until the switchover; 0: no limit
 * @compress: how RAM is packed
 * @postcopy: enum postcopy_wish: the guest runs at the destination before its RAM is there; never,
 *	when rounds do not help, after the first round, or at once
 * @throttle: per cent of the time that vCPUs stand still until the switchover; THROTTLE_AUTO: as
 *	much as rounds need that do not help
 */
struct limits {
	unsigned int downtime_limit_ms;
	unsigned int downtime_ramp_ms;
	unsigned int max_rounds;
	unsigned int timeout_s;
	unsigned int on_timeout;
	unsigned int bandwidth_mib;
	struct codec_wish compress;
	unsigned int postcopy;
	unsigned int throttle;
};

extern const struct limits limits_default;

/**
 * limits_set() - set one limit from the command line
 * @name: the option's name, without dashes
 * Errors: GW_USAGE, which names the option and the values that it takes.
 */
int limits_set(struct limits *l, const char *name, const char *text, struct err *e);

/*
 * All limits as a JSON object: numbers; "on-timeout", "compress", "postcopy" and "throttle" are
 * strings.
 * NULL: out of memory.
 */
json_t *limits_to_json(const struct limits *l);
/*
 * Sets the limits that the object names: all of them or, on an error, none. GW_USAGE: j is no
 * object, a name is no limit, or a value has another type or is out of range.
 */
int limits_from_json(struct limits *l, const json_t *j, struct err *e);

#endif
