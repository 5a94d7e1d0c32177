// SPDX-License-Identifier: GPL-2.0-only
/* What is said to a reader that does not read, of each kind: no line waits, and the next one is taken when there is room. */
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/say.h"

#define LINE	"a line of some length, as all of them are\n"
#define TIMES	100000	/* more than any of them has room for */

static int line(int fd)
{
	return say_bytes(fd, LINE, strlen(LINE));
}

/* Until it has no room. What waits is killed. */
static void fill(int fd)
{
	int i = 0;

	alarm(60);
	while (i < TIMES && !line(fd))
		i++;
	assert_in_range(i, 1, TIMES - 1);
	for (i = 0; i < 10; i++)
		assert_int_equal(line(fd), -EAGAIN);
	alarm(0);
}

static void drain(int fd)
{
	char some[65536];

	assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	while (read(fd, some, sizeof(some)) > 0)
		;
}

static void a_pipe(void **state)
{
	int fds[2];

	(void)state;
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	fill(fds[1]);
	assert_int_equal(fcntl(fds[1], F_GETFL) & O_NONBLOCK, 0);	/* it is the shell's as well */
	drain(fds[0]);
	assert_int_equal(line(fds[1]), 0);
	close(fds[0]);
	close(fds[1]);
}

static void a_socket(void **state)
{
	int fds[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
	fill(fds[1]);
	drain(fds[0]);
	assert_int_equal(line(fds[1]), 0);
	close(fds[0]);
	assert_int_equal(line(fds[1]), -EPIPE);	/* without the signal */
	close(fds[1]);
}

/* Its reader is away, as a session's is whose link is; or it is held, by Ctrl-S. */
static void a_terminal(void **state)
{
	int master, slave;

	(void)state;
	assert_int_equal(openpty(&master, &slave, NULL, NULL, NULL), 0);
	fill(slave);
	drain(master);
	assert_int_equal(line(slave), 0);
	drain(master);
	assert_int_equal(tcflow(slave, TCOOFF), 0);
	alarm(60);
	assert_int_equal(line(slave), -EAGAIN);
	alarm(0);
	assert_int_equal(tcflow(slave, TCOON), 0);
	assert_int_equal(line(slave), 0);
	close(slave);
	close(master);
}

static void a_file(void **state)
{
	FILE *f = tmpfile();
	int full;

	(void)state;
	assert_non_null(f);
	assert_int_equal(line(fileno(f)), 0);
	assert_int_equal(line(fileno(f)), 0);
	assert_int_equal(lseek(fileno(f), 0, SEEK_CUR), 2 * strlen(LINE));
	fclose(f);
	full = open("/dev/full", O_WRONLY | O_CLOEXEC);
	assert_int_equal(line(full), -ENOSPC);
	close(full);
	assert_int_equal(line(full), -EBADF);
}

/* Of one that is too long the end is missing, but not that of the line. */
static void a_line(void **state)
{
	static char text[8192], got[16384];
	int old = dup(STDERR_FILENO), fds[2];
	ssize_t n;

	(void)state;
	memset(text, 'x', sizeof(text) - 1);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	dup2(fds[1], STDERR_FILENO);
	say("%s %d", "so many:", 3);
	say("%s", text);
	say("the end");
	dup2(old, STDERR_FILENO);
	close(old);
	close(fds[1]);
	n = read(fds[0], got, sizeof(got) - 1);
	assert_true(n > 0);
	got[n] = '\0';
	close(fds[0]);
	assert_memory_equal(got, "godwit: so many: 3\ngodwit: xxx", 30);
	assert_string_equal(got + n - 18, "x\ngodwit: the end\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pipe),
		cmocka_unit_test(a_socket),
		cmocka_unit_test(a_terminal),
		cmocka_unit_test(a_file),
		cmocka_unit_test(a_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
