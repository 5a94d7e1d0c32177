// SPDX-License-Identifier: GPL-2.0-only
/* Processes beside the VMM that map its RAM: what writes by them unseen is refused, and nothing else. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "dirty/source.h"
#include "fake_proc.h"

#define PLAIN	"pos:\t0\nflags:\t02\n"
#define DIRECT	"pos:\t0\nflags:\t040002\n"
#define QEMU	50
#define PAGES	1000
#define NEVER	UINT64_MAX

/**
 * struct play - a dirty source, and what it answers
 * @lists: of MAPPERS, call by call; the last one is said again and again. A list ends with END
 * @swap: they take turns instead
 * @pinned: from this page on, @count pages, for the first @looks looks
 */
#define END	UINT32_MAX
struct play {
	struct dirty_source source;
	struct vm vm;
	struct fake_proc proc;
	uint32_t lists[4][4];
	unsigned int nr_lists, asked;
	bool swap;
	uint64_t pinned, count, looks, looked;
};

static int play_mappers(struct dirty_source *s, uint32_t *pids, unsigned int room, struct err *e)
{
	struct play *p = (struct play *)s;
	unsigned int at = p->asked < p->nr_lists ? p->asked : p->nr_lists - 1, n = 0;

	(void)e;
	if (p->swap)
		at = p->asked % p->nr_lists;
	p->asked++;
	while (n < 4 && p->lists[at][n] != END) {
		assert_true(n < room);
		pids[n] = p->lists[at][n];
		n++;
	}
	return (int)n;
}

static int play_next_pinned(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t end, uint64_t *run_first,
			    uint64_t *run_count, struct err *e)
{
	struct play *p = (struct play *)s;
	uint64_t stop = p->pinned + p->count;

	(void)e;
	assert_int_equal(block, 0);
	assert_int_equal(end, PAGES);
	if (p->looked++ >= p->looks || first >= stop)
		return 0;
	*run_first = first > p->pinned ? first : p->pinned;
	*run_count = stop - *run_first;
	return 1;
}

static const struct dirty_ops play_ops = { .name = "played", .mappers = play_mappers, .next_pinned = play_next_pinned };

static void begin(struct play *p)
{
	*p = (struct play) { .vm = { .pid = QEMU, .nblocks = 1 }, .lists = { { QEMU, 100, END }, }, .nr_lists = 1 };
	p->source = (struct dirty_source) { .ops = &play_ops, .vm = &p->vm, .changed = true };
	strcpy(p->vm.blocks[0].name, "ram0");
	p->vm.blocks[0].pages = PAGES;
	assert_int_equal(fake_new(&p->proc), 0);
}

static void end(struct play *p, int r, enum gw_exit exit, const char *part)
{
	struct err e = { 0 };

	assert_int_equal(source_check_mappers(&p->source, p->proc.dir, &e), r);
	assert_int_equal(e.exit, exit);
	if (!strstr(e.text, part))
		fail_msg("\"%s\" is not in \"%s\"", part, e.text);
	assert_false(p->source.changed);
	if (!r && p->source.ops->mappers)
		assert_int_equal(p->source.beside, p->lists[p->nr_lists - 1][1] != END);
	fake_remove(&p->proc);
}

static void folder(const struct play *p, const char *fmt, unsigned int pid, const char *name)
{
	char path[512], at[512];

	snprintf(at, sizeof(at), fmt, pid, name);
	assert_int_equal(mkdir(fake_path(&p->proc, at, path), 0700), 0);
}

/* In the way of struct fake_proc, of one of its processes. */
static struct fake_proc inside(const struct play *p, const char *fmt, unsigned int pid)
{
	struct fake_proc in;
	int n = snprintf(in.dir, sizeof(in.dir), "%.30s/", p->proc.dir);

	snprintf(in.dir + n, sizeof(in.dir) - (size_t)n, fmt, pid, pid);
	return in;
}

/* A process of one thread that is called spdk_tgt; returns where its files belong. */
static struct fake_proc process(const struct play *p, unsigned int pid, char state, int tracer)
{
	struct fake_proc in = inside(p, "%u", pid);

	folder(p, "%u%s", pid, "");
	folder(p, "%u/%s", pid, "task");
	fake_write(&in, "comm", "spdk_tgt\n");
	fake_thread(&in, (int)pid, state, tracer);
	in = inside(p, "%u/task/%u", pid);
	assert_int_equal(mkdir(strcat(strcpy((char[512]) { 0 }, in.dir), "/fd"), 0700), 0);
	assert_int_equal(mkdir(strcat(strcpy((char[512]) { 0 }, in.dir), "/fdinfo"), 0700), 0);
	return in;
}

