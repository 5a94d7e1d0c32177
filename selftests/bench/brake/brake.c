// SPDX-License-Identifier: GPL-2.0-only
/*
 * brake [VCPUS...]: what it costs to slow many vCPUs (user/brake), and how long they stand still, by
 * --throttle's per cent. As in most guests, one vCPU computes and the others are halted in KVM_RUN.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "brake/brake.h"

#define CODE_BYTES	0x3000
#define SPINS		0x1000u	/* jmp . */
#define HALTS		0x2000u	/* hlt; jmp .-1 */
#define SETTLE_MS	500u
#define RUN_NS		4000000000ull
#define ALIVE_MS	200u

/* Shared with the process of the vCPUs. */
static _Atomic pid_t *tid;
static int kvm, vm;

static void check(bool ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void *vcpu(void *arg)
{
	const unsigned int i = (unsigned int)(uintptr_t)arg;
	const int fd = ioctl(vm, KVM_CREATE_VCPU, i);
	struct kvm_mp_state runs = { KVM_MP_STATE_RUNNABLE };
	struct kvm_regs regs = { .rip = i ? HALTS : SPINS, .rflags = 2 };
	struct kvm_sregs sregs;

	check(fd >= 0 && !ioctl(fd, KVM_GET_SREGS, &sregs), "KVM_CREATE_VCPU");
	sregs.cs.base = 0;
	sregs.cs.selector = 0;
	check(!ioctl(fd, KVM_SET_SREGS, &sregs) && !ioctl(fd, KVM_SET_REGS, &regs) &&
	      !ioctl(fd, KVM_SET_MP_STATE, &runs), "vCPU");
	atomic_store(&tid[i], (pid_t)syscall(SYS_gettid));
	/* Each stop ends it with EINTR. */
	while (ioctl(fd, KVM_RUN, 0) < 0 && errno == EINTR)
		;
	perror("KVM_RUN");
	exit(1);
}

static void run_vm(unsigned int vcpus)
{
	uint8_t *code = mmap(NULL, CODE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct kvm_userspace_memory_region region = {
		.memory_size = CODE_BYTES, .userspace_addr = (uintptr_t)code,
	};

	check(code != MAP_FAILED, "mmap");
	memcpy(code + SPINS, "\xeb\xfe", 2);
	memcpy(code + HALTS, "\xf4\xeb\xfd", 3);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	vm = ioctl(kvm, KVM_CREATE_VM, 0);
	check(vm >= 0 && !ioctl(vm, KVM_SET_TSS_ADDR, 0xfffbd000ul) && !ioctl(vm, KVM_CREATE_IRQCHIP, 0) &&
	      !ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region), "VM");
	for (uintptr_t i = 0; i < vcpus; i++) {
		pthread_t thread;

		check(!pthread_create(&thread, NULL, vcpu, (void *)i), "thread");
	}
	for (;;)
		pause();
}

static double brake_cpu_s(pid_t pid)
{
	unsigned long user = 0, system = 0;
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	check(f && fscanf(f, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
			  &user, &system) == 2, path);
	fclose(f);
	return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static void measure(struct brake *b, unsigned int vcpus, unsigned int percent)
{
	uint64_t begin, held;
	double cpu, s;

	brake_alive(b);
	brake_set(b, percent);
	nap_ms(SETTLE_MS);
	begin = now_ns();
	held = brake_held_ns(b);
	cpu = brake_cpu_s(b->pid);
	while (now_ns() - begin < RUN_NS) {
		brake_alive(b);
		nap_ms(ALIVE_MS);
	}
	s = (double)(now_ns() - begin) / 1e9;
	printf("%u vCPUs at %u %%: still for %.0f %% of the time, %.0f %% of a CPU\n", vcpus, percent,
	       100 * (double)(brake_held_ns(b) - held) / 1e9 / s, 100 * (brake_cpu_s(b->pid) - cpu) / s);
	fflush(stdout);
	if (brake_why(b))
		fprintf(stderr, "brake: %s\n", brake_why(b));
}

static void bench(unsigned int vcpus)
{
	static const unsigned int percents[] = { 50, 90, 99 };
	static struct vcpus list;
	struct brake b = { 0 };
	struct err e = { 0 };

	tid = mmap(NULL, VCPUS_MAX * sizeof(*tid), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(tid != MAP_FAILED && vcpus && vcpus <= VCPUS_MAX, "vCPUs");
	list = (struct vcpus) { .pid = fork(), .n = vcpus };
	if (!list.pid)
		run_vm(vcpus);
	for (unsigned int i = 0; i < vcpus; i++) {
		while (!atomic_load(&tid[i])) {
			check(!waitpid(list.pid, NULL, WNOHANG), "the vCPUs");
			nap_ms(1);
		}
		list.tid[i] = atomic_load(&tid[i]);
	}
	check(!brake_open(&b, &e), e.text);
	brake_vcpus(&b, &list);
	for (unsigned int i = 0; i < sizeof(percents) / sizeof(*percents); i++)
		measure(&b, vcpus, percents[i]);
	brake_end(&b);
	kill(list.pid, SIGKILL);
	waitpid(list.pid, NULL, 0);
	munmap((void *)tid, VCPUS_MAX * sizeof(*tid));
}

int main(int argc, char **argv)
{
	kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	check(kvm >= 0, "/dev/kvm");
	for (int i = 1; i < argc; i++)
		bench((unsigned int)strtoul(argv[i], NULL, 10));
	for (unsigned int vcpus = 4; argc == 1 && vcpus <= 256; vcpus *= 4)
		bench(vcpus);
	return 0;
}
