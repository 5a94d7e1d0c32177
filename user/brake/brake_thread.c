// SPDX-License-Identifier: GPL-2.0-only
/*
 * For each stop a thread is attached to (PTRACE_SEIZE), interrupted, and detached again, so that
 * outside a stop nothing is traced, and no signal of QEMU's, with which it kicks its vCPUs, comes
 * by here.
 *
 * A thread that has stopped may hold one of QEMU's locks, for which QEMU's other threads would
 * wait. In the system call KVM_RUN, which a stop interrupts as any kick does, QEMU holds none;
 * where else a thread has stopped it goes on at once. It is not the guest that runs there anyway.
 *
 * A thread that is interrupted again before it had a turn on a CPU stops where it is: it never
 * leaves the system call, the guest does not run, and QEMU waits for a vCPU that it wants to pause.
 * On a busy host a turn may be long in coming, and a CPU that slept takes 0.3 ms to wake. So a
 * thread that was let go is left alone until it has had one, and some time in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "brake/brake_thread.h"

static bool brake_is_gone(int err)
{
	return err == ENOENT || err == ESRCH;
}

static int brake_open_file(pid_t pid, pid_t tid, const char *name, int *fd)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)pid, (int)tid, name);
	*fd = open(path, O_RDONLY | O_CLOEXEC);
	return *fd < 0 && !brake_is_gone(errno) ? errno : 0;
}

int brake_thread_open(struct brake_thread *t, pid_t pid, pid_t tid)
{
	int r;

	*t = (struct brake_thread) { .tid = tid };
	r = brake_open_file(pid, tid, "syscall", &t->syscall);
	/* Kernels without scheduler statistics have none. */
	brake_open_file(pid, tid, "schedstat", &t->schedstat);
	return r;
}

void brake_thread_close(struct brake_thread *t)
{
	if (t->syscall >= 0)
		close(t->syscall);
	if (t->schedstat >= 0)
		close(t->schedstat);
}

/* 0 or an errno; 0 and no text: it has ended. */
static int brake_read(int fd, char *text, size_t size)
{
	ssize_t n = fd < 0 ? 0 : pread(fd, text, size - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return n < 0 && !brake_is_gone(errno) ? errno : 0;
}

/* "NUMBER FIRST SECOND ...", the arguments in hexadecimal; the second of ioctl() is the request. */
static bool brake_is_kvm_run(const char *text)
{
	char *at;

	if (strtol(text, &at, 10) != SYS_ioctl)
		return false;
	strtoull(at, &at, 16);
	return strtoull(at, &at, 16) == KVM_RUN;
}

/* The third number of schedstat; 0: this kernel does not count. */
static uint64_t brake_turns(const struct brake_thread *t)
{
	char text[128], *at;

	if (brake_read(t->schedstat, text, sizeof(text)))
		return 0;
	strtoull(text, &at, 10);
	strtoull(at, &at, 10);
	return strtoull(at, &at, 10);
}

bool brake_thread_has_run(struct brake_thread *t, uint64_t now, uint64_t least_ns)
{
	if (!t->released)
		return true;
	if (!t->ran_ns && (!t->turns || brake_turns(t) != t->turns))
		t->ran_ns = now;
	return t->ran_ns && now - t->ran_ns >= least_ns;
}

bool brake_thread_wanted(struct brake_thread *t, uint64_t now, uint64_t least_ns, int *why)
{
	char text[256];
	int r = brake_read(t->syscall, text, sizeof(text));

	if (r)
		*why = r;
	/* "running", or what it waits in. */
	return !r && (*text == 'r' || brake_is_kvm_run(text)) &&
	       brake_thread_has_run(t, now, least_ns);
}

int brake_thread_seize(struct brake_thread *t)
{
	if (ptrace(PTRACE_SEIZE, t->tid, NULL, NULL))
		return errno == ESRCH ? 0 : errno;
	t->seized = true;
	t->released = false;
	ptrace(PTRACE_INTERRUPT, t->tid, NULL, NULL);
	return 0;
}

/* sig: what it was to get. */
static void brake_detach(struct brake_thread *t, int sig)
{
	t->turns = brake_turns(t);
	t->ran_ns = 0;
	t->released = true;
	/* ESRCH: it was killed. Its process is gone only when brake_thread_look() has seen that. */
	t->seized = ptrace(PTRACE_DETACH, t->tid, NULL, (void *)(long)sig);
}

void brake_thread_look(struct brake_thread *t, bool keep)
{
	char text[256];
	int status, sig;
	pid_t got = waitpid(t->tid, &status, __WALL | WNOHANG);

	if (!got)
		return;
	if (got < 0 || !WIFSTOPPED(status)) {
		t->seized = false;	/* it has ended */
		return;
	}
	/* A signal was first: it gets that. */
	sig = status >> 16 == PTRACE_EVENT_STOP ? 0 : WSTOPSIG(status);
	if (keep && !sig && !brake_read(t->syscall, text, sizeof(text)) && brake_is_kvm_run(text))
		t->held_ns = now_ns();
	else
		brake_detach(t, sig);
}

uint64_t brake_thread_release(struct brake_thread *t)
{
	uint64_t held = t->held_ns ? now_ns() - t->held_ns : 0;

	if (t->held_ns)
		brake_detach(t, 0);
	t->held_ns = 0;
	return held;
}
