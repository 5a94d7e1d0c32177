// SPDX-License-Identifier: GPL-2.0-only
/*
 * The end of a post-copy at the destination, and a receiver that is killed before each of its steps. What the module keeps, QEMU's
 * mark, the note and the record are what is left of it then: a receiver that is started for this QEMU, or is asked by the sender,
 * must end all of that, and must wait for a sender only if that one may still have something to send.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <cmocka.h>

#include "kernel/device.h"
#include "receive/receiver_internal.h"
#include "run_dir.h"
#include "txn/mark.h"

static const uint8_t token[WIRE_SECRET] = "the guest's own";

/**
 * struct left - what is there besides files
 * @kept: the module keeps page faults, which wait
 * @mark: in QEMU
 * @steps: until the receiver is killed; 0: it is not
 */
static struct left {
	bool kept, waits, mark;
	unsigned int steps;
} *left;

static pid_t qemu;
static bool takes_over;
static unsigned int waited_for_sender;

int __wrap_device_open(struct err *e);
int __wrap_vm_find_kvm(struct vm *vm, struct err *e);
int __wrap_device_attach(int dev, int vm_fd, struct err *e);
int __wrap_device_keep(int dev, const uint8_t with[GODWIT_TOKEN_BYTES], bool take, struct err *e);
int __wrap_device_keep_end(int dev, struct err *e);
void __wrap_lazy_unregister(struct lazy_ram *l);
bool __wrap_postcopy_unmark(struct receiver *r);
void __wrap_postcopy_monitor(struct receiver *r, unsigned int ms);
int __wrap_record_write(struct record *r, json_t *j);
void __wrap_record_forget(const char *name);
int __wrap_mark_read(struct qmp *q, char target[MARK_MAX], struct err *e);
int __wrap_migration_vm_status(struct qmp *q, char *buf, size_t len, struct err *e);
int __wrap_vm_find_known(pid_t pid, const struct ram_block *known, unsigned int n, struct vm *vm, struct err *e);
int __wrap_claim_take(struct claim *c, struct vm *vm, struct err *e);
void __wrap_claim_drop(struct claim *c, struct vm *vm);
int __wrap_receiver_find(struct receiver *r, struct err *e);
int __wrap_mtree_query(struct qmp *q, struct vm *vm, struct err *e);
int __wrap_ram_find_ivshmem(struct qmp *q, struct vm *vm, struct err *e);
int __wrap_receiver_listen(struct receiver *r, struct err *e);
int __wrap_receiver_wait_again(struct receiver *r, uint64_t until, receiver_serve_fn *serve, struct err *e);
int __real_record_write(struct record *r, json_t *j);
void __real_record_forget(const char *name);

/* Before each thing that changes anything. */
static void step(void)
{
	if (left->steps && !--left->steps)
		raise(SIGKILL);
}

int __wrap_device_open(struct err *e)
{
	(void)e;
	return open("/dev/null", O_RDWR | O_CLOEXEC);
}

static bool no_kvm, other_session;

int __wrap_vm_find_kvm(struct vm *vm, struct err *e)
{
	if (no_kvm)
		return err_set(e, GW_VM_STATE, ENOENT, "there is no KVM");
	vm->vm_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	return 0;
}

/* In the module's order. */
int __wrap_device_attach(int dev, int vm_fd, struct err *e)
{
	assert_true(dev >= 0 && vm_fd >= 0);
	if (left->kept)
		return err_set(e, GW_INCOMPLETE, EINPROGRESS, "it may lack RAM");
	return other_session ? err_set(e, GW_BUSY, EBUSY, "another session") : 0;
}

int __wrap_device_keep(int dev, const uint8_t with[GODWIT_TOKEN_BYTES], bool take, struct err *e)
{
	assert_true(dev >= 0 && take && !memcmp(with, token, sizeof(token)));
	return left->kept ? 1 : err_set(e, GW_NO_MIGRATION, ENOENT, "none is kept");
}

int __wrap_device_keep_end(int dev, struct err *e)
{
	(void)dev, (void)e;
	step();
	left->kept = left->waits = false;
	return 0;
}

void __wrap_lazy_unregister(struct lazy_ram *l)
{
	(void)l;
	step();
	/* Of one that has taken over without the sender nothing is registered. */
	left->waits &= takes_over && !waited_for_sender;
}

bool __wrap_postcopy_unmark(struct receiver *r)
{
	(void)r;
	/* QEMU may wait for a page as long as that. */
	assert_false(left->waits);
	step();
	left->mark = false;
	return true;
}

