// SPDX-License-Identifier: GPL-2.0-only
/*
 * The process that stops vCPUs. In each cycle they stand still together, as one that waits for a
 * lock which another holds would only burn its time; those that are halted as well: they would wake
 * and do in the time of the stop what they have to do, and a guest that works in bursts would not
 * be slowed at all.
 */
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "brake/brake.h"
#include "brake/brake_thread.h"

#define HOLD_NS		10000000ull	/* not much longer: QEMU's stop waits for it */
#define HOLD_VCPU_NS	200000ull	/* to stop one takes 30 us */
#define HOLD_MAX_NS	30000000ull
#define RUN_NS		300000ull	/* not shorter; with 99 % a stop takes 30 ms */
#define TURN_NS		5000000ull	/* one that had no turn in so long is not waited for */
#define TRY_NS		2000000ull	/* so long one that is to stop is looked at all the time */
#define LOOK_NS		50000ull
#define LATE_NS		500000ull	/* and then so often */
#define SILENT_NS	2000000000ull	/* the sender stands still: let its guest run */
#define PAUSE_NS	20000000ull
#define BEAT_NS		1000000000ull

/**
 * struct brake_work
 * @bell, @list: of shared, as they were seen last
 */
struct brake_work {
	struct brake_shared *shared;
	uint32_t bell;
	uint32_t list;
	unsigned int n;
	struct brake_thread threads[VCPUS_MAX];
};

/* Until the sender rings, or for so long. true: it has rung. */
static bool brake_nap(struct brake_work *w, uint64_t ns)
{
	const struct timespec t = { (time_t)(ns / 1000000000), (long)(ns % 1000000000) };

	atomic_store(&w->shared->beat_ns, now_ns());
	syscall(SYS_futex, &w->shared->bell, FUTEX_WAIT, w->bell, &t, NULL, 0);
	return atomic_load(&w->shared->bell) != w->bell;
}

/* Looks for those that are to stop. Return: how many have not yet. */
static unsigned int brake_look(struct brake_work *w, bool keep)
{
	unsigned int late = 0;

	for (unsigned int i = 0; i < w->n; i++) {
		struct brake_thread *t = &w->threads[i];

		if (t->seized && !t->held_ns)
			brake_thread_look(t, keep);
		late += t->seized && !t->held_ns;
	}
	return late;
}

static void brake_release(struct brake_work *w)
{
	for (unsigned int i = 0; i < w->n; i++)
		atomic_fetch_add(&w->shared->held_ns, brake_thread_release(&w->threads[i]));
}

/* Those that may be stopped, and are not yet. Return: an errno, if one cannot be. */
static int brake_seize(struct brake_work *w)
{
	const uint64_t now = now_ns();
	int why = 0;

	for (unsigned int i = 0; i < w->n; i++) {
		struct brake_thread *t = &w->threads[i];
		int r = 0;

		if (!t->seized && brake_thread_wanted(t, now, RUN_NS, &why))
			r = brake_thread_seize(t);
		if (r)
			why = r;
	}
	return why;
}

/*
 * Was one let go, and does it run? It stopped elsewhere, and may soon be back; or it has had no
 * turn since the stop before, as the host is busy, and would have this whole stop for it.
 */
static bool brake_any_runs(const struct brake_work *w)
{
	for (unsigned int i = 0; i < w->n; i++)
		if (!w->threads[i].seized && w->threads[i].released)
			return true;
	return false;
}

/* true: the sender has rung. */
static bool brake_hold(struct brake_work *w, uint64_t ns)
{
	const uint64_t begin = now_ns(), end = begin + ns;
	bool rung = false;

	atomic_store(&w->shared->refused, brake_seize(w));
	for (uint64_t now = begin; now < end && !rung; now = now_ns()) {
		const bool early = now - begin < TRY_NS;
		uint64_t nap = end - now;

		if (brake_look(w, true) || brake_any_runs(w))
			nap = early ? LOOK_NS : LATE_NS;
		rung = brake_nap(w, nap < end - now ? nap : end - now);
		if (early || brake_any_runs(w))
			brake_seize(w);
	}
	brake_release(w);
	return rung;
}