static void test_nobody_knows(void **state)
{
	static const struct dirty_ops none = { .name = "none" };
	struct play p;

	(void)state;
	begin(&p);
	p.source.ops = &none;
	end(&p, 0, GW_OK, "");
}

static void test_nobody_beside(void **state)
{
	struct play p;

	(void)state;
	begin(&p);
	p.lists[0][1] = END;
	end(&p, 0, GW_OK, "");
	assert_false(p.source.beside);
}

/* QEMU's own files are looked at elsewhere, and what cannot pin needs no look at the RAM. */
static void test_fine(void **state)
{
	struct fake_proc in;
	struct play p;

	(void)state;
	begin(&p);
	p.looks = NEVER, p.count = PAGES;
	in = process(&p, QEMU, 'S', 0);
	fake_fd(&in, 3, "/dev/vfio/12", PLAIN);
	in = process(&p, 100, 'S', 0);
	fake_fd(&in, 3, "/dev/null", PLAIN);
	fake_fd(&in, 4, "/dev/vhost-net", PLAIN);
	fake_fd(&in, 5, "anon_inode:[io_uring]", "flags:\t02\nUserBufs:\t0\n");
	fake_fd(&in, 6, "/dev/shm", DIRECT);
	end(&p, 0, GW_OK, "");
	assert_int_equal(p.looked, 0);
	assert_int_equal(p.asked, 2);
}

static void test_device_without_guest_ram(void **state)
{
	struct fake_proc in;
	struct play p;

	(void)state;
	begin(&p);
	in = process(&p, 100, 'S', 0);
	fake_fd(&in, 3, "/dev/vfio/12", PLAIN);
	end(&p, 0, GW_OK, "");
	assert_int_equal(p.looked, 1);

	/* Direct I/O, which gives back what it pins: one page after the other. */
	begin(&p);
	p.pinned = 517, p.count = 3, p.looks = 20;
	in = process(&p, 100, 'S', 0);
	fake_fd(&in, 3, "/dev/vfio/12", PLAIN);
	end(&p, 0, GW_OK, "");
	assert_int_equal(p.looked, 21);
}

static void test_pinned(void **state)
{
	static const struct { const char *link, *info, *said; } devices[] = {
		{ "/dev/vfio/12", PLAIN, "process 100 (spdk_tgt) has a VFIO device (/dev/vfio/12), and guest RAM is pinned for DMA (page 517 of ram0)" },
		{ "anon_inode:[io_uring]", "flags:\t02\nUserBufs:\t1\n", "has an io_uring with fixed buffers (anon_inode:[io_uring])" },
		{ "anon_inode:[io_uring]", PLAIN, "has an io_uring that is too busy to say whether it has fixed buffers (anon_inode:[io_uring])" },
	};
	struct fake_proc in;
	struct play p;

	(void)state;
	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
		begin(&p);
		p.pinned = 517, p.count = 3, p.looks = NEVER;
		in = process(&p, 100, 'S', 0);
		fake_fd(&in, 3, devices[i].link, devices[i].info);
		end(&p, -EBUSY, GW_PINNED, devices[i].said);
	}
}

/* The leader has ended, its threads have not; of its own it has no files any more. */
static void test_leader_has_ended(void **state)
{
	struct fake_proc in;
	struct play p;
	char path[512];

	(void)state;
	begin(&p);
	process(&p, 100, 'Z', 0);
	in = inside(&p, "%u", 100);
	fake_thread(&in, 107, 'S', 0);
	assert_int_equal(mkdir(fake_path(&in, "task/107/fd", path), 0700), 0);
	assert_int_equal(mkdir(fake_path(&in, "task/107/fdinfo", path), 0700), 0);
	strcat(in.dir, "/task/107");
	fake_fd(&in, 3, "/dev/uio0", PLAIN);
	end(&p, -EBUSY, GW_PINNED, "process 100 (spdk_tgt) maps guest RAM, and a UIO device (/dev/uio0) writes that RAM unseen by godwit: bind the device to vfio-pci");
}

