/* SPDX-License-Identifier: GPL-2.0-only */
/* One vCPU thread, as the brake's process stops it and lets it go. */
#ifndef GODWIT_BRAKE_THREAD_H
#define GODWIT_BRAKE_THREAD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/**
 * struct brake_thread - a vCPU's
 * @syscall, @schedstat: of /proc/PID/task/TID, open, so that a reading is of this thread or fails;
 *	-1: it has ended
 * @seized: attached to, and interrupted: it will stop
 * @held_ns: since when it stands still; 0: it does not
 * @released: it was let go, and its count of turns on a CPU was @turns then; @ran_ns: since when it
 *	has had another turn; 0: not yet
 */
struct brake_thread {
	pid_t tid;
	int syscall;
	int schedstat;
	bool seized;
	uint64_t held_ns;
	bool released;
	uint64_t turns;
	uint64_t ran_ns;
};

/* 0 or an errno: it cannot be looked at. */
int brake_thread_open(struct brake_thread *t, pid_t pid, pid_t tid);
void brake_thread_close(struct brake_thread *t);
/*
 * May it be stopped: it is in KVM_RUN, or may be, and has run for so long since it was let go.
 * *why: an errno, if that is not to be known.
 */
bool brake_thread_wanted(struct brake_thread *t, uint64_t now, uint64_t least_ns, int *why);
/* Attaches, and interrupts. 0 or an errno; 0 as well if the thread has ended. */
int brake_thread_seize(struct brake_thread *t);
/*
 * Has it stopped? In KVM_RUN it is held from then on, or else let go at once, as it is if keep is
 * false.
 */
void brake_thread_look(struct brake_thread *t, bool keep);
/* Return: how long it was held, ns. */
uint64_t brake_thread_release(struct brake_thread *t);
/* Has it run for so long since it was let go? true also of one that was not. */
bool brake_thread_has_run(struct brake_thread *t, uint64_t now, uint64_t least_ns);

#endif