void __wrap_postcopy_monitor(struct receiver *r, unsigned int ms)
{
	(void)r, (void)ms;
}

int __wrap_record_write(struct record *r, json_t *j)
{
	step();
	return __real_record_write(r, j);
}

void __wrap_record_forget(const char *name)
{
	step();
	__real_record_forget(name);
}

int __wrap_mark_read(struct qmp *q, char target[MARK_MAX], struct err *e)
{
	(void)q, (void)e;
	strcpy(target, left->mark ? MARK_HERE : "");
	return left->mark;
}

int __wrap_migration_vm_status(struct qmp *q, char *buf, size_t len, struct err *e)
{
	(void)q, (void)e;
	snprintf(buf, len, "running");
	return 0;
}

int __wrap_vm_find_known(pid_t pid, const struct ram_block *known, unsigned int n, struct vm *vm, struct err *e)
{
	(void)known, (void)e;
	vm->pid = pid;
	return n == 1 ? 0 : -EINVAL;
}

int __wrap_claim_take(struct claim *c, struct vm *vm, struct err *e)
{
	(void)c, (void)vm, (void)e;
	return 0;
}

void __wrap_claim_drop(struct claim *c, struct vm *vm)
{
	(void)c, (void)vm;
}

int __wrap_receiver_find(struct receiver *r, struct err *e)
{
	(void)e;
	r->vm.pid = qemu;
	return record_name_vm(r->vmm, "doubt", qemu);
}

int __wrap_mtree_query(struct qmp *q, struct vm *vm, struct err *e)
{
	(void)q, (void)vm, (void)e;
	return 0;
}

int __wrap_ram_find_ivshmem(struct qmp *q, struct vm *vm, struct err *e)
{
	(void)q, (void)vm, (void)e;
	return 0;
}

int __wrap_receiver_listen(struct receiver *r, struct err *e)
{
	(void)r, (void)e;
	return 0;
}

/* It comes, and all that it owed has come. */
int __wrap_receiver_wait_again(struct receiver *r, uint64_t until, receiver_serve_fn *serve, struct err *e)
{
	(void)until, (void)serve, (void)e;
	waited_for_sender++;
	memcpy(r->token, token, sizeof(token));
	r->postcopy.dev = __wrap_device_open(e);
	/* So it is owed, by the record, until the end. */
	r->postcopy.taken = r->postcopy.begun = true;
	return 1;
}

static struct receiver receiver_of(const struct receiver_options *o)
{
	return (struct receiver) {
		.o = o, .lfd = -1, .vm = { .pid = qemu, .pidfd = -1, .vm_fd = -1 }, .migration = { .stream = -1 }, .commit = COMMIT_RUNS,
		.postcopy = POSTCOPY_NONE, .record = RECORD_NONE, .claim = CLAIM_NONE,
	};
}

/* Its guest runs, and the last page has come: it ends, or is killed on the way. Return: it was. */
static bool first_receiver(unsigned int steps, bool note)
{
	const struct receiver_options o = { .timeout_ms = 1000, .qmp_path = "/tmp/godwit-none" };
	pid_t child = fork();
	int status;

	if (!child) {
		struct receiver r = receiver_of(&o);
		struct err e = { 0 };

		memcpy(r.token, token, sizeof(token));
		record_name_vm(r.vmm, "doubt", qemu);
		r.vm.nblocks = 1;
		r.verdicts = r.postcopy.begun = true;
		r.postcopy.lazy.owed.left = 1;
		verdict_open(&r);
		if (note)
			kept_ram_note(&r);
		r.postcopy.dev = __wrap_device_open(&e);
		r.postcopy.lazy.owed.left = 0;
		left->steps = steps;
		_exit(postcopy_finish(&r, &e) != 0);
	}
	waitpid(child, &status, 0);
	left->steps = 0;
	assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
	return WIFSIGNALED(status);
}

static bool is_noted(void)
{
	char name[RECORD_NAME], path[256];

	record_name_vm(name, "ram", qemu);
	snprintf(path, sizeof(path), "%s/%s", run_dir, name);
	return !access(path, F_OK);
}

static bool is_whole(void)
{
	json_auto_t *whole = verdict_whole(token);

	return whole;
}

static void no_files(void)
{
	char name[RECORD_NAME];

	record_name_verdict(name, token, sizeof(token));
	record_forget(name);
	record_name_vm(name, "ram", qemu);
	record_forget(name);
}

