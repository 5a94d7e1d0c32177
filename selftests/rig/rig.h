/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the tests of single ledger rows stand on: one RAM file, one VM that shows it, one session,
 * one copy.
 */
#ifndef RIG_H
#define RIG_H

#include "ram.h"
#include "vm.h"

/**
 * struct writer - a process that maps the RAM file as a vhost-user backend does, in steps
 * @step: how many steps it shall have taken
 * @taken: how many it has
 */
struct writer {
	pid_t pid;
	struct writer_steps {
		volatile unsigned int step;
		volatile unsigned int taken;
	} *shared;
};

struct rig {
	struct vm vm;
	struct ram ram;
	struct session s;
	struct shadow shadow;
	struct writer writer;
};

/* 0 or -errno of ram_create(). Before the writers, which inherit the mapping of the file. */
int rig_ram(struct rig *rig, enum ram_kind kind, uint64_t bytes);
/* run() is called once for each step, in the other process, and may not return. */
void rig_writer(struct rig *rig, void (*run)(struct rig *rig, unsigned int step));
/* VM, session, started and settled. The copy covers the file's first window bytes. */
void rig_begin(struct rig *rig, unsigned int manual, uint64_t window);
void rig_end(struct rig *rig);

/* Lets the writer take one more step; _wait: and waits until it is done. */
void writer_step(struct writer *w);
void writer_step_wait(struct writer *w);
/* The same; exits: the step does not return, as the process exits in it. */
void writer_step_end(struct writer *w, bool exits);
/* Ways for the mapping's page table entries to go, in the process that calls. */
void rig_drop(struct rig *rig);
void rig_page_out(struct rig *rig);
/* One harvest, CLEAR if the guest runs on, and its pages copied. */
void rig_round(struct rig *rig, bool clear);

#endif /* RIG_H */
