// SPDX-License-Identifier: GPL-2.0-only
/* The local socket: one line, one answer; no client can make the server wait or its memory grow. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "control/line_socket.h"
#include "net/sock.h"
#include "net/unix.h"

struct rig {
	struct line_socket l;
	char dir[32], path[64];
	unsigned int asked;
};

static int setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	strcpy(rig->dir, "/tmp/godwit-local-XXXXXX");
	assert_non_null(mkdtemp(rig->dir));
	snprintf(rig->path, sizeof(rig->path), "%s/s", rig->dir);
	assert_int_equal(line_socket_listen(&rig->l, rig->path), 0);
	*state = rig;
	return 0;
}

static int teardown(void **state)
{
	struct rig *rig = *state;

	line_socket_close(&rig->l);
	assert_int_equal(access(rig->path, F_OK), -1);
	assert_return_code(rmdir(rig->dir), errno);
	free(rig);
	return 0;
}

/* "later" is answered by line_socket_answer_all(). */
static bool echo(void *arg, const char *line, char answer[LINE_SOCKET_LINE])
{
	++*(unsigned int *)arg;
	snprintf(answer, LINE_SOCKET_LINE, "<%.1000s>", line);
	return strcmp(line, "later");
}

static int client(struct rig *rig)
{
	int fd = sock_unix_connect(rig->path);

	assert_return_code(fd, -fd);
	return fd;
}

static void say(int fd, const char *text)
{
	assert_int_equal(sock_send(fd, text, strlen(text), deadline_ms(1000)), 0);
}

/* All that there is up to its end; -1: it is open, and says nothing. */
static ssize_t hear(int fd, char *buf, size_t cap)
{
	size_t len = 0;
	ssize_t n;

	while ((n = sock_recv_some(fd, buf + len, cap - len)) > 0)
		len += (size_t)n;
	buf[len < cap ? len : cap - 1] = '\0';
	return n == -EAGAIN ? -1 : (ssize_t)len;
}

static void a_line_gets_an_answer(void **state)
{
	struct rig *rig = *state;
	char said[LINE_SOCKET_LINE];
	int fd = client(rig);

	say(fd, "hel");
	line_socket_step(&rig->l, echo, &rig->asked);
	assert_int_equal(hear(fd, said, sizeof(said)), -1);
	say(fd, "lo\nand more");
	line_socket_step(&rig->l, echo, &rig->asked);
	hear(fd, said, sizeof(said));
	assert_string_equal(said, "<hello>\n");
	assert_int_equal(rig->asked, 1);
	assert_int_equal(rig->l.nr, 0);
	close(fd);
}

static void who_waits_is_told_at_the_end(void **state)
{
	struct rig *rig = *state;
	int waits = client(rig), silent = client(rig), gone = client(rig);
	char said[LINE_SOCKET_LINE];

	say(waits, "later\n");
	say(gone, "later\n");
	line_socket_step(&rig->l, echo, &rig->asked);
	close(gone);
	line_socket_step(&rig->l, echo, &rig->asked);
	assert_int_equal(rig->l.nr, 2);
	assert_int_equal(rig->asked, 2);
	line_socket_answer_all(&rig->l, "the end");
	hear(waits, said, sizeof(said));
	assert_string_equal(said, "the end\n");
	assert_int_equal(hear(silent, said, sizeof(said)), -1);
	close(waits);
	close(silent);
}

static void an_endless_line_is_hung_up_on(void **state)
{
	struct rig *rig = *state;
	char junk[LINE_SOCKET_LINE], said[8];
	int fd = client(rig);

	memset(junk, 'x', sizeof(junk));
	assert_int_equal(sock_send(fd, junk, sizeof(junk), deadline_ms(1000)), 0);
	line_socket_step(&rig->l, echo, &rig->asked);
	assert_int_equal(rig->l.nr, 0);
	assert_int_equal(rig->asked, 0);
	assert_int_equal(hear(fd, said, sizeof(said)), 0);
	close(fd);
}