/* Has each that was let go had its turn? */
static bool brake_all_have_run(struct brake_work *w)
{
	const uint64_t now = now_ns();
	bool all = true;

	for (unsigned int i = 0; i < w->n; i++)
		if (!brake_thread_has_run(&w->threads[i], now, RUN_NS))
			all = false;
	return all;
}

static void brake_run(struct brake_work *w, uint64_t ns)
{
	const uint64_t end = now_ns() + ns;
	bool rung = false;

	for (uint64_t now = end - ns; !rung; now = now_ns()) {
		const bool waits = brake_look(w, false) || !brake_all_have_run(w);
		uint64_t nap = waits ? LOOK_NS : end - now;

		if (now >= end + TURN_NS || (now >= end && !waits))
			return;
		if (now < end && nap > end - now)
			nap = end - now;
		rung = brake_nap(w, nap < PAUSE_NS ? nap : PAUSE_NS);
	}
}

/* All run. Return: nothing is traced; one that is late cannot be detached yet. */
static bool brake_let_go(struct brake_work *w)
{
	const uint64_t end = now_ns() + TURN_NS;

	brake_release(w);
	while (brake_look(w, false)) {
		if (now_ns() > end)
			return false;
		nanosleep(&(struct timespec) { 0, LOOK_NS }, NULL);
	}
	return true;
}

/* If the list changes meanwhile it is taken again: the bell has rung. */
static void brake_take_list(struct brake_work *w)
{
	const struct vcpus *v = &w->shared->vcpus;
	const uint32_t list = atomic_load(&w->shared->list);
	int why = 0;

	if (list % 2)
		return;
	for (unsigned int i = 0; i < w->n; i++)
		brake_thread_close(&w->threads[i]);
	w->n = v->n < VCPUS_MAX ? v->n : VCPUS_MAX;
	for (unsigned int i = 0; i < w->n; i++) {
		int r = brake_thread_open(&w->threads[i], v->pid, v->tid[i]);

		why = r ? r : why;
	}
	if (atomic_load(&w->shared->list) == list)
		w->list = list;
	atomic_store(&w->shared->refused, why);
}

static void brake_begin(pid_t sender)
{
	const struct sched_param soon = { .sched_priority = 1 };
	sigset_t all;

	/* The sender may have ended before this. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != sender)
		_exit(0);
	/* The session of godwit.ko and the locks among them. */
	syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	/* Ctrl-Z at the terminal is for the sender. */
	setsid();
	prctl(PR_SET_TIMERSLACK, 1ul);
	prctl(PR_SET_NAME, "godwit-brake");
	/* Where it comes late on a busy host the guest runs longer. It takes little time itself. */
	sched_setscheduler(0, SCHED_RR, &soon);
}

/* How long vCPUs stand still in a cycle: long beside what it takes to stop them all. */
static uint64_t brake_hold_ns(const struct brake_work *w, uint32_t percent)
{
	uint64_t least = w->n * HOLD_VCPU_NS, hold = RUN_NS * percent / (100 - percent);

	if (least > HOLD_MAX_NS)
		least = HOLD_MAX_NS;
	if (least < HOLD_NS)
		least = HOLD_NS;
	return hold > least ? hold : least;
}

void brake_process(struct brake_shared *shared, pid_t sender)
{
	static struct brake_work w;

	w.shared = shared;
	brake_begin(sender);
	for (;;) {
		uint32_t percent;
		uint64_t hold;

		w.bell = atomic_load(&shared->bell);
		percent = atomic_load(&shared->percent);
		if (percent == BRAKE_END) {
			brake_let_go(&w);
			_exit(0);
		}
		if (atomic_load(&shared->list) != w.list && brake_let_go(&w))
			brake_take_list(&w);
		if (!percent || now_ns() > atomic_load(&shared->alive_ns) + SILENT_NS) {
			const bool free = brake_let_go(&w);

			brake_nap(&w, !free ? LATE_NS : percent ? PAUSE_NS : BEAT_NS);
			continue;
		}
		hold = brake_hold_ns(&w, percent);
		if (!brake_hold(&w, hold))
			brake_run(&w, hold * (100 - percent) / percent);
	}
}
