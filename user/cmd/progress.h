/* SPDX-License-Identifier: GPL-2.0-only */
/* The progress line: repainted on a terminal, a plain line every two seconds elsewhere. */
#ifndef GODWIT_PROGRESS_H
#define GODWIT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "migrate/report.h"

struct progress {
	bool terminal;
	bool painted;
	uint64_t next_ns;
};

void progress_init(struct progress *p);
/* A report_fn. */
void progress_show(const struct report *r, void *progress);
/* Leaves the line behind; call before anything else is printed. */
void progress_end(struct progress *p);

#endif
