/* SPDX-License-Identifier: GPL-2.0-only */
/* Everything that user space can ask of the module. */
#ifndef INJECT_CALLS_H
#define INJECT_CALLS_H

#include "fault.h"
#include "trial.h"

/**
 * struct call
 * @where: whose allocations fail
 * @before: how far the session has come before it
 * @after: and when it has succeeded
 * @prepare: NULL, or what is to be done before the call, unharmed
 * @run: the call; 0 or -errno
 * @again: what works after a failure; NULL: @run
 * @allocates: without that there is nothing to fail, and that is to be noticed
 * @reports: the call reports what was written
 */
struct call {
	const char *name;
	enum where where;
	enum stage before;
	enum stage after;
	void (*prepare)(struct trial *t);
	int (*run)(struct trial *t);
	int (*again)(struct trial *t);
	bool allocates;
	bool reports;
};

extern const struct call calls[];
extern const unsigned int nr_calls;

#endif /* INJECT_CALLS_H */
