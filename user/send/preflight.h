/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The preflight checks of a source VM, made before anything is changed: one list. `godwit send`
 * goes through it until a check fails, `godwit check` reports each.
 */
#ifndef GODWIT_PREFLIGHT_H
#define GODWIT_PREFLIGHT_H

#include <stdbool.h>
#include <stddef.h>

#include "claim/claim.h"
#include "devstate/migration.h"
#include "devstate/mode.h"
#include "vmm/vm.h"

/**
 * struct preflight - what to check, and where to put what is found
 * @qmp_path: the source QEMU's QMP socket
 * @pid: the VMM; 0: the process that listens on the socket
 * @timeout_ms: longest silence of QEMU
 * @downtime_limit_ms: for migration_check()
 * @pause: the guest will be stopped throughout, so its KVM does not matter
 * @claim: the check for other godwits takes it; NULL: it only tries to
 * @wish: how the device state is to travel
 * @qmp, @vm, @migration, @private: the caller closes them, also after an error
 * @mode: what mode_choose() decides
 */
struct preflight {
	const char *qmp_path;
	pid_t pid;
	unsigned int timeout_ms;
	unsigned int downtime_limit_ms;
	bool pause;
	struct claim *claim;
	struct qmp **qmp;
	struct vm *vm;
	struct migration *migration;
	enum mode_wish wish;
	enum devstate_mode *mode;
	struct private_ram *private;
};

/**
 * struct preflight_step - one check
 * @name: in a word or two
 * @run: 0, or -errno and *e: the object and the way out
 * @possible: can it run, after what the steps before it have found? NULL: always
 * @found: writes what a check that passed has found, in a few words
 */
struct preflight_step {
	const char *name;
	int (*run)(struct preflight *p, struct err *e);
	bool (*possible)(const struct preflight *p);
	void (*found)(const struct preflight *p, char *text, size_t size);
};

extern const struct preflight_step preflight_steps[];
extern const unsigned int preflight_steps_count;

/* Does @pause make this step unnecessary? */
bool preflight_leaves_out(const struct preflight *p, const struct preflight_step *step);
/* Runs all steps, until one fails. */
int preflight_all(struct preflight *p, struct err *e);

#endif
