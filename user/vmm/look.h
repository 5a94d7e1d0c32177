/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All that is looked at in a source VM before anything is changed: one list. `godwit send` goes through it until something
 * refuses, `godwit check` tells of each.
 */
#ifndef GODWIT_LOOK_H
#define GODWIT_LOOK_H

#include <stdbool.h>
#include <stddef.h>

#include "claim/claim.h"
#include "vmm/migration.h"
#include "vmm/vm.h"
#include "vmm/way.h"

/**
 * struct look - at what, and where to put what is found
 * @qmp_path: the source QEMU's QMP socket
 * @pid: the VMM; 0: whoever listens on the socket
 * @timeout_ms: longest silence of QEMU
 * @downtime_limit_ms: for migration_check()
 * @pause: the guest will stand still throughout, so its KVM does not matter
 * @claim: taken when it is looked at; NULL: only tried
 * @wish: how the device state shall leave QEMU
 * @qmp, @vm, @migration, @private: the caller's, to be closed by it; also after an error
 * @way: what way_choose() says
 */
struct look {
	const char *qmp_path;
	pid_t pid;
	unsigned int timeout_ms;
	unsigned int downtime_limit_ms;
	bool pause;
	struct claim *claim;
	struct qmp **qmp;
	struct vm *vm;
	struct migration *migration;
	enum way_wish wish;
	enum way *way;
	struct private_ram *private;
};

/**
 * struct look_step - one thing to look at
 * @name: in a word or two
 * @run: 0, or -errno and *e: the thing and the way out
 * @possible: can it be run, after what the steps before it have found? NULL: always
 * @found: after it ran well, what is so, in a few words
 */
struct look_step {
	const char *name;
	int (*run)(struct look *l, struct err *e);
	bool (*possible)(const struct look *l);
	void (*found)(const struct look *l, char *text, size_t size);
};

extern const struct look_step look_steps[];
extern const unsigned int look_steps_count;

/* Is this step of no concern with @pause? */
bool look_leaves_out(const struct look *l, const struct look_step *step);
/* All steps, until one fails. */
int look_all(struct look *l, struct err *e);

#endif