static void test_no_pin_to_be_seen(void **state)
{
	static const struct { const char *link, *info, *said; } files[] = {
		{ "/dev/uio0", PLAIN, "and a UIO device (/dev/uio0) writes" },
		{ "/dev/vhost-scsi", PLAIN, "vhost-user-scsi" },
		{ "/dev/dsa/wq0.0", PLAIN, "without the accelerator" },
		{ "/proc/version", DIRECT, "and direct I/O on a file system that godwit does not know (/proc/version) writes that RAM unseen by godwit: let that process open the file without O_DIRECT, or move" },
	};
	struct fake_proc in;
	struct play p;

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		begin(&p);
		in = process(&p, 100, 'S', 0);
		fake_fd(&in, 3, files[i].link, files[i].info);
		end(&p, -EBUSY, GW_PINNED, files[i].said);
	}
}

static void test_traced(void **state)
{
	struct play p;

	(void)state;
	begin(&p);
	process(&p, 100, 't', 100);
	end(&p, -EBUSY, GW_PINNED, "process 100 (spdk_tgt) traces process 100 (spdk_tgt), and may write guest RAM unseen by godwit: detach that process");
}

/* A real one: this process traces its child. */
static void test_really_traced(void **state)
{
	struct err e = { 0 };
	struct play p;
	char said[64];
	pid_t pid = fork();

	(void)state;
	if (!pid)
		for (;;)
			pause();
	begin(&p);
	p.lists[0][1] = (uint32_t)pid;
	assert_int_equal(source_check_mappers(&p.source, "/proc", &e), 0);
	assert_int_equal(ptrace(PTRACE_SEIZE, pid, 0, 0), 0);
	assert_int_equal(source_check_mappers(&p.source, "/proc", &e), -EBUSY);
	snprintf(said, sizeof(said), "process %d (test_mappers) traces process %d (", getpid(), pid);
	assert_non_null(strstr(e.text, said));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	fake_remove(&p.proc);
}

/* It was told and has exited before it was looked at; no other has its number. */
static void test_exits_meanwhile(void **state)
{
	struct play p;

	(void)state;
	begin(&p);
	memcpy(p.lists[1], (uint32_t[]) { QEMU, END }, 8);
	p.nr_lists = 2;
	end(&p, 0, GW_OK, "");
	assert_int_equal(p.asked, 3);
}

static void test_another_comes_meanwhile(void **state)
{
	struct fake_proc in;
	struct play p;

	(void)state;
	begin(&p);
	memcpy(p.lists[1], (uint32_t[]) { QEMU, 100, 101, END }, 16);
	p.nr_lists = 2;
	process(&p, 100, 'S', 0);
	in = process(&p, 101, 'S', 0);
	fake_fd(&in, 3, "/dev/uio0", PLAIN);
	end(&p, -EBUSY, GW_PINNED, "process 101");
}

static void test_never_the_same(void **state)
{
	struct play p;

	(void)state;
	begin(&p);
	memcpy(p.lists[1], (uint32_t[]) { QEMU, 101, END }, 12);
	p.nr_lists = 2;
	p.swap = true;
	process(&p, 100, 'S', 0);
	process(&p, 101, 'S', 0);
	end(&p, -EAGAIN, GW_BUSY, "come and go");
}

/* On its way out for two looks; or for ever, in another pid namespace. */
static void test_cannot_be_seen(void **state)
{
	struct play p;

	(void)state;
	begin(&p);
	p.lists[0][1] = 0;
	memcpy(p.lists[1], p.lists[0], sizeof(p.lists[0]));
	memcpy(p.lists[2], (uint32_t[]) { QEMU, END }, 8);
	p.nr_lists = 3;
	end(&p, 0, GW_OK, "");

	begin(&p);
	p.lists[0][1] = 0;
	end(&p, -EBUSY, GW_PINNED, "a process outside this pid namespace");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_nobody_knows), cmocka_unit_test(test_nobody_beside),
	cmocka_unit_test(test_fine),
	cmocka_unit_test(test_device_without_guest_ram),
	cmocka_unit_test(test_pinned),
	cmocka_unit_test(test_leader_has_ended),
	cmocka_unit_test(test_no_pin_to_be_seen),
	cmocka_unit_test(test_traced),
	cmocka_unit_test(test_really_traced),
	cmocka_unit_test(test_exits_meanwhile),
	cmocka_unit_test(test_another_comes_meanwhile),
	cmocka_unit_test(test_never_the_same),
	cmocka_unit_test(test_cannot_be_seen),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
