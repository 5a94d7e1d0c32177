/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What is said while a migration runs: one line that repaints on a terminal, a plain line every two
 * seconds elsewhere, or JSON, an object a line. No percentage: what is left to send grows when the
 * guest writes. A line that is not taken at once is left out (base/say.h), but for the last one.
 */
#ifndef GODWIT_PROGRESS_H
#define GODWIT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "report/report.h"

enum progress_how { PROGRESS_PLAIN, PROGRESS_TERMINAL, PROGRESS_JSON, PROGRESS_NONE };

/**
 * struct progress
 * @fd: where lines go
 * @next_ns: not before that, unless phase or round have changed (JSON only)
 */
struct progress {
	enum progress_how how;
	int fd;
	bool painted;
	uint64_t next_ns;
	const char *phase;
	unsigned int round;
};

/* how: "auto", "plain", "json", "none"; NULL is "auto". JSON goes to stdout, all else to stderr. */
int progress_init(struct progress *p, const char *how, struct err *e);
/* A report_fn. */
void progress_show(const struct report *r, void *progress);
/* Leaves the line behind, or says in JSON how it ended; call before anything else is printed. */
void progress_end(struct progress *p, const struct report *r, const struct err *outcome);

#endif
