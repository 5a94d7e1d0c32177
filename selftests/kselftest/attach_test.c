// SPDX-License-Identifier: GPL-2.0-only
/* What ATTACH refuses, and that a refusal leaves the session usable. */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "kst.h"

FIXTURE(attach) {
	struct vm vm;
	struct session s;
};

FIXTURE_SETUP(attach)
{
	vm_create(&self->vm, 1, 3);
	session_open(&self->s);
}

FIXTURE_TEARDOWN(attach)
{
	session_close(&self->s);
	vm_destroy(&self->vm);
}

TEST_F(attach, answers)
{
	struct godwit_attach a = {
		.vm_fd = self->vm.fd, .abi = 77, .manual_protect = 77, .memslots = 77, .logged = 77
	};

	ASSERT_EQ(0, vm_slot(&self->vm, 5, KVM_MEM_LOG_DIRTY_PAGES, RAM_GPA, PAGE, self->vm.low));
	ASSERT_EQ(0, ioctl(self->s.fd, GODWIT_ATTACH, &a));
	EXPECT_EQ(GODWIT_ABI_VERSION, a.abi);
	EXPECT_EQ(3, a.manual_protect);
	EXPECT_LE(2, a.memslots);	/* Intel's KVM has one of its own */
	EXPECT_EQ(1, a.logged);
}

TEST_F(attach, no_vm)
{
	char name[] = "/tmp/kvm-vm.XXXXXX";
	int file = mkstemp(name), link = memfd_create("kvm-vm", 0), pipes[2];

	ASSERT_LE(0, file);
	unlink(name);
	ASSERT_EQ(0, pipe(pipes));
	EXPECT_EQ(-EBADF, session_attach(&self->s, -1));
	EXPECT_EQ(-EBADF, session_attach(&self->s, 1000));
	EXPECT_EQ(-EMEDIUMTYPE, session_attach(&self->s, file));
	EXPECT_EQ(-EMEDIUMTYPE, session_attach(&self->s, link));
	EXPECT_EQ(-EMEDIUMTYPE, session_attach(&self->s, pipes[0]));
	EXPECT_EQ(-EMEDIUMTYPE, session_attach(&self->s, self->vm.kvm));
	EXPECT_EQ(-EMEDIUMTYPE, session_attach(&self->s, self->vm.vcpu[0].fd));
	EXPECT_EQ(-EMEDIUMTYPE, session_attach(&self->s, self->s.fd));
	EXPECT_EQ(0, session_attach(&self->s, self->vm.fd));
}

/* O_PATH: a descriptor that gives no right to use the file. */
TEST_F(attach, path_only)
{
	int fd = open("/dev/kvm", O_PATH | O_CLOEXEC);

	ASSERT_LE(0, fd);
	EXPECT_EQ(-EBADF, session_attach(&self->s, fd));
}

TEST_F(attach, a_vm_has_one_session)
{
	struct session other;

	ASSERT_EQ(0, session_attach(&self->s, self->vm.fd));
	EXPECT_EQ(-EBUSY, session_attach(&self->s, self->vm.fd));
	session_open(&other);
	EXPECT_EQ(-EBUSY, session_attach(&other, self->vm.fd));
	session_close(&self->s);
	PROOF(EXPECT_EQ(0, session_attach(&other, self->vm.fd)));
	session_close(&other);
	session_open(&self->s);
}

TEST_F(attach, a_session_has_one_vm)
{
	struct vm other;

	vm_create(&other, 0, 0);
	ASSERT_EQ(0, session_attach(&self->s, self->vm.fd));
	EXPECT_EQ(-EBUSY, session_attach(&self->s, other.fd));
	vm_destroy(&other);
}

TEST_F(attach, unknown_flags)
{
	unsigned int bit;

	for (bit = 0; bit < 32; bit++) {
		struct godwit_attach a = { .vm_fd = self->vm.fd, .flags = 1U << bit };

		EXPECT_EQ(-1, ioctl(self->s.fd, GODWIT_ATTACH, &a));
		EXPECT_EQ(EINVAL, errno);
	}
	EXPECT_EQ(0, session_attach(&self->s, self->vm.fd));
}

TEST_F(attach, without_cap_sys_admin)
{
	drop_sys_admin();
	EXPECT_EQ(-1, open("/dev/godwit", O_RDWR));
	EXPECT_EQ(EPERM, errno);
	EXPECT_EQ(-EPERM, session_attach(&self->s, self->vm.fd));
	EXPECT_EQ(-EPERM, session_add_ram(&self->s, self->vm.fd));
	EXPECT_EQ(-EPERM, session_start(&self->s));
	EXPECT_EQ(-EPERM, session_harvest(&self->s, NULL));
	EXPECT_EQ(-EPERM, session_clear(&self->s, 0, 0, 0));
	EXPECT_EQ(MAP_FAILED, mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, self->s.fd, 0));
	EXPECT_EQ(EPERM, errno);
}

/* The ring is sized before the first vCPU. */
TEST_F(attach, dirty_ring)
{
	struct kvm_enable_cap cap = { .cap = KVM_CAP_DIRTY_LOG_RING, .args = { 65536 } };
	struct vm ring;

	vm_create(&ring, 0, 0);
	ASSERT_EQ(0, ioctl(ring.fd, KVM_ENABLE_CAP, &cap)) {
		TH_LOG("%s", strerror(errno));
	}
	EXPECT_EQ(-EOPNOTSUPP, session_attach(&self->s, ring.fd));
	EXPECT_EQ(0, session_attach(&self->s, self->vm.fd));
	vm_destroy(&ring);
}

/* A descriptor that pidfd_getfd() took from another process, as `godwit send` does. */
TEST_F(attach, a_vm_of_another_process)
{
	int vm_fd;
	pid_t pid = vm_elsewhere(NULL, NULL, &vm_fd);

	EXPECT_EQ(0, session_attach(&self->s, vm_fd));
	kill_process(pid);
	/* The VM's struct kvm lives as long as our descriptor, its memory does not. */
	EXPECT_EQ(-EOWNERDEAD, session_start(&self->s));
	session_close(&self->s);
	session_open(&self->s);
	EXPECT_EQ(-EOWNERDEAD, session_attach(&self->s, vm_fd));
	close(vm_fd);
}

KST_MAIN
