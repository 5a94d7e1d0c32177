// SPDX-License-Identifier: GPL-2.0-only
/* receive --recover finds the RAM of a QEMU that does not answer, by the note of the receiver before. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "net/unix.h"
#include "page/page.h"
#include "qmp_peer.h"
#include "receive/postcopy_internal.h"
#include "receive/receiver_internal.h"
#include "run_dir.h"

#define BLOCKS	2u

static const uint64_t pages[BLOCKS] = { 4, 8 };

/* A process that maps its RAM, and has a monitor that nobody serves. */
struct silent_qemu {
	pid_t pid;
	char path[64];
	int fd[BLOCKS];
};

static void qemu_begins(struct silent_qemu *q, int backlog)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int ready[2];
	char byte;

	snprintf(q->path, sizeof(q->path), "%s/qmp", run_dir);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", q->path);
	for (unsigned int i = 0; i < BLOCKS; i++) {
		q->fd[i] = memfd_create("ram", MFD_CLOEXEC);
		assert_int_equal(ftruncate(q->fd[i], (off_t)(pages[i] * PAGE_BYTES)), 0);
	}
	assert_int_equal(pipe(ready), 0);
	q->pid = fork();
	if (!q->pid) {
		int s = socket(AF_UNIX, SOCK_STREAM, 0);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		unlink(q->path);
		for (unsigned int i = 0; i < BLOCKS; i++)
			if (mmap(NULL, pages[i] * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, q->fd[i], 0) == MAP_FAILED)
				_exit(1);
		if (bind(s, (struct sockaddr *)&a, sizeof(a)) || listen(s, backlog) || write(ready[1], "r", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
}

static void qemu_ends(struct silent_qemu *q)
{
	if (q->pid) {
		kill(q->pid, SIGKILL);
		waitpid(q->pid, NULL, 0);
	}
	q->pid = 0;
	unlink(q->path);
	for (unsigned int i = 0; i < BLOCKS; i++)
		close(q->fd[i]);
}

static struct receiver receiver_of(const struct receiver_options *o)
{
	return (struct receiver) {
		.o = o, .lfd = -1, .vm = { .pidfd = -1, .vm_fd = -1 }, .migration = { .stream = -1 }, .commit = COMMIT_PREPARED,
		.postcopy = POSTCOPY_NONE, .record = RECORD_NONE, .claim = CLAIM_NONE, .at = QMP_PLACE_NONE,
	};
}

/* The receiver before, whose sender numbers the second file first. */
static struct receiver the_one_before(const struct receiver_options *o, const struct silent_qemu *q)
{
	struct receiver r = receiver_of(o);

	r.vm.pid = q->pid;
	r.vm.nblocks = BLOCKS;
	r.save_mode = true;
	assert_int_equal(record_name_vm(r.vmm, "doubt", q->pid), 0);
	for (unsigned int i = 0; i < BLOCKS; i++) {
		struct ram_block *b = &r.vm.blocks[i];
		struct stat st;

		assert_int_equal(fstat(q->fd[BLOCKS - 1 - i], &st), 0);
		*b = (struct ram_block) {
			.pages = pages[BLOCKS - 1 - i], .address = i ? WIRE_NO_ADDRESS : 1ull << 32, .memfd = true, .ivshmem = i,
			.page_size = PAGE_BYTES, .fd = -1, .dev = st.st_dev, .ino = st.st_ino,
		};
		snprintf(b->name, sizeof(b->name), "quote\"%u", i);
	}
	return r;
}

static void it_finds_what_was_noted(void **state)
{
	struct silent_qemu q;
	struct receiver_options o = { .recover = true, .timeout_ms = 1000, .qmp_path = q.path };
	struct receiver before, after = receiver_of(&o);
	struct err e = { 0 };

	(void)state;
	qemu_begins(&q, 16);
	before = the_one_before(&o, &q);
	assert_int_equal(kept_ram_find(&after, &e), 0);
	kept_ram_note(&before);
	assert_int_equal(kept_ram_find(&after, &e), 1);
	assert_null(after.qmp);
	assert_true(after.save_mode && after.numbered);
	assert_string_equal(after.vmm, before.vmm);
	assert_int_equal(after.vm.pid, q.pid);
	assert_int_equal(after.vm.nblocks, BLOCKS);
	for (unsigned int i = 0; i < BLOCKS; i++) {
		const struct ram_block *b = &after.vm.blocks[i], *was = &before.vm.blocks[i];
		struct stat st;

		assert_string_equal(b->name, was->name);
		assert_int_equal(fstat(b->fd, &st), 0);
		assert_true(st.st_ino == was->ino && st.st_dev == was->dev);
		assert_true(b->pages == was->pages && b->address == was->address && b->page_size == PAGE_BYTES);
		assert_true(b->memfd && b->ivshmem == was->ivshmem && !b->hugetlb && !b->hva);
	}
	/* And nobody else does, meanwhile. */
	assert_true(after.claim.process >= 0 || after.claim.lock.fd >= 0);
	claim_drop(&after.claim, &after.vm);
	vm_close(&after.vm);
	kept_ram_forget(&after);
	assert_int_equal(kept_ram_find(&after, &e), 0);
	assert_int_equal(e.exit, GW_OK);
	qemu_ends(&q);
}

/*
 * As many clients wait at its monitor as it lets, also when they have gone: each receiver that tried was one. Which process
 * listens is noted with the socket, and not found at another.
 */
static void its_monitor_takes_no_more(void **state)
{
	struct silent_qemu q;
	struct receiver_options o = { .recover = true, .timeout_ms = 300, .qmp_path = q.path };
	struct receiver before, after = receiver_of(&o);
	struct err e = { 0 };
	char moved[80];

	(void)state;
	qemu_begins(&q, 1);
	before = the_one_before(&o, &q);
	before.at = (struct qmp_place) { .path = q.path, .socket = sock_unix_hold(q.path), .vmm = q.pid };
	kept_ram_note(&before);
	for (unsigned int i = 0; i < 3; i++) {
		int client = sock_unix_connect(q.path);

		assert_true(i < 2 ? client >= 0 : client == -EAGAIN);
		close(client);
	}
	assert_int_equal(kept_ram_find(&after, &e), 1);
	assert_int_equal(after.vm.pid, q.pid);
	assert_int_equal(after.at.vmm, q.pid);
	claim_drop(&after.claim, &after.vm);
	vm_close(&after.vm);
	qmp_place_forget(&after.at);
	/* A QEMU that nothing is known of has the path. */
	snprintf(moved, sizeof(moved), "%s.old", q.path);
	assert_return_code(rename(q.path, moved), errno);
	assert_return_code(close(sock_unix_listen(q.path, 1)), errno);
	after = receiver_of(&o);
	assert_int_equal(kept_ram_find(&after, &e), 0);
	unlink(moved);
	qmp_place_forget(&before.at);
	kept_ram_forget(&before);
	qemu_ends(&q);
}

/* It says of what file the note is, and the process has another one there now: nothing is guessed. */
static void another_file(void **state)
{
	struct silent_qemu q;
	struct receiver_options o = { .recover = true, .timeout_ms = 1000, .qmp_path = q.path };
	struct receiver before, after = receiver_of(&o);
	struct err e = { 0 };

	(void)state;
	qemu_begins(&q, 16);
	before = the_one_before(&o, &q);
	before.vm.blocks[0].ino++;
	before.vm.blocks[1].ino += 2;
	kept_ram_note(&before);
	assert_true(kept_ram_find(&after, &e) < 0);
	assert_int_equal(e.exit, GW_RAM_DIFFERS);
	/* When QEMU has exited its note can still be taken away. */
	qemu_ends(&q);
	kept_ram_forget(&before);
}

/*
 * It hangs for long, and another QEMU is started with its path, which the receiver is to ask when all RAM is there: it asks
 * the first, or none.
 */
static void another_qemu_has_its_path(void **state)
{
	struct silent_qemu q;
	struct receiver_options o = { .recover = true, .timeout_ms = 1000, .qmp_path = q.path };
	struct receiver before, after = receiver_of(&o);
	struct peer answers;
	struct err e = { 0 };

	(void)state;
	qemu_begins(&q, 16);
	before = the_one_before(&o, &q);
	kept_ram_note(&before);
	assert_int_equal(kept_ram_find(&after, &e), 1);
	/* As long as the first one listens, the other is not seen at all. */
	assert_int_equal(peer_start(&answers, peer_serve, NULL, 4), 0);
	assert_return_code(rename(answers.path, q.path), errno);
	postcopy_monitor(&after, 200);
	assert_null(after.qmp);
	/* Then it is, by its number. */
	kill(q.pid, SIGKILL);
	waitpid(q.pid, NULL, 0);
	q.pid = 0;
	postcopy_monitor(&after, 1000);
	assert_null(after.qmp);
	peer_stop(&answers);
	assert_string_equal(answers.line, "");
	claim_drop(&after.claim, &after.vm);
	vm_close(&after.vm);
	qmp_place_forget(&after.at);
	kept_ram_forget(&before);
	qemu_ends(&q);
}

/*
 * The operator names a process, and the monitor of another QEMU. That is not asked for anything: its guest's end would be taken for
 * this one's. It may go by a relay only if that is the one by which the receiver before went.
 */
static void a_monitor_of_another_qemu(void **state)
{
	enum { ITS_OWN, NOT_NOTED, BY_A_RELAY, BY_THIS_RELAY, CASES };

	(void)state;
	for (int i = 0; i < CASES; i++) {
		static const struct peer_answer runs[] = { { "query-status", "", "{\"status\": \"running\"}" }, { 0 } };
		struct silent_qemu q;
		struct receiver_options o = { .recover = true, .timeout_ms = 1000 };
		struct receiver before, after;
		struct peer answers;
		struct err e = { 0 };

		qemu_begins(&q, 16);
		/* This process, which is not that QEMU. */
		assert_int_equal(peer_start(&answers, peer_serve, runs, 4), 0);
		o.pid = q.pid;
		o.qmp_path = answers.path;
		before = the_one_before(&o, &q);
		if (i != NOT_NOTED)
			before.at = (struct qmp_place) {
				.path = q.path, .vmm = i == ITS_OWN ? q.pid : 0,
				.socket = sock_unix_hold(i == BY_THIS_RELAY ? answers.path : q.path),
			};
		kept_ram_note(&before);
		after = receiver_of(&o);
		assert_int_equal(kept_ram_find(&after, &e), 1);
		assert_int_equal(after.vm.pid, q.pid);
		assert_int_equal(after.at.vmm, i == BY_THIS_RELAY ? 0 : q.pid);
		postcopy_monitor(&after, 1000);
		assert_int_equal(after.qmp != NULL, i == BY_THIS_RELAY);
		assert_int_equal(after.at_stranger, i != BY_THIS_RELAY);
		assert_int_equal(after.ran, i == BY_THIS_RELAY);
		/* A client that waits there takes up a place of that QEMU's. */
		if (i != BY_THIS_RELAY) {
			pthread_join(answers.thread, NULL);
			answers.script = NULL;
			postcopy_monitor(&after, 1000);
			assert_int_equal(poll(&(struct pollfd) { .fd = answers.listener, .events = POLLIN }, 1, 0), 0);
		}
		qmp_close(after.qmp);
		peer_stop(&answers);
		if (i != BY_THIS_RELAY)
			assert_string_equal(answers.line, "");
		claim_drop(&after.claim, &after.vm);
		vm_close(&after.vm);
		qmp_place_forget(&after.at);
		qmp_place_forget(&before.at);
		kept_ram_forget(&before);
		qemu_ends(&q);
	}
}

/* Then QEMU is asked, as long as it takes. */
static void no_note_that_makes_sense(void **state)
{
	static const char *const each[] = {
		"{}", "{\"blocks\":[]}", "{\"blocks\":7}", "{\"blocks\":[{}]}", "{\"blocks\":[{\"name\":\"ram\",\"dev\":1,\"ino\":2}]}",
	};
	struct silent_qemu q;
	struct receiver_options o = { .recover = true, .timeout_ms = 1000, .qmp_path = q.path };
	struct receiver r = receiver_of(&o);
	struct err e = { 0 };
	char name[RECORD_NAME];

	(void)state;
	qemu_begins(&q, 16);
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		struct record rec;

		assert_int_equal(record_name_vm(name, "ram", q.pid), 0);
		assert_int_equal(record_open(&rec, run_dir, name), 0);
		assert_int_equal(record_write(&rec, json_loads(each[i], 0, NULL)), 0);
		record_close(&rec);
		assert_int_equal(kept_ram_find(&r, &e), 0);
		assert_int_equal(e.exit, GW_OK);
	}
	kept_ram_forget(&r);
	qemu_ends(&q);
	assert_int_equal(kept_ram_find(&r, &e), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_finds_what_was_noted),
		cmocka_unit_test(its_monitor_takes_no_more),
		cmocka_unit_test(another_file),
		cmocka_unit_test(another_qemu_has_its_path),
		cmocka_unit_test(a_monitor_of_another_qemu),
		cmocka_unit_test(no_note_that_makes_sense),
	};

	return cmocka_run_group_tests(tests, run_dir_make, run_dir_remove);
}
