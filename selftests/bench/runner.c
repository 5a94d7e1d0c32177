// SPDX-License-Identifier: GPL-2.0-only
/* The target's vCPU: a thread on a CPU of its own, which runs one program of guest.S at a time. */
#include <string.h>
#include <sys/ioctl.h>

#include "bench.h"

#define RUNNER_CPU	1

static void *runner_thread(void *arg)
{
	struct target *t = arg;

	pin_to_cpu(RUNNER_CPU);
	pthread_mutex_lock(&t->lock);
	while (!t->quit) {
		if (t->work) {
			pthread_mutex_unlock(&t->lock);
			vcpu_run(&t->vm.vcpu[0]);
			pthread_mutex_lock(&t->lock);
			t->work = false;
			pthread_cond_broadcast(&t->cond);
		} else {
			pthread_cond_wait(&t->cond, &t->lock);
		}
	}
	pthread_mutex_unlock(&t->lock);
	return NULL;
}

static void runner_begin(struct target *t, struct kvm_regs *regs, const uint8_t *program)
{
	struct vcpu *v = &t->vm.vcpu[0];

	regs->rdi = TARGET_GPA;
	memset(v->hot, 0, sizeof(*v->hot));
	vcpu_begin(v, program, regs);
	pthread_mutex_lock(&t->lock);
	t->work = true;
	pthread_cond_broadcast(&t->cond);
	pthread_mutex_unlock(&t->lock);
}

static void runner_wait(struct target *t)
{
	pthread_mutex_lock(&t->lock);
	while (t->work)
		pthread_cond_wait(&t->cond, &t->lock);
	pthread_mutex_unlock(&t->lock);
}

static unsigned int log2_of(uint64_t n)
{
	return 63 - (unsigned int)__builtin_clzll(n);
}

uint64_t runner_dirty(struct target *t, const struct pattern *p)
{
	uint64_t cells = t->pages / p->run;
	struct kvm_regs regs = {
		.rsi = p->pages, .r8 = p->seed, .r9 = cells - 1, .r10 = log2_of(cells) / 2 + 1,
		.r11 = p->run,
	};
	uint64_t begin = now_ns();

	runner_begin(t, &regs, guest_dirty);
	runner_wait(t);
	return now_ns() - begin;
}

void runner_hot(struct target *t, uint64_t pages, unsigned int stride_shift)
{
	struct kvm_regs regs = {
		.rsi = pages - 1, .r8 = t->vm.vcpu[0].ctl_gpa, .r9 = t->step_tsc,
		.r10 = stride_shift, .r11 = t->step_tsc * 8,
	};

	runner_begin(t, &regs, guest_hot);
}

void runner_stop(struct target *t)
{
	t->vm.vcpu[0].hot->stop = 1;
	runner_wait(t);
}

struct loss runner_loss(const struct target *t)
{
	const struct guest_hot_ctl *hot = t->vm.vcpu[0].hot;

	return (struct loss){
		.steps = hot->steps,
		.lost_ns = hot->lost_tsc * 1000000 / t->tsc_khz,
		.gaps = hot->gaps,
	};
}

/* What a step takes, on memory that is not logged yet. */
static void runner_calibrate(struct target *t)
{
	const struct guest_hot_ctl *hot = t->vm.vcpu[0].hot;
	uint64_t begin, steps;

	t->step_tsc = UINT32_MAX;
	runner_hot(t, 64, 12);
	sleep_ms(100);			/* the pages are there from here on */
	begin = now_ns();
	steps = hot->steps;
	sleep_ms(100);
	steps = hot->steps - steps;
	t->step_tsc = (now_ns() - begin) * t->tsc_khz / 1000000 / (steps ? steps : 1);
	runner_stop(t);
}

void runner_open(struct target *t)
{
	t->tsc_khz = (unsigned int)ioctl(t->vm.vcpu[0].fd, KVM_GET_TSC_KHZ, NULL);
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->cond, NULL);
	require(!pthread_create(&t->thread, NULL, runner_thread, t), "pthread_create");
	runner_calibrate(t);
}

void runner_close(struct target *t)
{
	pthread_mutex_lock(&t->lock);
	t->quit = true;
	pthread_cond_broadcast(&t->cond);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
}
