// SPDX-License-Identifier: GPL-2.0-only
/* vm_find() on this very process: a scripted QEMU answers, but the mappings, descriptors and the VM are real. */
#include <fcntl.h>
#include <linux/kvm.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "qmp/qmp_internal.h"
#include "qmp_peer.h"
#include "vmm/devices.h"
#include "vmm/vm.h"

#define BYTES (1u << 20)

struct bench {
	char file[64], mem_path[80];
	struct peer_answer qemu[8];
	void *ram;
	struct peer peer;
	struct qmp *q;
	struct vm vm;
	struct err e;
};

/* A QEMU whose RAM we have mapped, unlinked meanwhile or not. */
static void begin(struct bench *b, bool unlinked)
{
	const struct peer_answer qemu[] = {
		{ "query-memdev", "", "[{\"id\": \"ram0\", \"size\": 1048576}]" },
		{ "qom-get", "\"property\":\"type\"", "\"memory-backend-file\"" },
		{ "qom-get", "\"property\":\"share\"", "true" },
		{ "qom-get", "\"property\":\"mem-path\"", b->mem_path },
		{ "qom-list", "/machine/peripheral\"", "[]" },
		{ "qom-list", "/machine/peripheral-anon\"", "[{\"name\": \"device[0]\", \"type\": \"child<virtio-balloon-pci>\"}]" },
		{ "qom-get", "/machine/peripheral-anon/device[0]\",\"property\":\"free-page-hint\"", "true" },
		{ NULL, NULL, NULL },
	};
	int fd;

	memset(b, 0, sizeof(*b));
	strcpy(b->file, "/dev/shm/godwit-test-XXXXXX");
	fd = mkostemp(b->file, O_CLOEXEC);
	assert_int_equal(ftruncate(fd, BYTES), 0);
	b->ram = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	strcat(strcat(strcpy(b->mem_path, "\""), b->file), "\"");
	if (unlinked)
		unlink(b->file);
	memcpy(b->qemu, qemu, sizeof(qemu));
	assert_int_equal(peer_start(&b->peer, peer_serve, b->qemu, 4), 0);
	assert_int_equal(qmp_open(b->peer.path, 2000, &b->q, &b->e), 0);
}

static void end(struct bench *b)
{
	vm_close(&b->vm);
	qmp_close(b->q);
	peer_stop(&b->peer);
	assert_string_equal(b->peer.missed, "");
	munmap(b->ram, BYTES);
	unlink(b->file);
}

/* map_files is for those with CAP_CHECKPOINT_RESTORE. */
static bool found(struct bench *b, int r)
{
	if (r == -EPERM || r == -EACCES) {
		print_message("%s\n", b->e.text);
		assert_non_null(strstr(b->e.text, "run godwit as root"));
		end(b);
		skip();
	}
	return r == 0;
}

static void test_ram(void **state)
{
	struct bench b;
	char byte;

	(void)state;
	for (int unlinked = 0; unlinked < 2; unlinked++) {
		begin(&b, unlinked);
		assert_true(found(&b, vm_find(b.q, 0, VM_WRITE, &b.vm, &b.e)));
		assert_int_equal(b.vm.pid, getpid());
		assert_int_equal(b.vm.vm_fd, -1);
		assert_int_equal(b.vm.nblocks, 1);
		assert_int_equal(b.vm.blocks[0].pages, BYTES / 4096);
		((char *)b.ram)[5000] = 'g';
		assert_int_equal(pread(b.vm.blocks[0].fd, &byte, 1, 5000), 1);
		assert_int_equal(byte, 'g');
		assert_int_equal(pwrite(b.vm.blocks[0].fd, "w", 1, 5001), 1);
		assert_int_equal(((char *)b.ram)[5001], 'w');
		vm_close(&b.vm);

		assert_int_equal(vm_find(b.q, getpid(), 0, &b.vm, &b.e), 0);
		assert_true(pwrite(b.vm.blocks[0].fd, "w", 1, 5001) < 0);
		end(&b);
	}
}

/* A child that has none of our mappings, until it is told to go. */
static pid_t stranger(const struct bench *b, int fd[2])
{
	int ready[2];
	pid_t child;
	char c;

	assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	child = fork();
	if (child == 0) {
		close(fd[1]);
		munmap(b->ram, BYTES);
		if (write(ready[1], "", 1) == 1 && read(fd[0], &c, 1) >= 0)
			_exit(0);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &c, 1), 1);
	close(ready[0]);
	return child;
}

