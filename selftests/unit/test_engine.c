// SPDX-License-Identifier: GPL-2.0-only
/* Which engine is taken, by name and where io_uring is refused. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "net/engine.h"

static void engines_by_name(void **state)
{
	const struct engine_ops *got = NULL;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(engine_choose("poll", &got, &e), 0);
	assert_ptr_equal(got, &engine_poll);
	if (!engine_uring.supported()) {
		assert_int_equal(engine_choose("uring", &got, &e), 0);
		assert_ptr_equal(got, &engine_uring);
		assert_int_equal(engine_choose("auto", &got, &e), 0);
		assert_ptr_equal(got, &engine_uring);
	}
	assert_int_not_equal(engine_choose("epoll", &got, &e), 0);
	assert_int_equal(e.exit, GW_USAGE);
}

static void zero_copy_by_name(void **state)
{
	enum engine_zero_copy got = ENGINE_ZC_ON;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(engine_zero_copy("off", &got, &e), 0);
	assert_int_equal(got, ENGINE_ZC_OFF);
	assert_int_equal(engine_zero_copy("auto", &got, &e), 0);
	assert_int_equal(got, ENGINE_ZC_AUTO);
	assert_int_not_equal(engine_zero_copy("yes", &got, &e), 0);
	assert_int_equal(e.exit, GW_USAGE);
	assert_int_equal(got, ENGINE_ZC_AUTO);
}

/* In a child: a filter is for ever. */
static int without_uring(int out)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { .len = 4, .filter = filter };
	const struct engine_ops *got = NULL;
	struct err e = { 0 };

	dup2(out, STDERR_FILENO);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog))
		return 1;
	if (engine_choose("auto", &got, &e) || got != &engine_poll)
		return 2;
	if (engine_choose(NULL, &got, &e) || got != &engine_poll)
		return 3;
	return !engine_choose("uring", &got, &e) || e.exit != GW_INTERNAL || !strstr(e.text, "seccomp") ? 4 : 0;
}

static void without_uring_it_is_poll(void **state)
{
	char said[2000] = "";
	int pipefd[2], status;
	pid_t child;

	(void)state;
	assert_int_equal(pipe(pipefd), 0);
	child = fork();
	if (!child)
		_exit(without_uring(pipefd[1]));
	waitpid(child, &status, 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_true(read(pipefd[0], said, sizeof(said) - 1) > 0);
	assert_non_null(strstr(said, "using poll"));
	assert_non_null(strstr(said, "Operation not permitted"));
	assert_ptr_equal(strchr(said, '\n') + 1, strstr(said + 1, "godwit: uring"));	/* one line a choice */
	close(pipefd[0]);
	close(pipefd[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(engines_by_name),
		cmocka_unit_test(zero_copy_by_name),
		cmocka_unit_test(without_uring_it_is_poll),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
