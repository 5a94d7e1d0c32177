/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The source's VM and its note, and what `godwit resolve` makes of both when a receiver answers. Link with the --wrap of what is
 * wrapped here and in answering.h; include after cmocka.h.
 */
#ifndef GODWIT_DOUBT_RIG_H
#define GODWIT_DOUBT_RIG_H

#include <unistd.h>

#include "answering.h"
#include "doubt/resolve.h"

#define NOTE	"\"receiver\":\"unix:/nowhere\",\"token\":\"verdict-000102030405060708090a0b0c0d0e0f\",\"undo\":[{\"kept\":1}]"
#define PLACE	(4ull << 30)	/* of its RAM in the guest */
#define NEVER	((enum undo_what)-1)

static char dir[] = "/tmp/godwit-doubt-XXXXXX";
static bool running;	/* here */
static const char *vm_status = "postmigrate";
static int has_disk;
static struct migration_status last;	/* QEMU's last migration */

/* The VM is this process, and its notes are the test's. */
int __wrap_qmp_open(const char *path, unsigned int timeout_ms, struct qmp **out, struct err *e);
void __wrap_qmp_close(struct qmp *q);
int __wrap_vm_find(struct qmp *q, pid_t pid, unsigned int flags, struct vm *vm, struct err *e);
void __wrap_vm_close(struct vm *vm);
int __wrap_mtree_query(struct qmp *q, struct vm *vm, struct err *e);
int __wrap_claim_take(struct claim *c, struct vm *vm, struct err *e);
void __wrap_claim_drop(struct claim *c, struct vm *vm);
int __wrap_migration_running(struct qmp *q, bool *runs, struct err *e);
int __wrap_migration_vm_status(struct qmp *q, char *buf, size_t len, struct err *e);
int __wrap_migration_leaves_ram_out(struct qmp *q, bool *on, struct err *e);
int __wrap_migration_query(struct qmp *q, struct migration_status *m, struct err *e);
int __wrap_save_active_disk(struct qmp *q, char *node, size_t len, struct err *e);
int __real_record_open(struct record *r, const char *in, const char *name);
int __wrap_record_open(struct record *r, const char *in, const char *name);
json_t *__real_record_read(const char *in, const char *name, bool *held);
json_t *__wrap_record_read(const char *in, const char *name, bool *held);
void __real_record_unlink_vm(const char *in, const char *kind, pid_t vmm);
void __wrap_record_unlink_vm(const char *in, const char *kind, pid_t vmm);

int __wrap_qmp_open(const char *path, unsigned int timeout_ms, struct qmp **out, struct err *e)
{
	(void)path, (void)timeout_ms, (void)e;
	*out = NULL;
	return 0;
}

void __wrap_qmp_close(struct qmp *q)
{
	(void)q;
}

int __wrap_vm_find(struct qmp *q, pid_t pid, unsigned int flags, struct vm *vm, struct err *e)
{
	(void)q, (void)pid, (void)flags, (void)e;
	*vm = (struct vm) {
		.pid = getpid(), .pidfd = -1, .vm_fd = -1, .nblocks = 1,
		.blocks = { { .name = "ram", .pages = 1, .address = WIRE_NO_ADDRESS } },
	};
	return 0;
}

int __wrap_mtree_query(struct qmp *q, struct vm *vm, struct err *e)
{
	(void)q, (void)e;
	vm->blocks[0].address = PLACE;
	return 0;
}

