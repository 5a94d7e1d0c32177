// SPDX-License-Identifier: GPL-2.0-only
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "bench.h"

/* As QEMU does it: logs are cleared by hand, and begin all ones. */
#define MANUAL_INITIALLY_SET	3
#define NAME_MAX_BYTES		256

uint64_t target_slot_pages(const struct target *t)
{
	return t->pages / t->slots;
}

void target_set_logging(struct target *t, unsigned int slot, bool on)
{
	uint64_t bytes = target_slot_pages(t) * PAGE, at = (slot - 1) * bytes;

	require(!vm_slot(&t->vm, slot, on ? KVM_MEM_LOG_DIRTY_PAGES : 0, TARGET_GPA + at, bytes,
			 t->ram.map + at), "KVM_SET_USER_MEMORY_REGION");
}

void target_open(struct target *t, uint64_t bytes, unsigned int slots, bool huge)
{
	*t = (struct target){ .pages = bytes / PAGE, .slots = slots };
	vm_create_long(&t->vm, MANUAL_INITIALLY_SET);
	require(!ram_create(&t->ram, huge ? RAM_2M : RAM_TMPFS, bytes), "a RAM file");
	for (unsigned int i = 1; i <= slots; i++)
		target_set_logging(t, i, false);
	t->stats = ioctl(t->vm.fd, KVM_GET_STATS_FD, NULL);
	require(t->stats >= 0, "KVM_GET_STATS_FD");
	runner_open(t);
}

void target_close(struct target *t)
{
	runner_close(t);
	close(t->stats);
	vm_destroy(&t->vm);
	ram_destroy(&t->ram);
}

static void read_stats(const struct target *t, void *to, size_t bytes, uint64_t at)
{
	require(pread(t->stats, to, bytes, (off_t)at) == (ssize_t)bytes, "KVM's statistics");
}

uint64_t target_stat(const struct target *t, const char *name)
{
	struct kvm_stats_header h;
	char buf[sizeof(struct kvm_stats_desc) + NAME_MAX_BYTES];
	struct kvm_stats_desc *d = (struct kvm_stats_desc *)buf;
	uint64_t value;

	read_stats(t, &h, sizeof(h), 0);
	require(h.name_size <= NAME_MAX_BYTES, "short names of KVM's statistics");
	for (uint32_t i = 0; i < h.num_desc; i++) {
		size_t size = sizeof(*d) + h.name_size;

		read_stats(t, buf, size, h.desc_offset + i * size);
		if (strcmp(d->name, name))
			continue;
		read_stats(t, &value, sizeof(value), (uint64_t)h.data_offset + d->offset);
		return value;
	}
	die("KVM has no statistic %s", name);
}
