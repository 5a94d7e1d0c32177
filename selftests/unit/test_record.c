// SPDX-License-Identifier: GPL-2.0-only
/* The files that outlive a program that is killed. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "txn/record.h"

static char dir[32];

static int make_dir(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/godwit-test-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static const char *state_in(const char *name, bool *held)
{
	static char said[64];
	json_auto_t *j = record_read(dir, name, held);
	const char *s = json_string_value(json_object_get(j, "state"));

	snprintf(said, sizeof(said), "%s", s ? s : "none");
	return said;
}

static void a_record_outlives_its_writer(void **state)
{
	struct record r, other;
	bool held = false;
	int status;
	pid_t pid = fork();

	(void)state;
	if (!pid) {
		if (record_open(&r, dir, "x") || record_write(&r, json_pack("{s:s}", "state", "prepared")))
			_exit(1);
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_string_equal(state_in("x", &held), "prepared");
	assert_false(held);

	assert_int_equal(record_open(&r, dir, "x"), 0);
	assert_int_equal(record_write(&r, json_pack("{s:s}", "state", "a much longer one than before")), 0);
	assert_int_equal(record_write(&r, json_pack("{s:s}", "state", "short")), 0);
	assert_string_equal(state_in("x", &held), "short");
	assert_true(held);
	assert_int_equal(record_open(&other, dir, "x"), -EBUSY);
	record_close(&r);
	assert_string_equal(state_in("x", &held), "short");
	assert_false(held);
	assert_int_equal(record_open(&r, dir, "x"), 0);
	record_remove(&r);
	assert_string_equal(state_in("x", &held), "none");
}

/* @holds: its writer lives */
struct of_two {
	const char *says;
	bool holds;
};

static struct record write_in(const char *sub, const struct of_two *w)
{
	struct record r;
	char path[64];

	snprintf(path, sizeof(path), "%s/%s", dir, sub);
	assert_int_equal(record_open(&r, path, "x"), 0);
	assert_int_equal(record_write(&r, json_loads(w->says, 0, NULL)), 0);
	if (!w->holds)
		record_close(&r);
	return r;
}

/* A receiver that is killed leaves one; one that takes the guest over may have another directory. */
static void the_later_record_of_two_counts(void **state)
{
	static const struct of_two each[][2] = {
		{ { "{\"state\":\"runs\",\"owing\":true}", false }, { "{\"state\":\"runs\",\"owing\":false}", false } },
		{ { "{\"state\":\"runs\",\"owing\":true}", false }, { "{\"state\":\"runs\",\"owing\":true,\"lost\":true}", false } },
		{ { "{\"state\":\"sent\",\"owing\":true}", false }, { "{\"state\":\"runs\",\"owing\":true}", true } },
		{ { "{\"state\":\"sent\",\"owing\":false}", false }, { "{\"state\":\"runs\",\"owing\":true}", true } },
		{ { "{\"state\":\"runs\",\"owing\":true}", true }, { "{\"state\":\"runs\",\"owing\":true,\"lost\":true}", false } },
	};
	char there[2][64];
	const char *const orders[][2] = { { there[0], there[1] }, { there[1], there[0] } };

	(void)state;
	snprintf(there[0], sizeof(there[0]), "%s/a", dir);
	snprintf(there[1], sizeof(there[1]), "%s/b", dir);
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		struct record r[2] = { write_in("a", &each[i][0]), write_in("b", &each[i][1]) };

		for (unsigned int order = 0; order < 2; order++) {
			bool held = !each[i][1].holds;
			json_auto_t *found = record_find_in(orders[order], 2, "x", &held);
			json_auto_t *later = json_loads(each[i][1].says, 0, NULL);

			assert_true(json_equal(found, later));
			assert_int_equal(held, each[i][1].holds);
		}
		record_close(&r[0]);
		record_close(&r[1]);
	}
}

