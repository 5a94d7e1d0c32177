// SPDX-License-Identifier: GPL-2.0-only
/*
 * The guest is lost, and the receiver waits for its sender, perhaps for minutes. Meanwhile the guest may be started anew: nothing
 * of its RAM is held by then, neither files nor mappings nor locks. One that has all of its RAM is waited for as long.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "base/clock.h"
#include "qmp_peer.h"
#include "receive/receiver_internal.h"

#define PAGES	512u
#define RAM	"godwit-linger"

int __wrap_recover_take_over(struct receiver *r, struct err *e);
bool __wrap_receiver_listen_again(struct receiver *r);
int __wrap_receiver_greet(struct receiver *r, struct wire_header *h, uint64_t come_ns, uint64_t until_ns, struct err *e);

void __wrap_record_forget(const char *name);

/* @lost: else the guest only lacks RAM. @whole: it has all, and it listens again: @waits_ns, but nobody comes. @lingers: it has waited; @fds, @locked, @mapped: then;
   @knows: the sender does; @forgot: the record of this name, wherever it is */
static struct {
	bool lost, whole, knows, lingers, locked, mapped;
	uint64_t waits_ns;
	char path[64], forgot[RECORD_NAME];
	int fds;
} now;

void __wrap_record_forget(const char *name)
{
	assert_string_equal(now.forgot, "");
	snprintf(now.forgot, sizeof(now.forgot), "%s", name);
}

static bool is_mapped(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	bool found = false;

	while (fgets(line, sizeof(line), maps))
		found |= strstr(line, RAM) != NULL;
	fclose(maps);
	return found;
}

/* By somebody else than who asks. */
static bool is_locked(void)
{
	int fd = open(now.path, O_RDWR | O_CLOEXEC);
	bool locked = flock(fd, LOCK_EX | LOCK_NB) < 0;

	close(fd);
	return locked;
}

int __wrap_recover_take_over(struct receiver *r, struct err *e)
{
	r->vm = (struct vm) { .pid = getpid(), .pidfd = -1, .vm_fd = -1, .nblocks = 1,
			      .blocks = { { .name = "ram0", .pages = PAGES, .page_size = PAGE_BYTES } } };
	r->vm.blocks[0].fd = open(now.path, O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(r->vm.blocks[0].fd, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(ram_writer_open(&r->writer, &r->vm, NULL, e), 0);
	/* Where it writes without one. */
	if (!r->writer.base[0]) {
		r->writer.base[0] = mmap(NULL, PAGES * PAGE_BYTES, PROT_READ, MAP_SHARED, r->vm.blocks[0].fd, 0);
		assert_ptr_not_equal(r->writer.base[0], MAP_FAILED);
	}
	assert_true(is_mapped() && is_locked());
	r->commit = COMMIT_RUNS;
	r->state = RECEIVER_COMMITTED;
	r->verdicts = true;
	r->lost = now.lost;
	r->whole = now.whole;
	memcpy(r->token, "0123456789abcdef", sizeof(r->token));
	if (now.knows)
		r->sender = SENDER_KNOWS;
	return now.whole ? 0 : err_set(e, GW_VM_GONE, ESRCH, "it is over");
}

bool __wrap_receiver_listen_again(struct receiver *r)
{
	(void)r;
	now.lingers = true;
	now.fds = open_fds();
	now.locked = is_locked();
	now.mapped = is_mapped();
	return now.whole;
}

int __wrap_receiver_greet(struct receiver *r, struct wire_header *h, uint64_t come_ns, uint64_t until_ns, struct err *e)
{
	(void)r, (void)h, (void)e;
	assert_int_equal(come_ns, until_ns);
	now.waits_ns = until_ns - now_ns();
	return -ETIMEDOUT;
}

static void run(bool lost)
{
	const struct receiver_options o = { .recover = true, .listen_fd = -1, .unpack_threads = 1, .qmp_path = "/tmp/godwit-none" };
	struct receiver_result res = { 0 };
	struct err e = { 0 };
	int fd = memfd_create(RAM, MFD_CLOEXEC), before = open_fds();

	memset(&now, 0, sizeof(now));
	now.lost = lost;
	assert_int_equal(ftruncate(fd, PAGES * PAGE_BYTES), 0);
	snprintf(now.path, sizeof(now.path), "/proc/self/fd/%d", fd);
	assert_true(receiver_run(&o, &res, &e) < 0);
	assert_true(now.lingers);
	assert_int_equal(now.locked, !lost);
	assert_int_equal(now.mapped, !lost);
	if (lost)
		assert_int_equal(now.fds, before);
	assert_string_equal(now.forgot, "");
	/* In the end neither does. */
	assert_int_equal(open_fds(), before);
	assert_false(is_locked() || is_mapped());
	close(fd);
}

static void a_guest_that_is_lost_holds_nothing(void **state)
{
	(void)state;
	run(true);
}

static void a_guest_that_runs_keeps_its_claim(void **state)
{
	(void)state;
	run(false);
}

/* Its sender may look for it as long as that, and believes that the guest lacks RAM. */
static void a_guest_that_is_whole_is_told_of(void **state)
{
	struct receiver_options o = {
		.recover = true, .listen_fd = -1, .unpack_threads = 1, .qmp_path = "/tmp/godwit-none", .resolve_s = 60,
	};
	static const unsigned int recover_s[] = { 300, 0 }, waits_s[] = { 300, 60 };
	int fd = memfd_create(RAM, MFD_CLOEXEC);

	(void)state;
	assert_int_equal(ftruncate(fd, PAGES * PAGE_BYTES), 0);
	for (size_t i = 0; i < 4; i++) {
		struct receiver_result res = { 0 };
		struct err e = { 0 };

		memset(&now, 0, sizeof(now));
		now.whole = true;
		snprintf(now.path, sizeof(now.path), "/proc/self/fd/%d", fd);
		now.knows = i >= 2;
		o.recover_s = recover_s[i % 2];
		assert_int_equal(receiver_run(&o, &res, &e), 0);
		assert_int_equal((now.waits_ns + 500000000) / 1000000000, now.knows ? 0 : waits_s[i]);
		/* Also that of the receiver before, which may be in another directory. */
		assert_string_equal(now.forgot, now.knows ? "verdict-30313233343536373839616263646566" : "");
	}
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_guest_that_is_lost_holds_nothing),
		cmocka_unit_test(a_guest_that_runs_keeps_its_claim),
		cmocka_unit_test(a_guest_that_is_whole_is_told_of),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
