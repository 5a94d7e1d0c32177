// SPDX-License-Identifier: GPL-2.0-only
/*
 * kvmslots PID [N]: which of a VM's memslots 0 to N - 1 (64) have their dirty log on, as "logged=0,3,5".
 *
 * KVM itself says so, and not godwit.ko: KVM_GET_DIRTY_LOG fails with ENOENT for a slot without a log.
 * KVM serves only the process that made the VM, so this tool stops the VMM's main thread (ptrace) and
 * has it make the calls:
 *
 *	PTRACE_INTERRUPT     the thread leaves its system call, ppoll() as a rule, with -ERESTART*
 *	                     all signals blocked, so that none meets registers that are not the thread's
 *	mmap                 room for the argument and the largest bitmap
 *	ioctl                for each slot
 *	munmap
 *	PTRACE_INTERRUPT     the thread stops where the kernel restarts system calls: it finds its own
 *	                     registers and signal mask there, -ERESTART* included, and goes on with the
 *	                     call that was interrupted
 *
 * The thread stands still meanwhile, the vCPUs do not. Only the first address space is asked (SMM has
 * a second one).
 *
 * Without manual protection KVM_GET_DIRTY_LOG also clears the log, and a migration under way would miss
 * pages. QEMU switches manual protection on (KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, since 5.0) unless it uses
 * the dirty ring. For any other VMM run this tool only when no migration is under way.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vm_fd.h"

enum {
	SLOTS		= 64,
	SLOTS_MAX	= 32764,
	ARGUMENT_BYTES	= 4096,
	BITMAP_BYTES	= 8 << 20,	/* a slot of 256 GiB; KVM copies what the slot has */
};

/* What PTRACE_SYSCALL stops with, by PTRACE_O_TRACESYSGOOD. */
#define CALL_STOP	(SIGTRAP | 0x80)

/**
 * struct vmm - a stopped main thread
 * @gate: where a SYSCALL instruction is
 * @regs: its own
 * @mask: its own signal mask
 */
struct vmm {
	pid_t pid;
	int mem, vm_fd;
	uint64_t gate;
	struct user_regs_struct regs;
	uint64_t mask;
};

__attribute__((format(printf, 1, 2), noreturn))
static void die(const char *what, ...)
{
	va_list ap;

	fprintf(stderr, "kvmslots: ");
	va_start(ap, what);
	vfprintf(stderr, what, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static int open_mem(pid_t pid)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		die("%s: %s", path, strerror(errno));
	return fd;
}

/* The vDSO is mapped in every process and has system calls to fall back on. */
static uint64_t find_gate(pid_t pid, int mem)
{
	static const uint8_t syscall_insn[] = { 0x0f, 0x05 };
	unsigned long start = 0, end = 0;
	char path[64], line[512];
	uint8_t text[16 << 10], *at;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "r");
	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, "[vdso]"))
			sscanf(line, "%lx-%lx", &start, &end);
	if (maps)
		fclose(maps);
	if (end - start > sizeof(text) || pread(mem, text, end - start, (off_t)start) != (ssize_t)(end - start))
		die("process %d: its vDSO cannot be read", pid);
	at = memmem(text, end - start, syscall_insn, sizeof(syscall_insn));
	if (!at)
		die("process %d: no system call in its vDSO", pid);
	return start + (uint64_t)(at - text);
}

static void trace(int request, const struct vmm *v, uintptr_t addr, const void *data)
{
	if (ptrace(request, v->pid, addr, data) < 0)
		die("ptrace request %#x: %s", request, strerror(errno));
}

/* Until the thread stops; what at. */
static int wait_stop(const struct vmm *v)
{
	int status;

	while (waitpid(v->pid, &status, __WALL) < 0)
		if (errno != EINTR)
			die("waitpid: %s", strerror(errno));
	if (!WIFSTOPPED(status))
		die("process %d ended", v->pid);
	return status >> 8;
}

/*
 * The stop that PTRACE_INTERRUPT asks for, or a group stop (SIGSTOP) in the same place. Any other stop
 * ends what was asked for: a signal that comes first is delivered.
 */
static void wait_asked_stop(const struct vmm *v)
{
	int stop;

	while ((stop = wait_stop(v)) >> 8 != PTRACE_EVENT_STOP) {
		trace(PTRACE_INTERRUPT, v, 0, NULL);
		trace(PTRACE_CONT, v, 0, (void *)(uintptr_t)stop);
	}
}

static void set_mask(const struct vmm *v, uint64_t mask)
{
	trace(PTRACE_SETSIGMASK, v, sizeof(mask), &mask);
}

