/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The preflight check: can this VM migrate from this host, and to that receiver? The result is a
 * list of rows; a row that says no also says what to change.
 */
#ifndef GODWIT_CHECK_H
#define GODWIT_CHECK_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "codec/codec.h"
#include "devstate/mode.h"
#include "net/engine.h"
#include "plan/limits.h"
#include "tls/tls.h"

/**
 * enum check_result - the result of one row
 * @CHECK_OK: no objection
 * @CHECK_WARNING: a migration is possible, but slower or riskier than it could be
 * @CHECK_NO: `godwit send` would refuse
 * @CHECK_UNKNOWN: not checked, because of another row's "no"
 */
enum check_result { CHECK_OK, CHECK_WARNING, CHECK_NO, CHECK_UNKNOWN, CHECK_RESULTS };

/**
 * struct check_row - what was found of one thing
 * @name: the thing
 * @exit: with CHECK_NO, the exit status that `godwit send` would have; else GW_OK
 * @text: with CHECK_OK what was found; else what is wrong, and what to change
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
 * struct check_options - what the user asked for; @accepted and all others as in struct
 * sender_options
 * @addr: the receiver's ADDR:PORT; NULL: check only this host
 * @tls: NULL: in the clear
 * @probe_ms: measure the link's speed for about so long; 0: do not
 */
struct check_options {
	const char *qmp_path;
	pid_t pid;
	const char *addr;
	struct tls_creds *tls;
	struct codec_wish compress;
	unsigned int downtime_limit_ms;
	unsigned int timeout_ms;
	unsigned int probe_ms;
	const struct engine_ops *engine;
	enum mode_wish wish;
	unsigned int accepted;
	enum postcopy_wish postcopy;
	bool pause;
};

/* Fills in the rows. Changes nothing on either host. */
void check_run(const struct check_options *o, struct check *c);
/* The exit status of the first "no"; GW_OK: the VM can migrate. */
enum gw_exit check_verdict(const struct check *c);
const char *check_result_name(enum check_result result);

#endif
