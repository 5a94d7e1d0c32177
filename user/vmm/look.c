// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>

#include "claim/owners.h"
#include "page/page.h"
#include "vmm/dirty_rate.h"
#include "vmm/jobs.h"
#include "vmm/look.h"
#include "vmm/ram.h"

static bool has_qmp(const struct look *l)
{
	return *l->qmp;
}

static bool has_vm(const struct look *l)
{
	return l->vm->pid > 0;
}

static pid_t pid_of(const struct look *l)
{
	return l->pid ? l->pid : qmp_peer_pid(*l->qmp);
}

static bool has_process(const struct look *l)
{
	return has_qmp(l) && pid_of(l) > 0;
}

static int open_qmp(struct look *l, struct err *e)
{
	return qmp_open(l->qmp_path, l->timeout_ms, l->qmp, e);
}

static void found_qmp(const struct look *l, char *text, size_t size)
{
	unsigned int v = qmp_version(*l->qmp);

	snprintf(text, size, "QEMU %u.%u.%u, process %d", v / 10000, v / 100 % 100, v % 100, (int)pid_of(l));
}

static int check_alone(struct look *l, struct err *e)
{
	struct claim tried = CLAIM_NONE;
	int r = claim_process(l->claim ? l->claim : &tried, pid_of(l), e);

	claim_drop(&tried, NULL);
	return r;
}

static void found_alone(const struct look *l, char *text, size_t size)
{
	(void)l;
	snprintf(text, size, "no other godwit is at work on this VM");
}

static int check_state(struct look *l, struct err *e)
{
	struct dirty_rate ignored;
	int r = claim_check_mark(*l->qmp, e);

	if (!r)
		r = migration_check(l->migration, *l->qmp, false, l->downtime_limit_ms, e);
	return r || l->pause ? r : dirty_rate_begin(*l->qmp, &ignored, e);
}

static void found_state(const struct look *l, char *text, size_t size)
{
	snprintf(text, size, "the guest %s, no migration is under way", l->migration->was_running ? "runs" : "is paused");
}

static int check_blockers(struct look *l, struct err *e)
{
	return migration_check_blockers(*l->qmp, e);
}

static void found_no_blockers(const struct look *l, char *text, size_t size)
{
	(void)l;
	snprintf(text, size, "QEMU names nothing that it cannot migrate");
}

static int check_jobs(struct look *l, struct err *e)
{
	return jobs_check(*l->qmp, e);
}

static void found_no_jobs(const struct look *l, char *text, size_t size)
{
	(void)l;
	snprintf(text, size, "no block job and no dump is under way");
}

static int find_ram(struct look *l, struct err *e)
{
	int r = vm_find(*l->qmp, l->pid, 0, l->vm, e);

	return r ? r : ram_refuse_ivshmem(*l->qmp, e);
}

static void found_ram(const struct look *l, char *text, size_t size)
{
	unsigned int huge = 0;
	uint64_t pages = 0;

	for (unsigned int i = 0; i < l->vm->nblocks; i++) {
		pages += l->vm->blocks[i].pages;
		huge += l->vm->blocks[i].hugetlb;
	}
	snprintf(text, size, "%llu MiB in %u shared file%s on %s", (unsigned long long)(pages * PAGE_BYTES >> 20),
		 l->vm->nblocks, l->vm->nblocks == 1 ? "" : "s",
		 !huge ? "tmpfs" : huge == l->vm->nblocks ? "hugetlbfs" : "tmpfs and hugetlbfs");
}

static int check_sharing(struct look *l, struct err *e)
{
	return owners_check("/proc", l->vm, OWNERS_SOURCE, e);
}

static void found_no_sharing(const struct look *l, char *text, size_t size)
{
	(void)l;
	snprintf(text, size, "no other VM maps its files");
}

static int find_kvm(struct look *l, struct err *e)
{
	return vm_find_kvm(l->vm, e);
}

static void found_kvm(const struct look *l, char *text, size_t size)
{
	(void)l;
	snprintf(text, size, "the process runs one KVM VM");
}

static int check_devices(struct look *l, struct err *e)
{
	return vm_check_devices(*l->qmp, pid_of(l), e);
}

static void found_devices(const struct look *l, char *text, size_t size)
{
	(void)l;
	snprintf(text, size, "no VFIO, vDPA or RDMA device, no fixed buffers, no free-page hints");
}

static int check_direct_io(struct look *l, struct err *e)
{
	return vm_check_direct_io(pid_of(l), e);
}

static void found_direct_io(const struct look *l, char *text, size_t size)
{
	(void)l;
	snprintf(text, size, "all direct reads into guest RAM can be seen");
}

static bool has_vm_state(const struct look *l)
{
	return has_vm(l) && l->migration->qmp;
}

static int choose_way(struct look *l, struct err *e)
{
	return way_choose(l->wish, *l->qmp, l->vm, l->migration->was_running, l->way, l->private, e);
}

static void found_way(const struct look *l, char *text, size_t size)
{
	if (*l->way == WAY_MIGRATE)
		snprintf(text, size, "by a migration of QEMU's own");
	else
		snprintf(text, size, "saved by QEMU%s, %u parts of private RAM beside it",
			 *l->way == WAY_EITHER ? " if the destination can load that" : "", l->private->n);
}

const struct look_step look_steps[] = {
	{ "QMP", open_qmp, NULL, found_qmp },
	{ "alone", check_alone, has_process, found_alone },
	{ "state", check_state, has_qmp, found_state },
	{ "QEMU's word", check_blockers, has_qmp, found_no_blockers },
	{ "jobs", check_jobs, has_qmp, found_no_jobs },
	{ "RAM", find_ram, has_qmp, found_ram },
	{ "other VMs", check_sharing, has_vm, found_no_sharing },
	{ "KVM", find_kvm, has_vm, found_kvm },
	{ "devices", check_devices, has_process, found_devices },
	{ "cache modes", check_direct_io, has_process, found_direct_io },
	{ "device state", choose_way, has_vm_state, found_way },
};
const unsigned int look_steps_count = sizeof(look_steps) / sizeof(look_steps[0]);

bool look_leaves_out(const struct look *l, const struct look_step *step)
{
	return l->pause && step->run == find_kvm;
}

int look_all(struct look *l, struct err *e)
{
	int r = 0;

	for (unsigned int i = 0; !r && i < look_steps_count; i++)
		if (!look_leaves_out(l, &look_steps[i]))
			r = look_steps[i].run(l, e);
	return r;
}
