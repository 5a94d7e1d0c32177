// SPDX-License-Identifier: GPL-2.0-only
/* The progress line in a terminal of its own (a pty), as plain lines, and as JSON. */
#include <fcntl.h>
#include <limits.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "cmd/progress.h"
#include "report/json.h"
#include "sample_report.h"

static struct report r;

/* At once, whatever was shown before. */
static void show(struct progress *p)
{
	p->next_ns = 0;
	progress_show(&r, p);
}

/* All that a terminal of so many columns gets of two paintings and the end. */
static void painted(unsigned short columns, char *text, size_t len)
{
	struct winsize size = { .ws_row = 24, .ws_col = columns };
	struct progress p = { .how = PROGRESS_TERMINAL };
	const struct err ok = { 0 };
	int master, slave;
	size_t n = 0;
	ssize_t got;

	assert_int_equal(openpty(&master, &slave, NULL, NULL, &size), 0);
	p.fd = slave;
	show(&p);
	show(&p);
	progress_end(&p, &r, &ok);
	do {
		got = read(master, text + n, len - 1 - n);
		assert_true(got > 0);
		n += (size_t)got;
		text[n] = '\0';
	} while (!strchr(text, '\n'));
	close(slave);
	close(master);
}

static void fits(unsigned short columns)
{
	char text[2048], *line = text;

	painted(columns, text, sizeof(text));
	for (int i = 0; i < 2; i++) {
		size_t n;

		assert_int_equal(*line++, '\r');
		n = strcspn(line, "\r\n\033");
		assert_in_range(n, 10, columns - 1u);
		assert_memory_equal(line + n, "\033[K", 3);
		line += n + 3;
	}
	assert_string_equal(line, "\r\n");
}

static void a_terminal_gets_one_line_that_fits(void **state)
{
	(void)state;
	sample_begin(&r);
	fits(200);
	fits(80);
	fits(40);
	sample_end_round(&r, 10240 * MS, 1024, 256);
	fits(200);
	fits(80);
	fits(40);
}

static void the_line_says_all(void **state)
{
	char text[2048];

	(void)state;
	sample_begin(&r);
	painted(200, text, sizeof(text));
	assert_non_null(strstr(text, "pre-copy, round 1: sent 500 MiB, remaining 524.0 MiB, 100.0 MiB/s, ETA 5.2 s or more\033"));
	sample_end_round(&r, 10240 * MS, 1024, 256);
	painted(200, text, sizeof(text));
	assert_non_null(strstr(text, "sent 1024 MiB, remaining 256.0 MiB, 100.0 MiB/s, dirty 25.0 MiB/s, downtime 2580 ms, ETA 3.4 s\033"));
	sample_next_round(&r, false);
	sample_end_round(&r, 10240 * MS, 256, 1100);
	painted(200, text, sizeof(text));
	assert_non_null(strstr(text, "does not converge at this rate\033"));
	painted(80, text, sizeof(text));
	assert_non_null(strstr(text, "pre-copy 2, does not converge at this rate: "));
}

static void the_line_says_what_packs(void **state)
{
	char text[2048];

	(void)state;
	sample_packed(&r);
	painted(200, text, sizeof(text));
	assert_non_null(strstr(text, ", ratio 4.0 by zlib"));
	sample_begin(&r);
	sample_sent(&r, 1000, 10);
	painted(200, text, sizeof(text));
	assert_null(strstr(text, "ratio"));
}

/* What is missing, how often the guest waits for it, and how long. */
static void the_line_says_what_the_guest_waits_for(void **state)
{
	char text[2048];

	(void)state;
	sample_postcopy(&r);
	painted(200, text, sizeof(text));
	assert_non_null(strstr(text, "post-copy, round 2: sent 1024 MiB, remaining 20.0 MiB, 100.0 MiB/s, faults 500 (250/s), mean 2.0, p99 9.0, worst 12.0 ms, ETA 0.2 s\033"));
	fits(80);
	/* A sender that has taken over does not know since when they are counted. */
	r.postcopy.owed_pages = 0;
	painted(200, text, sizeof(text));
	assert_non_null(strstr(text, ", faults 500, mean 2.0, "));
}

