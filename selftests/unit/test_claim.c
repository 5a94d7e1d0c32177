// SPDX-License-Identifier: GPL-2.0-only
/* One migration a VM: its locks, which process holds them and until when; and the mark in QEMU. */
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
#include "run_dir.h"
#include "txn/mark.h"

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

/* One file, found by two programs. */
struct two {
	struct claim a, b;
	struct vm one, other;
	struct err e;
	int file;
};

static void begin(struct two *t)
{
	*t = (struct two) { .a = CLAIM_NONE, .b = CLAIM_NONE, .file = memfd_create("ram", 0) };
	find(&t->one, t->file);
	find(&t->other, t->file);
	assert_int_equal(claim_take(&t->a, &t->one, &t->e), 0);
}

static void end(struct two *t)
{
	claim_drop(&t->b, &t->other);
	close(t->other.blocks[0].fd);
	close(t->file);
}

static void test_one_at_a_time(void **state)
{
	struct two t;

	(void)state;
	begin(&t);
	assert_true(claim_take(&t.b, &t.other, &t.e) < 0);
	assert_int_equal(t.e.exit, GW_BUSY);
	claim_drop(&t.b, &t.other);
	claim_drop(&t.a, &t.one);
	close(t.one.blocks[0].fd);
	assert_int_equal(claim_take(&t.b, &t.other, &t.e), 0);
	end(&t);
}

/* Another VM's, or the same VM's, seen from where the locks' directory is another one. */
static void test_one_for_each_file(void **state)
{
	struct two t;

	(void)state;
	begin(&t);
	t.other.pid = getppid();
	assert_true(claim_take(&t.b, &t.other, &t.e) < 0);
	assert_int_equal(t.e.exit, GW_BUSY);
	assert_non_null(strstr(t.e.text, "\"ram0\""));
	claim_drop(&t.a, &t.one);
	close(t.one.blocks[0].fd);
	end(&t);
}

/* A file that two VMs map privately, and memory without a file: only the locks of the VM itself count. */
static void test_private_ram(void **state)
{
	int fds[CLAIM_FDS_MAX];
	struct two t;

	(void)state;
	t = (struct two) { .a = CLAIM_NONE, .b = CLAIM_NONE, .file = memfd_create("ram", 0) };
	find(&t.one, t.file);
	find(&t.other, t.file);
	t.one.blocks[0].hva = t.other.blocks[0].hva = 4096;
	t.one.blocks[1] = (struct ram_block) { .name = "ram1", .hva = 8192, .fd = -1 };
	t.one.nblocks = 2;
	assert_int_equal(claim_take(&t.a, &t.one, &t.e), 0);
	assert_int_equal(claim_fds(&t.a, &t.one, fds), 2);
	t.other.pid = getppid();
	assert_int_equal(claim_take(&t.b, &t.other, &t.e), 0);
	claim_drop(&t.a, &t.one);
	close(t.one.blocks[0].fd);
	end(&t);
}

/* Where the locks' directory is another one, and there is no RAM file. */
static void test_one_for_each_process(void **state)
{
	char elsewhere[] = "/tmp/godwit-claim-XXXXXX";
	struct claim a = CLAIM_NONE, b = CLAIM_NONE;
	struct err e = { 0 };
	pid_t child;

	(void)state;
	assert_non_null(mkdtemp(elsewhere));
	child = fork();
	if (!child) {
		pause();
		_exit(0);
	}
	assert_int_equal(claim_process(&a, child, &e), 0);
	setenv("RUNTIME_DIRECTORY", elsewhere, 1);
	assert_true(claim_process(&b, child, &e) < 0);
	assert_int_equal(e.exit, GW_BUSY);
	claim_drop(&b, NULL);
	claim_drop(&a, NULL);
	assert_int_equal(claim_process(&b, child, &e), 0);
	claim_drop(&b, NULL);
	/* Of no process there is nothing to lock, and nothing to say: godwit fails elsewhere. */
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_int_equal(claim_process(&b, child, &e), 0);
	assert_int_equal(claim_fds(&b, &(struct vm) { 0 }, (int[CLAIM_FDS_MAX]) { 0 }), 0);
	setenv("RUNTIME_DIRECTORY", run_dir, 1);
	assert_int_equal(rmdir(elsewhere), 0);
}

/* As a guardian does it: its copies count, and so does its end. */
static void test_a_child_keeps_it(void **state)
{
	int fds[CLAIM_FDS_MAX];
	struct two t;
	pid_t child;

	(void)state;
	begin(&t);
	assert_int_equal(claim_fds(&t.a, &t.one, fds), 3);
	child = fork();
	if (!child) {
		sleep(60);
		_exit(0);
	}
	claim_leave(&t.a);
	close(t.one.blocks[0].fd);
	assert_true(claim_take(&t.b, &t.other, &t.e) < 0);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	assert_int_equal(claim_take(&t.b, &t.other, &t.e), 0);
	end(&t);
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

	/* Every client of QEMU sees it. No second one is made, and only the journal that made it removes it. */
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

	/* A guest that has come, and not all of its RAM. */
	assert_int_equal(mark_make(q, "0123456789abcdef", MARK_HERE, &e), 0);
	assert_true(claim_check_mark(q, &e) < 0);
	assert_int_equal(e.exit, GW_BUSY);
	e = (struct err) { 0 };
	assert_int_equal(mark_remove(q, "0123456789abcdef", &e), 0);
	assert_int_equal(claim_check_mark(q, &e), 0);
	/* Its address is to be shown only. */
	assert_int_equal(mark_make(q, "0123456789abcdef", "unix:/\xff", &e), 0);
	assert_int_equal(mark_remove(q, "0123456789abcdef", &e), 0);
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
		cmocka_unit_test(test_private_ram),
		cmocka_unit_test(test_one_for_each_process),
		cmocka_unit_test(test_a_child_keeps_it),
		cmocka_unit_test(test_mark),
	};

	return cmocka_run_group_tests(tests, run_dir_make, run_dir_remove);
}