void __wrap_vm_close(struct vm *vm)
{
	(void)vm;
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

int __wrap_migration_running(struct qmp *q, bool *runs, struct err *e)
{
	(void)q, (void)e;
	*runs = running;
	return 0;
}

int __wrap_migration_vm_status(struct qmp *q, char *buf, size_t len, struct err *e)
{
	(void)q, (void)e;
	snprintf(buf, len, "%s", vm_status);
	return 0;
}

int __wrap_migration_leaves_ram_out(struct qmp *q, bool *on, struct err *e)
{
	(void)q, (void)e;
	*on = false;
	return 0;
}

int __wrap_migration_query(struct qmp *q, struct migration_status *m, struct err *e)
{
	(void)q, (void)e;
	*m = last;
	return 0;
}

int __wrap_save_active_disk(struct qmp *q, char *node, size_t len, struct err *e)
{
	(void)q, (void)e;
	snprintf(node, len, has_disk ? "disk0" : "");
	return has_disk;
}

int __wrap_record_open(struct record *r, const char *in, const char *name)
{
	assert_string_equal(in, RECORD_DIR);
	return __real_record_open(r, dir, name);
}

json_t *__wrap_record_read(const char *in, const char *name, bool *held)
{
	assert_string_equal(in, RECORD_DIR);
	return __real_record_read(dir, name, held);
}

void __wrap_record_unlink_vm(const char *in, const char *kind, pid_t vmm)
{
	assert_string_equal(in, RECORD_DIR);
	__real_record_unlink_vm(dir, kind, vmm);
}

static inline void have_note(const char *text)
{
	struct record r;
	char name[RECORD_NAME];

	assert_int_equal(record_name_vm(name, "doubt", getpid()), 0);
	assert_int_equal(__real_record_open(&r, dir, name), 0);
	assert_int_equal(record_write(&r, json_loads(text, 0, NULL)), 0);
	record_close(&r);
}

static inline json_t *note(void)
{
	char name[RECORD_NAME];
	bool held;

	assert_int_equal(record_name_vm(name, "doubt", getpid()), 0);
	return __real_record_read(dir, name, &held);
}

/* The note has changed in that one word. */
static inline void assert_note_knows(bool ran)
{
	json_auto_t *now = note();

	assert_non_null(now);
	assert_int_equal(json_is_true(json_object_get(now, "ran")), ran);
	assert_string_equal(json_string_value(json_object_get(now, "receiver")), "unix:/nowhere");
	assert_int_equal(json_array_size(json_object_get(now, "undo")), 1);
}

static enum commit_state resolved;

/* What `godwit resolve` ends with when that is answered. */
static inline int resolve(const struct wire_header *says, struct err *e)
{
	struct answering a = { .says = *says };
	struct resolve_options o = { .doubt = { .engine = engine, .timeout_ms = 5000, .addr = a.path } };
	pthread_t thread;

	answering_begin(&a, &thread);
	resolved = COMMIT_PREPARED;
	undone = NEVER;
	*e = (struct err) { 0 };
	resolve_run(&o, &resolved, e);
	answering_end(&a, &thread);
	assert_int_equal(a.asked, WIRE_ASK);
	return (int)e->exit;
}

static const struct wire_header __attribute__((unused)) says_dead = { .type = WIRE_VERDICT, .arg = COMMIT_DEAD, .length = 8 };
static const struct wire_header __attribute__((unused)) says_owing = { .type = WIRE_VERDICT, .arg = COMMIT_RUNS, .flags = WIRE_OWING, .length = 8 };
static const struct wire_header __attribute__((unused)) says_lost = {
	.type = WIRE_VERDICT, .arg = COMMIT_RUNS, .flags = WIRE_OWING | WIRE_LOST, .length = 8,
};
static const struct wire_header __attribute__((unused)) says_runs = { .type = WIRE_VERDICT, .arg = COMMIT_RUNS, .length = 8 };
static const struct wire_header __attribute__((unused)) says_nothing = { .type = WIRE_VERDICT, .arg = WIRE_NO_VERDICT, .length = 8 };
static const struct wire_header __attribute__((unused)) says_sent = { .type = WIRE_VERDICT, .arg = COMMIT_SENT, .length = 8 };

/* A receiver that says that it never ran there: is the source left as it is? */
static inline void assert_a_lie_changes_nothing(void)
{
	struct err e;

	assert_int_equal(resolve(&says_dead, &e), GW_UNKNOWN);
	assert_non_null(strstr(e.text, "as another answer has shown"));
	assert_int_equal(undone, NEVER);
	assert_note_knows(true);
}

static const char *const unknowing[] = {
	"{" NOTE ",\"ran\":false}",
	"{" NOTE "}",	/* an older godwit's */
};

static inline int make_dir(void **state)
{
	(void)state;
	return !mkdtemp(dir);
}

static inline int remove_dir(void **state)
{
	(void)state;
	__real_record_unlink_vm(dir, "doubt", getpid());
	return rmdir(dir);
}

#endif
