// SPDX-License-Identifier: GPL-2.0-only
/* Processes that map a VM's RAM files. They are real: children of the test, one of which is the VMM. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "claim/owners.h"
#include "proc/map_query.h"

/* As with a kernel before 6.11. */
static bool by_text;

int __real_map_query(int fd, bool shared, map_query_fn fn, void *arg);
int __wrap_map_query(int fd, bool shared, map_query_fn fn, void *arg);

int __wrap_map_query(int fd, bool shared, map_query_fn fn, void *arg)
{
	return by_text ? -ENOTTY : __real_map_query(fd, shared, fn, arg);
}

enum devstate_mode { NOT_AT_ALL, SHARED, PRIVATE, BY_ANOTHER_THREAD };

static void *for_ever(void *arg)
{
	while (pause())
		;
	return arg;
}

/* A process that maps the file and keeps this end of a socket (-1: none), and says so before it sleeps. */
static pid_t mapper(int fd, enum devstate_mode way, int keep, int other)
{
	int ready[2];
	pthread_t thread;
	pid_t pid;
	char c;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "test-mapper");
		if (way != NOT_AT_ALL && mmap(NULL, 4096, PROT_READ | PROT_WRITE, way == PRIVATE ? MAP_PRIVATE : MAP_SHARED, fd, 0) == MAP_FAILED)
			_exit(1);
		close(fd);
		if (other >= 0)
			close(other);
		if (keep < 0)
			close(ready[0]);
		if (way == BY_ANOTHER_THREAD)
			pthread_create(&thread, NULL, for_ever, NULL);
		if (write(ready[1], "x", 1) != 1)
			_exit(1);
		if (way == BY_ANOTHER_THREAD)
			pthread_exit(NULL);
		for_ever(NULL);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static int ram_file(struct vm *vm, pid_t vmm)
{
	int fd = memfd_create("ram", 0);
	struct stat st;

	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_int_equal(fstat(fd, &st), 0);
	memset(vm, 0, sizeof(*vm));
	vm->pid = vmm;
	vm->nblocks = 1;
	strcpy(vm->blocks[0].name, "ram0");
	vm->blocks[0].dev = st.st_dev;
	vm->blocks[0].ino = st.st_ino;
	return fd;
}

static enum gw_exit check(const struct vm *vm, enum owners_end at, struct err *e)
{
	int r;

	memset(e, 0, sizeof(*e));
	r = owners_check("/proc", vm, at, e);
	assert_int_equal(r < 0, e->exit != GW_OK);
	return e->exit;
}

static void test_destination(void **state)
{
	static const struct {
		enum devstate_mode way;
		enum gw_exit exit;
	} cases[] = {
		{ NOT_AT_ALL, GW_OK }, { SHARED, GW_RAM_IN_USE }, { PRIVATE, GW_RAM_IN_USE }, { BY_ANOTHER_THREAD, GW_RAM_IN_USE },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct vm vm;
		struct err e;
		int fd = ram_file(&vm, 0);
		pid_t other = mapper(fd, cases[i].way, -1, -1);
		char pid[16];

		vm.pid = mapper(fd, SHARED, -1, -1);
		snprintf(pid, sizeof(pid), " %d ", (int)other);
		/* Its first thread may need a moment to end. */
		for (int n = 0; n < 100 && check(&vm, OWNERS_DESTINATION, &e) != cases[i].exit; n++)
			usleep(10000);
		assert_int_equal(e.exit, cases[i].exit);
		if (e.exit) {
			assert_non_null(strstr(e.text, pid));
			assert_non_null(strstr(e.text, "test-mapper"));
			assert_non_null(strstr(e.text, "\"ram0\""));
		}
		end(other);
		assert_int_equal(check(&vm, OWNERS_DESTINATION, &e), GW_OK);
		end(vm.pid);
		close(fd);
	}
}