static void test_pidfd_and_wrong_pid(void **state)
{
	struct bench b;
	struct pollfd p;
	pid_t child;
	int fd[2];

	(void)state;
	begin(&b, false);
	child = stranger(&b, fd);
	assert_true(vm_find(b.q, child, 0, &b.vm, &b.e) < 0);
	assert_int_equal(b.e.exit, GW_RAM_PRIVATE);
	assert_non_null(strstr(b.e.text, "--pid names another process"));
	assert_int_equal(b.vm.pidfd, -1);
	close(fd[1]);
	waitpid(child, NULL, 0);
	close(fd[0]);
	b.e = (struct err) { 0 };
	assert_int_equal(vm_find(b.q, child, 0, &b.vm, &b.e), -ESRCH);
	assert_int_equal(b.e.exit, GW_VM_GONE);

	b.e = (struct err) { 0 };
	assert_true(found(&b, vm_find(b.q, 0, 0, &b.vm, &b.e)));
	p = (struct pollfd) { .fd = b.vm.pidfd, .events = POLLIN };
	assert_int_equal(poll(&p, 1, 0), 0);
	end(&b);
}

static void test_unknown_pid(void **state)
{
	struct qmp closed = { .stream.fd = -1 };
	struct err e = { 0 };
	struct vm vm;

	(void)state;
	assert_int_equal(vm_find(&closed, 0, 0, &vm, &e), -ESRCH);
	assert_int_equal(e.exit, GW_USAGE);
}

static void test_close(void **state)
{
	struct vm vm = { .pid = 0 };
	struct bench b;
	int fds;

	(void)state;
	if (fcntl(0, F_GETFD) < 0)
		assert_int_equal(open("/dev/null", O_RDONLY), 0);
	vm_close(&vm);
	assert_true(fcntl(0, F_GETFD) >= 0);
	fds = open_fds();
	begin(&b, false);
	assert_true(found(&b, vm_find(b.q, 0, 0, &b.vm, &b.e)));
	vm_close(&b.vm);
	vm_close(&b.vm);
	end(&b);
	assert_int_equal(open_fds(), fds);
}

static int new_kvm_vm(void)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	int vm = kvm < 0 ? -1 : ioctl(kvm, KVM_CREATE_VM, 0);

	if (kvm >= 0)
		close(kvm);
	return vm;
}

static void test_no_kvm_vm(void **state)
{
	struct bench b;
	int r;

	(void)state;
	begin(&b, false);
	r = vm_find(b.q, 0, VM_KVM, &b.vm, &b.e);
	assert_false(found(&b, r));
	assert_int_equal(b.e.exit, GW_NOT_QEMU);
	assert_non_null(strstr(b.e.text, "-accel kvm"));
	end(&b);
}

static void test_kvm_vm(void **state)
{
	int fds = open_fds(), one = new_kvm_vm(), dup1, two;
	struct bench b;

	(void)state;
	if (one < 0)
		skip();
	begin(&b, false);
	assert_true(found(&b, vm_find(b.q, 0, VM_KVM, &b.vm, &b.e)));
	assert_true(b.vm.vm_fd >= 0 && b.vm.vm_fd != one);
	assert_true(fcntl(b.vm.vm_fd, F_GETFD) & FD_CLOEXEC);
	assert_true(ioctl(b.vm.vm_fd, KVM_CHECK_EXTENSION, KVM_CAP_USER_MEMORY) > 0);
	vm_close(&b.vm);

	dup1 = dup(one);
	assert_int_equal(vm_find(b.q, 0, VM_KVM, &b.vm, &b.e), 0);
	vm_close(&b.vm);

	two = new_kvm_vm();
	assert_true(two >= 0);
	assert_true(vm_find(b.q, 0, VM_KVM, &b.vm, &b.e) < 0);
	assert_int_equal(b.e.exit, GW_NOT_QEMU);
	assert_non_null(strstr(b.e.text, "more than one KVM VM"));
	assert_int_equal(b.vm.vm_fd, -1);
	close(two);
	close(dup1);
	close(one);
	end(&b);
	assert_int_equal(open_fds(), fds);
}

static void test_check_devices(void **state)
{
	struct bench b;

	(void)state;
	begin(&b, false);
	b.vm.pid = getpid();
	b.vm.pidfd = b.vm.vm_fd = -1;
	assert_int_equal(vm_check_devices(b.q, b.vm.pid, 0, &b.e), -EBUSY);
	assert_int_equal(b.e.exit, GW_PINNED);
	assert_non_null(strstr(b.e.text, "/machine/peripheral-anon/device[0] has free-page-hint=on"));
	end(&b);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_ram),
	cmocka_unit_test(test_pidfd_and_wrong_pid),
	cmocka_unit_test(test_unknown_pid),
	cmocka_unit_test(test_close),
	cmocka_unit_test(test_no_kvm_vm),
	cmocka_unit_test(test_kvm_vm),
	cmocka_unit_test(test_check_devices),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
