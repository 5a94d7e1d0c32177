// SPDX-License-Identifier: GPL-2.0-only
/*
 * A process is killed while a thread of the kernel's waits for a page of it, and its helper has
 * gone. Before Linux 6.4 a worker of vhost has no signal that would end the wait, the process waits
 * for the worker when it closes the device, and its mm has the worker for a user. Since then the
 * worker is a thread of the process. The signal that kills it ends the wait, but for work that was
 * queued meanwhile it waits once more, with no signal left.
 */
#include <fcntl.h>
#include <linux/vhost.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "kst.h"
#include "postcopy.h"

#define PAGES	8
#define GONE_MS	10000
#define KEPT	SYSFS "kept_userfaultfds"
#define ENTRIES	16
#define TX	1

/* What the ring has in which page. */
enum { DESCRIPTORS, USED, AVAILABLE };

FIXTURE(vhost) {
	struct ram ram;
	struct player p;
};

FIXTURE_VARIANT(vhost) {
	bool again;	/* it is kicked once more while the worker waits */
};

FIXTURE_VARIANT_ADD(vhost, once) {};
FIXTURE_VARIANT_ADD(vhost, again) { .again = true };

static int kick_fd;	/* the process has it as well */

/* Begins a virtio-net device, whose ring for sending is in the RAM, and kicks it. */
static void begin_net(struct player *p)
{
	int fd = open("/dev/vhost-net", O_RDWR | O_CLOEXEC);
	struct vhost_memory *memory = calloc(1, sizeof(*memory) + sizeof(memory->regions[0]));
	struct vhost_vring_state entries = { TX, ENTRIES }, base = { TX, 0 };
	struct vhost_vring_addr addr = {
		.index = TX,
		.desc_user_addr = (uintptr_t)p->at + DESCRIPTORS * PAGE,
		.used_user_addr = (uintptr_t)p->at + USED * PAGE,
		.avail_user_addr = (uintptr_t)p->at + AVAILABLE * PAGE,
	};
	struct vhost_vring_file kick = { TX, kick_fd };
	struct vhost_vring_file backend = { TX, socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0) };
	uint64_t features = 0;

	require(fd >= 0 && memory && backend.fd >= 0, "vhost-net");
	memory->nregions = 1;
	memory->regions[0] = (struct vhost_memory_region) {
		.memory_size = p->ram->bytes, .userspace_addr = (uintptr_t)p->at,
	};
	require(!ioctl(fd, VHOST_SET_OWNER, NULL) && !ioctl(fd, VHOST_SET_FEATURES, &features) &&
		!ioctl(fd, VHOST_SET_MEM_TABLE, memory), "a vhost device");
	require(!ioctl(fd, VHOST_SET_VRING_NUM, &entries) &&
		!ioctl(fd, VHOST_SET_VRING_BASE, &base) &&
		!ioctl(fd, VHOST_SET_VRING_ADDR, &addr) &&
		!ioctl(fd, VHOST_SET_VRING_KICK, &kick), "a ring");
	require(!ioctl(fd, VHOST_NET_SET_BACKEND, &backend), "VHOST_NET_SET_BACKEND");
	require(!eventfd_write(kick.fd, 1), "a kick");
}

FIXTURE_SETUP(vhost)
{
	require(!system("modprobe vhost_net"), "vhost_net");
	kick_fd = eventfd(0, EFD_CLOEXEC);
	ASSERT_LE(0, kick_fd);
	ASSERT_EQ(0, ram_create(&self->ram, RAM_TMPFS, PAGES * PAGE));
	self->p.call = begin_net;
	player_start(&self->p, &self->ram);
}

FIXTURE_TEARDOWN(vhost)
{
	player_end(&self->p);
	ram_destroy(&self->ram);
	close(kick_fd);
	system("modprobe -qr vhost_net");
}

/* A helper that lets the device begin, and dies when the worker waits for the available ring. */
static void begin_and_leave(void *arg)
{
	struct player *p = arg;
	struct helper h;
	int64_t page;

	helper_begin(&h, p, 1);
	player_touch(p, 0, TOUCH_CALL, 0);
	while ((page = helper_fault(&h, p, 10000)) == USED)
		require(!helper_zero(&h, p, page), "UFFDIO_ZEROPAGE");
	require(page == AVAILABLE, "the worker waits for the available ring");
	require(player_touched(p, 0, 10000), "the device has begun");
}

TEST_F(vhost, process_is_killed)
{
	uint64_t begin;

	kill_process(fork_ready(begin_and_leave, &self->p));
	PROOF(EXPECT_EQ(1, file_number(KEPT)));
	if (variant->again)
		ASSERT_EQ(0, eventfd_write(kick_fd, 1));
	kill(self->p.pid, SIGKILL);
	for (begin = now_ms(); !waitpid(self->p.pid, NULL, WNOHANG);) {
		PROOF(ASSERT_GT(GONE_MS, now_ms() - begin));
		sleep_ms(10);
	}
	self->p.pid = 0;
	TH_LOG("gone after %lu ms", now_ms() - begin);
	for (begin = now_ms(); file_number(KEPT) && now_ms() - begin < GONE_MS;)
		sleep_ms(10);
	PROOF(EXPECT_EQ(0, file_number(KEPT)));
}

/* A helper that lives serves the worker like anything else. */
TEST_F(vhost, worker_is_served)
{
	struct helper h;
	int64_t page;
	unsigned int n;

	helper_begin(&h, &self->p, 1);
	player_touch(&self->p, 0, TOUCH_CALL, 0);
	for (n = 0; n < 2; n++) {
		page = helper_fault(&h, &self->p, 10000);
		PROOF(ASSERT_EQ(n ? AVAILABLE : USED, page));
		if (n && variant->again)
			ASSERT_EQ(0, eventfd_write(kick_fd, 1));
		EXPECT_EQ(0, helper_zero(&h, &self->p, page));
	}
	EXPECT_TRUE(player_touched(&self->p, 0, 10000));
	PROOF(EXPECT_EQ(-1, helper_fault(&h, &self->p, 200)));
	helper_close(&h);
}

KST_MAIN