static void strange_records_are_none(void **state)
{
	static const char *const texts[] = { "", "{", "[]", "{\"state\": 5}", "\xff\xff" };
	struct record r = RECORD_NONE;
	char path[64];
	bool held;

	(void)state;
	assert_int_equal(record_write(&r, json_object()), -EBADF);
	snprintf(path, sizeof(path), "%s/x", dir);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

		assert_int_equal(write(fd, texts[i], strlen(texts[i])), strlen(texts[i]));
		close(fd);
		assert_string_equal(state_in("x", &held), "none");
	}
	unlink(path);
	assert_int_equal(symlink("/etc/hostname", path), 0);
	assert_true(record_open(&r, dir, "x") < 0);
}

static unsigned int mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 07777;
}

/* Tokens are names there. */
static void others_do_not_look_into_the_directory(void **state)
{
	struct record r = RECORD_NONE;
	char theirs[64], own[64];

	(void)state;
	snprintf(own, sizeof(own), "%s/godwit-receive", dir);
	assert_int_equal(record_open(&r, own, "x"), 0);
	record_remove(&r);
	assert_int_equal(mode_of(own), 0700);
	/* Of an older godwit, or a unit that does not say RuntimeDirectoryMode=. */
	assert_int_equal(chmod(own, 0755), 0);
	assert_int_equal(record_open(&r, own, "x"), 0);
	record_remove(&r);
	assert_int_equal(mode_of(own), 0700);
	/* Other programs may have files there. */
	snprintf(theirs, sizeof(theirs), "%s/vm", dir);
	assert_int_equal(mkdir(theirs, 0755), 0);
	for (unsigned int bit = 1; bit < 0100; bit <<= 1) {
		assert_int_equal(chmod(theirs, 0700 | bit), 0);
		assert_int_equal(record_open(&r, theirs, "x"), -EPERM);
		assert_int_equal(r.fd, -1);
		assert_int_equal(mode_of(theirs), 0700 | bit);
	}
	assert_non_null(strstr(record_error(-EPERM), "RuntimeDirectoryMode=0700"));
	assert_string_equal(record_error(-ENOSPC), strerror(ENOSPC));
	assert_int_equal(chmod(theirs, 0700), 0);
	assert_int_equal(record_open(&r, theirs, "x"), 0);
	record_remove(&r);
	/* Nor is a link followed, whose target would be changed. */
	assert_int_equal(rmdir(own), 0);
	assert_int_equal(chmod(theirs, 0755), 0);
	assert_int_equal(symlink(theirs, own), 0);
	assert_true(record_open(&r, own, "x") < 0);
	assert_int_equal(mode_of(theirs), 0755);
	/* A service's, where root notes what it has learnt; but it must be closed. */
	if (geteuid())
		return;
	assert_int_equal(chmod(theirs, 0700), 0);
	assert_int_equal(chown(theirs, 12345, 12345), 0);
	assert_int_equal(record_open(&r, theirs, "x"), 0);
	record_remove(&r);
	assert_int_equal(chmod(theirs, 0755), 0);
	assert_int_equal(record_open(&r, theirs, "x"), -EPERM);
}

static void names_tell_processes_apart(void **state)
{
	char a[RECORD_NAME], b[RECORD_NAME];
	const uint8_t token[] = { 0, 1, 0xfe, 0xff };

	(void)state;
	assert_int_equal(record_name_vm(a, "doubt", getpid()), 0);
	assert_int_equal(record_name_vm(b, "doubt", getppid()), 0);
	assert_string_not_equal(a, b);
	assert_true(record_name_vm(a, "doubt", 0) < 0);
	record_name_verdict(a, token, sizeof(token));
	assert_string_equal(a, "verdict-0001feff");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(a_record_outlives_its_writer, make_dir, remove_dir),
	cmocka_unit_test_setup_teardown(the_later_record_of_two_counts, make_dir, remove_dir),
	cmocka_unit_test_setup_teardown(strange_records_are_none, make_dir, remove_dir),
	cmocka_unit_test_setup_teardown(others_do_not_look_into_the_directory, make_dir, remove_dir),
	cmocka_unit_test(names_tell_processes_apart),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