/* A backend of the VMM's, by the socket between them; not one that has some socket. */
static void test_backend(void **state)
{
	int ours[2], others[2], fd;
	struct vm vm;
	struct err e;
	pid_t backend, stranger;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ours), 0);
	fd = ram_file(&vm, 0);
	vm.pid = mapper(fd, SHARED, ours[0], ours[1]);
	backend = mapper(fd, SHARED, ours[1], ours[0]);
	close(ours[0]);
	close(ours[1]);
	assert_int_equal(check(&vm, OWNERS_DESTINATION, &e), GW_OK);
	/* With post-copy it would read pages before they came. */
	assert_int_equal(check(&vm, OWNERS_ALONE, &e), GW_RAM_IN_USE);
	assert_non_null(strstr(e.text, "without post-copy"));

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, others), 0);
	stranger = mapper(fd, SHARED, others[0], others[1]);
	assert_int_equal(check(&vm, OWNERS_DESTINATION, &e), GW_RAM_IN_USE);
	close(others[0]);
	close(others[1]);
	end(stranger);
	end(backend);
	end(vm.pid);
	close(fd);
}

/* Processes are tracked there; a VMM is not one of them. This one is by its program's name. */
static void test_source(void **state)
{
	char dir[] = "/tmp/godwit-owners-XXXXXX", copy[64], number[16], command[128];
	struct vm vm;
	struct err e;
	int fd = ram_file(&vm, 0), ready[2], between[2];
	pid_t other, qemu;
	char c;

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, between), 0);
	vm.pid = mapper(fd, SHARED, between[0], between[1]);
	other = mapper(fd, SHARED, -1, -1);
	assert_int_equal(check(&vm, OWNERS_SOURCE, &e), GW_OK);
	end(other);

	assert_non_null(mkdtemp(dir));
	snprintf(copy, sizeof(copy), "%s/qemu-system-test", dir);
	snprintf(command, sizeof(command), "cp /proc/%d/exe %s", (int)getpid(), copy);
	assert_int_equal(system(command), 0);
	assert_int_equal(pipe(ready), 0);
	qemu = fork();
	if (!qemu) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		snprintf(number, sizeof(number), "%d", fd);
		close(between[0]);
		dup2(ready[1], STDOUT_FILENO);
		execl(copy, copy, "map", number, NULL);
		_exit(1);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	/* Connected to it: a source's own helper, but at a destination one VM may have another for a neighbour. */
	assert_int_equal(check(&vm, OWNERS_SOURCE, &e), GW_OK);
	assert_int_equal(check(&vm, OWNERS_DESTINATION, &e), GW_RAM_IN_USE);
	close(between[0]);
	close(between[1]);
	end(vm.pid);
	vm.pid = mapper(fd, SHARED, -1, -1);
	assert_int_equal(check(&vm, OWNERS_SOURCE, &e), GW_RAM_IN_USE);
	assert_non_null(strstr(e.text, "two VMs share"));
	end(qemu);
	end(vm.pid);
	unlink(copy);
	rmdir(dir);
	close(fd);
}

/* Its numbers are its own, on the device that memfds are on. */
static void test_sysv_memory_is_another_thing(void **state)
{
	int id = shmget(IPC_PRIVATE, 4096, 0600), fd;
	struct vm vm;
	struct err e;
	pid_t other;

	(void)state;
	assert_true(id >= 0);
	assert_true(shmat(id, NULL, 0) != (void *)-1);
	fd = ram_file(&vm, 0);
	other = mapper(fd, NOT_AT_ALL, -1, -1);	/* has the segment */
	vm.blocks[0].ino = (ino_t)id;
	vm.pid = getppid();
	assert_int_equal(check(&vm, OWNERS_DESTINATION, &e), GW_OK);
	end(other);
	shmctl(id, IPC_RMID, NULL);
	close(fd);
}