static void seize(struct vmm *v)
{
	trace(PTRACE_SEIZE, v, 0, (void *)PTRACE_O_TRACESYSGOOD);
	trace(PTRACE_INTERRUPT, v, 0, NULL);
	wait_asked_stop(v);
	trace(PTRACE_GETREGS, v, 0, &v->regs);
	if (v->regs.cs != 0x33)
		die("process %d is not a 64-bit one", v->pid);
	trace(PTRACE_GETSIGMASK, v, sizeof(v->mask), &v->mask);
	set_mask(v, ~0ull);
}

/* The stop is asked for before the thread goes on: it must not reach user space with these registers. */
static void release(const struct vmm *v)
{
	trace(PTRACE_INTERRUPT, v, 0, NULL);
	trace(PTRACE_CONT, v, 0, NULL);
	wait_asked_stop(v);
	trace(PTRACE_SETREGS, v, 0, &v->regs);
	set_mask(v, v->mask);
	trace(PTRACE_DETACH, v, 0, NULL);
}

/* SIGSTOP cannot be blocked: it is passed on, and stops this thread when it is released. */
static void next_call_stop(const struct vmm *v)
{
	int stop, signal = 0;

	for (;;) {
		trace(PTRACE_SYSCALL, v, 0, (void *)(uintptr_t)signal);
		stop = wait_stop(v);
		if (stop == CALL_STOP)
			return;
		signal = stop >> 8 ? 0 : stop;
	}
}

/* A system call of the thread's. */
static long call(const struct vmm *v, long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
	struct user_regs_struct regs = v->regs;

	regs.rip = v->gate;
	regs.rax = (uint64_t)number;	/* no error number, so nothing is restarted on the way there */
	regs.rdi = a;
	regs.rsi = b;
	regs.rdx = c;
	regs.r10 = d;
	regs.r8 = -1ull;	/* mmap: no file */
	regs.r9 = 0;
	trace(PTRACE_SETREGS, v, 0, &regs);
	next_call_stop(v);
	next_call_stop(v);
	trace(PTRACE_GETREGS, v, 0, &regs);
	return (long)regs.rax;
}

/* 1, 0, or KVM's error. */
static long is_logged(const struct vmm *v, uint64_t room, unsigned int slot)
{
	struct kvm_dirty_log log = { .slot = slot };
	long r;

	log.dirty_bitmap = (void *)(uintptr_t)(room + ARGUMENT_BYTES);
	if (pwrite(v->mem, &log, sizeof(log), (off_t)room) != sizeof(log))
		return -errno;
	r = call(v, SYS_ioctl, (uint64_t)v->vm_fd, KVM_GET_DIRTY_LOG, room, 0);
	return r == -ENOENT ? 0 : r ? r : 1;
}

/* Says on[slot]. 0 or -errno: whatever fails, the thread must be released. */
static long ask(const struct vmm *v, unsigned int slots, bool *on)
{
	const uint64_t bytes = ARGUMENT_BYTES + BITMAP_BYTES;
	long room = call(v, SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
	long r = 0;

	if (room < 0 && room > -4096)
		return room;
	for (unsigned int slot = 0; slot < slots && r >= 0; slot++) {
		r = is_logged(v, (uint64_t)room, slot);
		on[slot] = r == 1;
	}
	call(v, SYS_munmap, (uint64_t)room, bytes, 0, 0);
	return r < 0 ? r : 0;
}

int main(int argc, char **argv)
{
	struct vmm v = { .pid = argc > 1 ? atoi(argv[1]) : 0 };
	unsigned int slots = argc > 2 ? (unsigned int)atoi(argv[2]) : SLOTS;
	static bool on[SLOTS_MAX];
	const char *comma = "";
	sigset_t all, before;
	long r;

	if (v.pid <= 0 || slots > SLOTS_MAX)
		die("usage: kvmslots PID [N]");
	v.vm_fd = find_vm_fd(v.pid);
	if (v.vm_fd < 0)
		die("process %d has no KVM VM", v.pid);
	v.mem = open_mem(v.pid);
	v.gate = find_gate(v.pid, v.mem);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before);	/* a tool that is killed here takes the VMM along */
	seize(&v);
	r = ask(&v, slots, on);
	release(&v);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (r)
		die("process %d: KVM_GET_DIRTY_LOG: %s", v.pid, strerror((int)-r));
	printf("logged=");
	for (unsigned int slot = 0; slot < slots; slot++) {
		if (!on[slot])
			continue;
		printf("%s%u", comma, slot);
		comma = ",";
	}
	putchar('\n');
	return 0;
}