/* Each moment of a death, with a note and where none could be made. Return: false: it is not killed any more. */
static bool dies(unsigned int steps, bool note)
{
	*left = (struct left) { .kept = true, .waits = true, .mark = true };
	return first_receiver(steps, note);
}

static int take_over(struct receiver *r, struct err *e)
{
	const struct receiver_options o = { .timeout_ms = 1000, .qmp_path = "/tmp/godwit-none", .recover = true, .pid = qemu };
	int ret;

	*r = receiver_of(&o);
	takes_over = true;
	waited_for_sender = 0;
	ret = recover_take_over(r, e);
	takes_over = false;
	record_close(&r->record);
	if (r->postcopy.dev >= 0)
		close(r->postcopy.dev);
	return ret;
}

/* One that takes over is killed as well. false: it is not. */
static bool dies_too(unsigned int steps)
{
	pid_t child = fork();
	int status;

	if (!child) {
		struct receiver r;
		struct err e = { 0 };

		left->steps = steps;
		take_over(&r, &e);
		_exit(0);
	}
	waitpid(child, &status, 0);
	left->steps = 0;
	return WIFSIGNALED(status);
}

static void the_last_one_ends_it(bool note)
{
	const bool whole = is_whole(), rest = left->kept || left->mark || is_noted();
	struct receiver r;
	struct err e = { 0 };
	int ret;

	/* None is left of which only the module knows. */
	assert_true(!left->kept || left->mark || is_noted() || !note);
	ret = take_over(&r, &e);
	if (rest) {
		assert_int_equal(ret, 0);
		assert_true(r.whole && is_whole() && !memcmp(r.token, token, sizeof(token)));
		/* Who knows that all is here need not come. */
		assert_int_equal(waited_for_sender, !whole);
	} else {
		assert_int_equal(e.exit, GW_NO_MIGRATION);
	}
	assert_false(left->kept || left->waits || left->mark || is_noted());
	no_files();
}

static void another_takes_over(void **state)
{
	unsigned int deaths = 0, again;

	(void)state;
	for (unsigned int note = 0; note < 2; note++) {
		for (unsigned int steps = 1; dies(steps, note); steps++) {
			the_last_one_ends_it(note);
			for (again = 1; dies(steps, note) && dies_too(again); again++)
				the_last_one_ends_it(note);
			no_files();
			deaths += again;
		}
		no_files();
	}
	assert_in_range(deaths, 30, 200);
}

/* And where a receiver for another guest is asked by the sender: that tells it so, and ends what is kept. */
static void its_sender_asks_another_one(void **state)
{
	(void)state;
	for (unsigned int steps = 1; dies(steps, true); steps++) {
		json_auto_t *whole = verdict_whole(token);
		const bool kept = left->kept;
		struct err e = { 0 };

		if (whole)
			assert_int_equal(kept_ram_end(token, whole, &e), 0);
		assert_int_equal(left->kept, kept && !whole);
		assert_true(!whole || !is_noted());
		no_files();
	}
	no_files();
}

/* It was whole, and its monitor could not be reached: a mark is all that is left. No sender would come, and none is waited for. */
static void only_a_mark_is_left(void **state)
{
	static const struct {
		bool kept, no_kvm, other_session, record, waits;
	} each[] = {
		{ .kept = false }, { .other_session = true }, { .kept = true, .waits = true }, { .no_kvm = true, .waits = true },
		{ .record = true, .waits = true },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
		struct receiver r;
		struct err e = { 0 };
		int ret;

		*left = (struct left) { .kept = each[i].kept, .mark = true };
		no_kvm = each[i].no_kvm;
		other_session = each[i].other_session;
		if (each[i].record) {
			assert_true(dies(1, false));
			left->kept = false;
			assert_false(is_whole());
		}
		ret = take_over(&r, &e);
		assert_int_equal(waited_for_sender, each[i].waits);
		if (!each[i].waits) {
			assert_true(ret < 0 && e.exit == GW_NO_MIGRATION);
			assert_non_null(strstr(e.text, "\"godwit resolve --forget\" does"));
			assert_true(left->mark);
		}
		assert_int_equal(r.vm.vm_fd, -1);
		no_files();
	}
	no_kvm = other_session = false;
}

static int begin(void **state)
{
	left = mmap(NULL, sizeof(*left), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	qemu = fork();
	if (!qemu) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	return run_dir_make(state);
}

static int end(void **state)
{
	kill(qemu, SIGKILL);
	waitpid(qemu, NULL, 0);
	return run_dir_remove(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_takes_over),
		cmocka_unit_test(its_sender_asks_another_one),
		cmocka_unit_test(only_a_mark_is_left),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
