// SPDX-License-Identifier: GPL-2.0-only
/*
 * A QEMU that has all of the device state and is silent, behind the commit point: it is stopped, and killed unless it has said
 * that the guest runs. It is a process here that does nothing, and another one says what it says.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "channel_rig.h"
#include "proc/proc_io.h"
#include "qmp_peer.h"
#include "receive/load.h"

#define RESUME	"{\"timestamp\": {\"seconds\": 7, \"microseconds\": 5}, \"event\": \"RESUME\"}\r\n"

enum says { NOTHING, RUNS_IN_THE_LAST_MOMENT, CLOSES };
enum fate { GOES_ON, STANDS_STILL, HAS_ENDED };

/* Shared by the processes. */
struct scene {
	struct peer peer;
	pid_t qemu, voice;
	atomic_bool listens, may_speak, spoke;
};

static struct scene *last_moment;	/* has not come yet */

bool __real_proc_stopped(pid_t pid);
bool __wrap_proc_stopped(pid_t pid);

/* The receiver has heard nothing until now, and asks this before it stops QEMU. */
bool __wrap_proc_stopped(pid_t pid)
{
	if (last_moment) {
		atomic_store(&last_moment->may_speak, true);
		while (!atomic_load(&last_moment->spoke))
			nap(1);
		last_moment = NULL;
	}
	return __real_proc_stopped(pid);
}

static void speak(struct scene *s, enum says what)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	s->peer.fd = accept4(s->peer.listener, NULL, NULL, SOCK_CLOEXEC);
	peer_negotiate(&s->peer);
	if (what == CLOSES)
		_exit(0);
	while (!atomic_load(&s->may_speak))
		nap(1);
	peer_say(&s->peer, RESUME);
	atomic_store(&s->spoke, true);
	for (;;)
		pause();
}

/* The socket is this process's, whoever serves it. */
static void be_qemu(struct scene *s, enum says what)
{
	pid_t voice;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	s->qemu = getpid();
	if (peer_start(&s->peer, NULL, NULL, 1))
		_exit(1);
	voice = fork();
	if (!voice)
		speak(s, what);
	s->voice = voice;
	close(s->peer.listener);
	atomic_store(&s->listens, true);
	for (;;)
		pause();
}

static struct scene *scene(enum says what)
{
	struct scene *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(s, MAP_FAILED);
	if (!fork())
		be_qemu(s, what);
	while (!atomic_load(&s->listens))
		nap(1);
	return s;
}

/* Return: load_run()'s; *fate: QEMU's. */
static int load_into(enum says what, enum commit_state *commit, enum fate *fate, struct err *e)
{
	struct receiver_options o = { .timeout_ms = 100 };
	struct receiver r = {
		.o = &o, .runs = true, .commit = COMMIT_SENT, .migration = { .stream = -1 }, .devstate = { .memfd = -1 },
	};
	struct scene *s = scene(what);
	void *link;
	int ret;

	connect_link(&link, 0);
	r.ch = ((struct link *)link)->ch;
	r.vm.pid = s->qemu;
	r.vm.pidfd = (int)syscall(SYS_pidfd_open, s->qemu, 0);
	assert_int_equal(qmp_open(s->peer.path, 2000, &r.qmp, e), 0);
	last_moment = what == RUNS_IN_THE_LAST_MOMENT ? s : NULL;
	ret = load_run(&r, e);
	*commit = r.commit;
	*fate = proc_ended(r.vm.pidfd) ? HAS_ENDED : __real_proc_stopped(s->qemu) ? STANDS_STILL : GOES_ON;
	assert_int_equal(ret == 0, r.commit == COMMIT_RUNS);
	assert_int_equal(r.resumed_ns, r.commit == COMMIT_RUNS ? 7000005000 : 0);
	qmp_close(r.qmp);
	close(r.vm.pidfd);
	kill(s->voice, SIGKILL);
	kill(s->qemu, SIGKILL);
	waitpid(s->qemu, NULL, 0);
	unlink(s->peer.path);
	rmdir(s->peer.dir);
	munmap(s, sizeof(*s));
	teardown(&link);
	return ret;
}

static void one_that_is_silent_is_killed(void **state)
{
	enum commit_state commit;
	struct err e = { 0 };
	enum fate fate;

	(void)state;
	assert_int_not_equal(load_into(NOTHING, &commit, &fate, &e), 0);
	assert_int_equal(commit, COMMIT_DEAD);
	assert_int_equal(fate, HAS_ENDED);
	assert_int_equal(e.exit, GW_DEVICE_STATE);
}

/* Between the receiver's last look and the stop. */
static void one_that_has_said_that_it_runs_goes_on(void **state)
{
	enum commit_state commit;
	struct err e = { 0 };
	enum fate fate;

	(void)state;
	assert_int_equal(load_into(RUNS_IN_THE_LAST_MOMENT, &commit, &fate, &e), 0);
	assert_int_equal(commit, COMMIT_RUNS);
	assert_int_equal(fate, GOES_ON);
}

/* What it would have said nobody can hear. */
static void one_that_cannot_be_heard_goes_on(void **state)
{
	enum commit_state commit;
	struct err e = { 0 };
	enum fate fate;

	(void)state;
	assert_int_not_equal(load_into(CLOSES, &commit, &fate, &e), 0);
	assert_int_equal(commit, COMMIT_IN_DOUBT);
	assert_int_equal(fate, GOES_ON);
	assert_int_equal(e.exit, GW_UNKNOWN);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(one_that_is_silent_is_killed),
	cmocka_unit_test(one_that_has_said_that_it_runs_goes_on),
	cmocka_unit_test(one_that_cannot_be_heard_goes_on),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