static int file(void)
{
	int fd = memfd_create("progress", MFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

/* All that was written there, for free(). Closes it. */
static char *text_of(int fd)
{
	off_t len = lseek(fd, 0, SEEK_END);
	char *text = calloc(1, (size_t)len + 1);

	assert_non_null(text);
	assert_int_equal(pread(fd, text, (size_t)len, 0), len);
	close(fd);
	return text;
}

static char *lines_of(enum progress_how how, int times, const struct err *outcome)
{
	struct progress p = { .how = how, .fd = file() };

	for (int i = 0; i < times; i++)
		progress_show(&r, &p);
	if (outcome)
		progress_end(&p, &r, outcome);
	return text_of(p.fd);
}

static void elsewhere_it_is_a_line_now_and_then(void **state)
{
	const struct err ok = { 0 };
	char *text;

	(void)state;
	sample_begin(&r);
	text = lines_of(PROGRESS_PLAIN, 100, &ok);
	assert_memory_equal(text, "godwit: pre-copy, round 1: sent ", 32);
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
	assert_null(strchr(text, '\033'));
	free(text);
	text = lines_of(PROGRESS_NONE, 100, &ok);
	assert_string_equal(text, "");
	free(text);
}

static void json_is_an_object_a_line(void **state)
{
	struct err failed = { 0 };
	char *text, *line;
	json_t *j;

	(void)state;
	err_set(&failed, GW_CANCELLED, 1, "two\nlines");
	sample_begin(&r);
	text = lines_of(PROGRESS_JSON, 3, &failed);
	line = strtok(text, "\n");
	j = json_loads(line, 0, NULL);
	assert_int_equal(json_integer_value(json_object_get(json_object_get(j, "ram"), "remaining")), 524 * MIB);
	assert_null(json_object_get(j, "status"));
	assert_null(json_object_get(j, "eta"));
	json_decref(j);
	line = strtok(NULL, "\n");
	j = json_loads(line, 0, NULL);
	assert_string_equal(json_string_value(json_object_get(j, "status")), "cancelled");
	assert_string_equal(json_string_value(json_object_get(j, "message")), "two\nlines");
	json_decref(j);
	assert_null(strtok(NULL, "\n"));
	free(text);
}

static void json_tells_of_faults(void **state)
{
	json_t *j, *postcopy;
	char *text;

	(void)state;
	sample_postcopy(&r);
	text = lines_of(PROGRESS_JSON, 1, NULL);
	/* So a pipe takes it whole, or not at all. */
	assert_in_range(strlen(text), 1, PIPE_BUF * 3 / 4);
	j = json_loads(text, 0, NULL);
	postcopy = json_object_get(j, "postcopy");
	assert_int_equal(json_integer_value(json_object_get(postcopy, "faults")), 500);
	assert_int_equal((int)json_real_value(json_object_get(postcopy, "faults-rate")), 250);
	json_decref(j);
	free(text);
}

/* Not twice a second, but whenever a round or a phase begins. */
static void json_tells_of_every_round(void **state)
{
	struct progress p = { .how = PROGRESS_JSON, .fd = file() };
	char *text;
	size_t n = 0;

	(void)state;
	sample_begin(&r);
	for (r.round = 1; r.round <= 5; r.round++)
		for (int i = 0; i < 3; i++)
			progress_show(&r, &p);
	text = text_of(p.fd);
	for (const char *at = text; (at = strchr(at, '\n')); at++)
		n++;
	assert_int_equal(n, 5);
	free(text);
}

/* A reader that reads no more, and then does: what it missed is left out, and each line that it gets is whole. */
static void a_full_pipe_holds_nothing_up(void **state)
{
	struct progress p = { .how = PROGRESS_JSON };
	const struct err ok = { 0 };
	char text[1 << 16];
	int pipe_fds[2];
	size_t n = 0;
	ssize_t got;
	json_t *j;

	(void)state;
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	assert_int_equal(fcntl(pipe_fds[1], F_SETPIPE_SZ, 8192), 8192);
	p.fd = pipe_fds[1];
	sample_postcopy(&r);
	alarm(60);	/* what waits for the reader is killed */
	for (r.round = 1; r.round <= 100; r.round++)
		progress_show(&r, &p);
	assert_int_equal(p.how, PROGRESS_JSON);
	got = read(pipe_fds[0], text, sizeof(text));
	assert_in_range(got, 1, 8192);
	progress_end(&p, &r, &ok);
	close(pipe_fds[1]);
	n = (size_t)got;
	while ((got = read(pipe_fds[0], text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)got;
	close(pipe_fds[0]);
	alarm(0);
	text[n] = '\0';
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		j = json_loads(line, 0, NULL);
		assert_non_null(j);
		got = json_object_get(j, "status") != NULL;
		json_decref(j);
	}
	assert_int_equal(got, 1);	/* the last line is how it ended */
}

static void without_a_reader_no_more_is_written(void **state)
{
	struct progress p = { .how = PROGRESS_JSON };
	int pipe_fds[2];

	(void)state;
	signal(SIGPIPE, SIG_IGN);
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	close(pipe_fds[0]);
	p.fd = pipe_fds[1];
	sample_begin(&r);
	progress_show(&r, &p);
	assert_int_equal(p.how, PROGRESS_NONE);
	close(pipe_fds[1]);
}

static void what_was_asked_for(void **state)
{
	struct progress p;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(progress_init(&p, "json", &e), 0);
	assert_int_equal(p.fd, STDOUT_FILENO);
	assert_int_equal(progress_init(&p, "none", &e), 0);
	assert_int_equal(p.how, PROGRESS_NONE);
	assert_true(progress_init(&p, "loud", &e) < 0);
	assert_int_equal(e.exit, GW_USAGE);
	assert_non_null(strstr(e.text, "auto, plain, json or none"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_terminal_gets_one_line_that_fits),
		cmocka_unit_test(the_line_says_all),
		cmocka_unit_test(the_line_says_what_packs),
		cmocka_unit_test(the_line_says_what_the_guest_waits_for),
		cmocka_unit_test(elsewhere_it_is_a_line_now_and_then),
		cmocka_unit_test(json_is_an_object_a_line),
		cmocka_unit_test(json_tells_of_faults),
		cmocka_unit_test(json_tells_of_every_round),
		cmocka_unit_test(a_full_pipe_holds_nothing_up),
		cmocka_unit_test(without_a_reader_no_more_is_written),
		cmocka_unit_test(what_was_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