/* Without CAP_SYS_PTRACE others' memory maps are closed to us: the check cannot say that no other maps it. */
static void test_without_the_right_to_look(void **state)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3];
	struct vm vm;
	int fd = ram_file(&vm, 0), status;
	pid_t other = mapper(fd, SHARED, -1, -1), child;

	(void)state;
	child = fork();
	if (!child) {
		struct err e = { 0 };

		if (syscall(SYS_capget, &h, d))
			_exit(3);
		d[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective &= ~CAP_TO_MASK(CAP_SYS_PTRACE);
		d[CAP_TO_INDEX(CAP_SYS_PTRACE)].permitted &= ~CAP_TO_MASK(CAP_SYS_PTRACE);
		if (syscall(SYS_capset, &h, d))
			_exit(4);
		vm.pid = getpid();
		_exit(owners_check("/proc", &vm, OWNERS_DESTINATION, &e) < 0 && e.exit == GW_NO_MODULE && strstr(e.text, "CAP_SYS_PTRACE") ? 0 : 5);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	end(other);
	close(fd);
}

static int shares_memory(void *arg)
{
	(void)arg;
	for_ever(NULL);
	return 0;
}

/* As QEMU's helper for a teardown in the background: a process of its own, with QEMU's memory. */
static void test_a_process_with_the_same_memory(void **state)
{
	static char stack[65536];
	struct vm vm;
	struct err e;
	int fd = ram_file(&vm, getpid());
	pid_t helper = clone(shares_memory, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL);

	(void)state;
	assert_true(helper > 0);
	assert_true(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED);
	assert_int_equal(check(&vm, OWNERS_DESTINATION, &e), GW_OK);
	assert_int_equal(check(&vm, OWNERS_ALONE, &e), GW_OK);
	end(helper);
	close(fd);
}

/* Anonymous memory has no file, so no mapping of anything is one of it: not even memory of the same addresses. */
static void test_anonymous(void **state)
{
	static const enum owners_end ends[] = { OWNERS_SOURCE, OWNERS_DESTINATION };
	struct vm vm = { .nblocks = 1, .blocks = { { .name = "ram0", .fd = -1 } } };
	struct err e;
	pid_t other;

	(void)state;
	/* All that a child has it has at the same addresses. */
	vm.blocks[0].hva = (uint64_t)(uintptr_t)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	vm.blocks[0].pages = 1;
	vm.pid = mapper(-1, NOT_AT_ALL, -1, -1);
	other = mapper(-1, NOT_AT_ALL, -1, -1);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
		assert_int_equal(check(&vm, ends[i], &e), GW_OK);
	end(other);
	end(vm.pid);
	munmap((void *)(uintptr_t)vm.blocks[0].hva, 4096);
}

/* Of a file that the VMM maps privately others may have pages of their own; a shared mapping writes what the VMM reads. */
static void test_private_file(void **state)
{
	struct vm vm;
	struct err e;
	int fd = ram_file(&vm, 0);
	pid_t other;

	(void)state;
	vm.blocks[0].hva = 4096;
	vm.pid = mapper(fd, PRIVATE, -1, -1);
	other = mapper(fd, PRIVATE, -1, -1);
	assert_int_equal(check(&vm, OWNERS_SOURCE, &e), GW_OK);
	assert_int_equal(check(&vm, OWNERS_DESTINATION, &e), GW_OK);
	end(other);
	other = mapper(fd, SHARED, -1, -1);
	assert_int_equal(check(&vm, OWNERS_DESTINATION, &e), GW_RAM_IN_USE);
	end(other);
	end(vm.pid);
	close(fd);
}

static void test_what_cannot_be_read(void **state)
{
	struct vm vm = { .pid = 1 };
	struct err e = { 0 };

	(void)state;
	assert_true(owners_check("/nowhere", &vm, OWNERS_DESTINATION, &e) < 0);
}

/* This program once more, as another VMM. */
static int be_a_vmm(const char *number)
{
	if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(number), 0) == MAP_FAILED || write(STDOUT_FILENO, "x", 1) != 1)
		return 1;
	for_ever(NULL);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_destination),
		cmocka_unit_test(test_backend),
		cmocka_unit_test(test_source),
		cmocka_unit_test(test_anonymous),
		cmocka_unit_test(test_private_file),
		cmocka_unit_test(test_what_cannot_be_read),
		cmocka_unit_test(test_sysv_memory_is_another_thing),
		cmocka_unit_test(test_without_the_right_to_look),
		cmocka_unit_test(test_a_process_with_the_same_memory),
	};

	int failed;

	if (argc == 3 && !strcmp(argv[1], "map"))
		return be_a_vmm(argv[2]);
	failed = cmocka_run_group_tests_name("by query", tests, NULL, NULL);
	by_text = true;
	return failed + cmocka_run_group_tests_name("by text", tests, NULL, NULL);
}
