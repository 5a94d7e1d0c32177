// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "brake/brake.h"

#define BEAT_NS	3000000000ull	/* the process gives a sign of life each second */
#define END_MS	100u		/* it ends within less */

int brake_open(struct brake *b, struct err *e)
{
	const pid_t sender = getpid();

	b->shared = mmap(NULL, sizeof(*b->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (b->shared == MAP_FAILED) {
		b->shared = NULL;
		return err_set(e, GW_INTERNAL, errno, "no memory for the brake: %s", strerror(errno));
	}
	atomic_store(&b->shared->beat_ns, now_ns());
	b->pid = fork();
	if (!b->pid)
		brake_process(b->shared, sender);
	if (b->pid > 0)
		return 0;
	b->pid = 0;
	b->why = "the process that would do it could not be started";
	return err_set(e, GW_INTERNAL, errno, "cannot start the process that would slow the VM's vCPUs: %s",
		       strerror(errno));
}

static void brake_ring(struct brake *b)
{
	atomic_fetch_add(&b->shared->bell, 1);
	syscall(SYS_futex, &b->shared->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void brake_vcpus(struct brake *b, const struct vcpus *vcpus)
{
	struct vcpus *now = b->shared ? &b->shared->vcpus : NULL;

	if (!now || (now->pid == vcpus->pid && now->n == vcpus->n &&
		     !memcmp(now->tid, vcpus->tid, vcpus->n * sizeof(vcpus->tid[0]))))
		return;
	atomic_fetch_add(&b->shared->list, 1);
	*now = *vcpus;
	atomic_fetch_add(&b->shared->list, 1);
	brake_ring(b);
}

void brake_set(struct brake *b, unsigned int percent)
{
	if (b->shared && atomic_exchange(&b->shared->percent, percent) != percent)
		brake_ring(b);
}

static void brake_kill(struct brake *b)
{
	if (b->pid <= 0)
		return;
	/* The kernel detaches what it traces before it can be waited for. */
	kill(b->pid, SIGKILL);
	while (waitpid(b->pid, NULL, 0) < 0 && errno == EINTR)
		;
	b->pid = 0;
}

void brake_alive(struct brake *b)
{
	const uint64_t now = now_ns();
	uint64_t beat;

	if (!b->shared)
		return;
	atomic_store(&b->shared->alive_ns, now);
	if (b->pid <= 0 || !atomic_load(&b->shared->percent))
		return;
	beat = atomic_load(&b->shared->beat_ns);
	if (waitpid(b->pid, NULL, WNOHANG) == b->pid) {
		b->pid = 0;
		b->why = "the process that does it has ended";
	} else if (now > beat && now - beat > BEAT_NS) {
		brake_kill(b);
		b->why = "the process that does it did not go on";
	}
}

uint64_t brake_held_ns(const struct brake *b)
{
	const unsigned int n = b->shared ? b->shared->vcpus.n : 0;

	return n ? atomic_load(&b->shared->held_ns) / n : 0;
}

const char *brake_why(const struct brake *b)
{
	const int refused = b->shared ? atomic_load(&b->shared->refused) : 0;

	return b->why || !refused ? b->why : strerror(refused);
}

/*
 * It is asked first: a tracer that is killed between a thread's stop for a signal and its detaching
 * takes the signal with it.
 */
void brake_end(struct brake *b)
{
	if (!b->shared)
		return;
	brake_set(b, BRAKE_END);
	for (unsigned int ms = 0; b->pid > 0 && ms < END_MS; ms++) {
		if (waitpid(b->pid, NULL, WNOHANG) == b->pid)
			b->pid = 0;
		else
			nap_ms(1);
	}
	brake_kill(b);
	munmap(b->shared, sizeof(*b->shared));
	b->shared = NULL;
}