static void the_longest_one_goes_when_too_many_come(void **state)
{
	struct rig *rig = *state;
	int fds[3 * LINE_SOCKET_CLIENTS];
	char said[LINE_SOCKET_LINE];

	for (unsigned int i = 0; i < 3 * LINE_SOCKET_CLIENTS; i++) {
		fds[i] = client(rig);
		line_socket_step(&rig->l, echo, &rig->asked);
		assert_in_range(rig->l.nr, 1, LINE_SOCKET_CLIENTS);
	}
	for (unsigned int i = 0; i < 2 * LINE_SOCKET_CLIENTS; i++)
		assert_int_equal(hear(fds[i], said, sizeof(said)), 0);
	say(fds[2 * LINE_SOCKET_CLIENTS], "x\n");
	line_socket_step(&rig->l, echo, &rig->asked);
	hear(fds[2 * LINE_SOCKET_CLIENTS], said, sizeof(said));
	assert_string_equal(said, "<x>\n");
	for (unsigned int i = 0; i < 3 * LINE_SOCKET_CLIENTS; i++)
		close(fds[i]);
}

static void only_the_owner_may_connect(void **state)
{
	struct rig *rig = *state;
	struct stat st;

	assert_return_code(stat(rig->path, &st), errno);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void a_path_in_use_is_left_alone(void **state)
{
	struct rig *rig = *state;
	struct line_socket other;
	char file[64], said[LINE_SOCKET_LINE];
	int fd;

	assert_int_equal(line_socket_listen(&other, rig->path), -EADDRINUSE);
	fd = client(rig);
	say(fd, "still here\n");
	line_socket_step(&rig->l, echo, &rig->asked);
	hear(fd, said, sizeof(said));
	assert_string_equal(said, "<still here>\n");
	close(fd);
	snprintf(file, sizeof(file), "%s/f", rig->dir);
	close(open(file, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(line_socket_listen(&other, file), -EADDRINUSE);
	assert_return_code(unlink(file), errno);
	memset(said, 'a', sizeof(said));
	said[108] = '\0';
	assert_int_equal(line_socket_listen(&other, said), -ENAMETOOLONG);
}

static void what_a_dead_server_left_is_replaced(void **state)
{
	struct rig *rig = *state;

	close(rig->l.lfd);	/* as if it had been killed */
	assert_int_equal(line_socket_listen(&rig->l, rig->path), 0);
	close(client(rig));
}

static void *serve(void *arg)
{
	struct rig *rig = arg;

	while (!rig->asked) {
		sock_wait(rig->l.lfd, POLLIN, deadline_ms(100));
		line_socket_step(&rig->l, echo, &rig->asked);
	}
	return NULL;
}

static void the_client_asks_and_hears(void **state)
{
	struct rig *rig = *state;
	char answer[LINE_SOCKET_LINE];
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, serve, rig), 0);
	assert_int_equal(line_socket_ask(rig->path, "what", answer, deadline_ms(5000)), 0);
	assert_string_equal(answer, "<what>");
	pthread_join(thread, NULL);
	/* No thread serves it now. */
	assert_int_equal(line_socket_ask(rig->path, "what", answer, deadline_ms(200)), -ETIMEDOUT);
	assert_int_equal(line_socket_ask("/tmp/godwit-no-such", "what", answer, deadline_ms(200)), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_line_gets_an_answer, setup, teardown),
		cmocka_unit_test_setup_teardown(who_waits_is_told_at_the_end, setup, teardown),
		cmocka_unit_test_setup_teardown(an_endless_line_is_hung_up_on, setup, teardown),
		cmocka_unit_test_setup_teardown(the_longest_one_goes_when_too_many_come, setup, teardown),
		cmocka_unit_test_setup_teardown(only_the_owner_may_connect, setup, teardown),
		cmocka_unit_test_setup_teardown(a_path_in_use_is_left_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(what_a_dead_server_left_is_replaced, setup, teardown),
		cmocka_unit_test_setup_teardown(the_client_asks_and_hears, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
