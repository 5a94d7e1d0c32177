// SPDX-License-Identifier: GPL-2.0-only
/* One migration a VM: its locks, who holds them and until when; and the mark in QEMU. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "claim/claim.h"
#include "qmp_peer.h"
#include "txn/mark.h"

static char dir[] = "/tmp/godwit-claim-XXXXXX";

/* A VM of this process's, in that file, as another program would find it. */
static void find(struct vm *vm, int file)
{
	char path[64];

	memset(vm, 0, sizeof(*vm));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	vm->pid = getpid();
	vm->nblocks = 1;
	strcpy(vm->blocks[0].name, "ram0");
	vm->blocks[0].fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(vm->blocks[0].fd >= 0);
}

static int setup(void **state)
{
	(void)state;
	return !mkdtemp(dir) || setenv("RUNTIME_DIRECTORY", dir, 1);
}

static int teardown(void **state)
{
	(void)state;
	return rmdir(dir);	/* nothing is left in it */
}

static void test_one_at_a_time(void **state)
{
	struct claim a = CLAIM_NONE, b = CLAIM_NONE;
	int file = memfd_create("ram", 0);
	struct err e = { 0 };
	struct vm one, two;

	(void)state;
	find(&one, file);
	find(&two, file);
	assert_int_equal(claim_take(&a, &one, &e), 0);
	assert_true(claim_take(&b, &two, &e) < 0);
	assert_int_equal(e.exit, GW_BUSY);
	claim_drop(&b, &two);
	claim_drop(&a, &one);
	assert_int_equal(claim_take(&b, &two, &e), 0);
	claim_drop(&b, &two);
	close(one.blocks[0].fd);
	close(two.blocks[0].fd);
	close(file);
}

/* Another VM's, or the same VM's, seen from where the locks' directory is another one. */
static void test_one_for_each_file(void **state)
{
	struct claim a = CLAIM_NONE, b = CLAIM_NONE;
	int file = memfd_create("ram", 0);
	struct err e = { 0 };
	struct vm one, two;

	(void)state;
	find(&one, file);
	find(&two, file);
	assert_int_equal(claim_take(&a, &one, &e), 0);
	two.pid = getppid();
	assert_true(claim_take(&b, &two, &e) < 0);
	assert_int_equal(e.exit, GW_BUSY);
	assert_non_null(strstr(e.text, "\"ram0\""));
	claim_drop(&b, &two);
	claim_drop(&a, &one);
	close(one.blocks[0].fd);
	close(two.blocks[0].fd);
	close(file);
}

/* As a guardian does it: its copies count, and so does its end. */
static void test_a_child_keeps_it(void **state)
{
	struct claim a = CLAIM_NONE, b = CLAIM_NONE;
	int file = memfd_create("ram", 0), fds[CLAIM_FDS_MAX];
	struct err e = { 0 };
	struct vm one, two;
	pid_t child;

	(void)state;
	find(&one, file);
	find(&two, file);
	assert_int_equal(claim_take(&a, &one, &e), 0);
	assert_int_equal(claim_fds(&a, &one, fds), 2);
	child = fork();
	if (!child) {
		sleep(60);
		_exit(0);
	}
	claim_leave(&a);
	close(one.blocks[0].fd);
	assert_true(claim_take(&b, &two, &e) < 0);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_int_equal(claim_take(&b, &two, &e), 0);
	claim_drop(&b, &two);
	close(two.blocks[0].fd);
	close(file);
}

/**
 * struct qemu - as far as objects go
 * @data: of the mark; "": there is none
 */
struct qemu {
	struct peer peer;
	char data[128];
};

static void serve(struct peer *p)
{
	struct qemu *qemu = (struct qemu *)((char *)p - offsetof(struct qemu, peer));
	char text[256], *data;

	peer_negotiate(p);
	while (peer_line(p)) {
		if (strstr(p->line, "\"qom-list\"")) {
			snprintf(text, sizeof(text), "[{\"name\": \"type\"}%s]", *qemu->data ? ", {\"name\": \"" MARK_ID "\"}" : "");
			peer_reply(p, "return", text);
		} else if (strstr(p->line, "\"qom-get\"")) {
			snprintf(text, sizeof(text), "\"%s\"", qemu->data);
			peer_reply(p, "return", text);
		} else if (strstr(p->line, "\"object-add\"") && *qemu->data) {
			peer_reply(p, "error", "{\"class\": \"GenericError\", \"desc\": \"attempt to add duplicate property\"}");
		} else if ((data = strstr(p->line, "\"data\":\""))) {
			data += strlen("\"data\":\"");
			snprintf(qemu->data, sizeof(qemu->data), "%.*s", (int)strcspn(data, "\""), data);
			peer_reply(p, "return", "{}");
		} else {
			assert_non_null(strstr(p->line, "\"object-del\""));
			qemu->data[0] = '\0';
			peer_reply(p, "return", "{}");
		}
	}
}

static void test_mark(void **state)
{
	struct qemu *qemu = mmap(NULL, sizeof(*qemu), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct journal j = { .pipe = -1 }, other = { .pipe = -1 };
	struct err e = { 0 };
	struct qmp *q;

	(void)state;
	assert_int_equal(peer_start(&qemu->peer, serve, NULL, 4), 0);
	assert_int_equal(qmp_open(qemu->peer.path, 2000, &q, &e), 0);
	assert_int_equal(journal_open(&j, &e), 0);
	assert_int_equal(journal_open(&other, &e), 0);
	assert_int_equal(claim_check_mark(q, &e), 0);
	assert_int_equal(claim_mark(q, &j, "host:4433", &e), 0);

	/* It is there for all to see, and another one is not made, nor is this one taken away by who did not make it. */
	assert_true(claim_check_mark(q, &e) < 0);
	assert_int_equal(e.exit, GW_VM_STATE);
	assert_non_null(strstr(e.text, "host:4433"));
	e = (struct err) { 0 };
	assert_true(claim_mark(q, &other, "elsewhere:4433", &e) < 0);
	assert_int_equal(json_array_size(other.records), 0);
	e = (struct err) { 0 };
	assert_int_equal(journal_mark(&other, "0123456789abcdef", &e), 0);
	assert_int_equal(journal_undo(&other, q, UNDO_ALL, &e), 0);
	assert_true(claim_check_mark(q, &e) < 0);

	/* A guest that has moved keeps it, and one that has not does not. */
	e = (struct err) { 0 };
	assert_int_equal(journal_undo(&j, q, UNDO_SETTINGS, &e), 0);
	assert_true(claim_check_mark(q, &e) < 0);
	e = (struct err) { 0 };
	journal_close(&j);
	assert_int_equal(journal_open(&j, &e), 0);
	assert_int_equal(mark_remove(q, "", &e), 0);
	assert_int_equal(claim_mark(q, &j, "host:4433", &e), 0);
	assert_int_equal(journal_undo(&j, q, UNDO_ALL, &e), 0);
	assert_int_equal(claim_check_mark(q, &e), 0);
	journal_close(&j);
	journal_close(&other);
	qmp_close(q);
	peer_stop(&qemu->peer);
	munmap(qemu, sizeof(*qemu));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_at_a_time),
		cmocka_unit_test(test_one_for_each_file),
		cmocka_unit_test(test_a_child_keeps_it),
		cmocka_unit_test(test_mark),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
