// SPDX-License-Identifier: GPL-2.0-only
#include <inttypes.h>
#include <stdio.h>

#include "claim/owners.h"
#include "page/page.h"
#include "qmp/dirty_rate.h"
#include "qmp/jobs.h"
#include "send/preflight.h"
#include "vmm/ram.h"

static bool preflight_has_qmp(const struct preflight *p)
{
	return *p->qmp;
}

static bool preflight_has_vm(const struct preflight *p)
{
	return p->vm->pid > 0;
}

static pid_t preflight_pid_of(const struct preflight *p)
{
	return p->pid ? p->pid : qmp_peer_pid(*p->qmp);
}

static bool preflight_has_process(const struct preflight *p)
{
	return preflight_has_qmp(p) && preflight_pid_of(p) > 0;
}

static int preflight_open_qmp(struct preflight *p, struct err *e)
{
	return qmp_open(p->qmp_path, p->timeout_ms, p->qmp, e);
}

static void preflight_found_qmp(const struct preflight *p, char *text, size_t size)
{
	unsigned int v = qmp_version(*p->qmp);

	snprintf(text, size, "QEMU %u.%u.%u, process %d", v / 10000, v / 100 % 100, v % 100,
		 (int)preflight_pid_of(p));
}

static int preflight_check_alone(struct preflight *p, struct err *e)
{
	struct claim tried = CLAIM_NONE;
	int r = claim_process(p->claim ? p->claim : &tried, preflight_pid_of(p), e);

	claim_drop(&tried, NULL);
	return r;
}

static void preflight_found_alone(const struct preflight *p, char *text, size_t size)
{
	(void)p;
	snprintf(text, size, "no other godwit is at work on this VM");
}

static int preflight_check_state(struct preflight *p, struct err *e)
{
	struct dirty_rate ignored;
	int r = claim_check_mark(*p->qmp, e);

	if (!r)
		r = migration_check(p->migration, *p->qmp, false, p->downtime_limit_ms, e);
	return r || p->pause ? r : dirty_rate_begin(*p->qmp, &ignored, e);
}

static void preflight_found_state(const struct preflight *p, char *text, size_t size)
{
	snprintf(text, size, "the guest %s, no migration is under way",
		 p->migration->was_running ? "runs" : "is paused");
}

static int preflight_check_blockers(struct preflight *p, struct err *e)
{
	return migration_check_blockers(*p->qmp, e);
}

static void preflight_found_no_blockers(const struct preflight *p, char *text, size_t size)
{
	(void)p;
	snprintf(text, size, "none reported by QEMU");
}

static int preflight_check_jobs(struct preflight *p, struct err *e)
{
	return jobs_check(*p->qmp, e);
}

static void preflight_found_no_jobs(const struct preflight *p, char *text, size_t size)
{
	(void)p;
	snprintf(text, size, "no block job and no dump is under way");
}

static int preflight_find_ram(struct preflight *p, struct err *e)
{
	int r = vm_find(*p->qmp, p->pid, 0, p->vm, e);

	return r ? r : ram_find_ivshmem(*p->qmp, p->vm, e);
}

/* Are both blocks held by the same kind of memory? */
static bool preflight_same_kind(const struct ram_block *a, const struct ram_block *b)
{
	return !a->hva == !b->hva && a->memfd == b->memfd && (a->fd < 0) == (b->fd < 0) &&
	       a->page_size == b->page_size;
}

/* So many blocks of one kind, of which b is the first, hold so many pages. */
static int preflight_print_kind(const struct ram_block *b, unsigned int blocks, uint64_t pages,
				char *text, size_t size)
{
	uint64_t mib = pages * PAGE_BYTES >> 20;
	char on[48] = "on tmpfs", files[32];
	bool gib = b->page_size >= 1u << 30;

	if (b->hugetlb)
		snprintf(on, sizeof(on), "on hugetlbfs pages of %u %s",
			 b->page_size >> (gib ? 30 : 20), gib ? "GiB" : "MiB");
	if (b->hva && b->fd < 0)
		return snprintf(text, size, "%" PRIu64 " MiB private to QEMU (anonymous)", mib);
	if (b->hva)
		return snprintf(text, size, "%" PRIu64 " MiB private to QEMU, %s%s", mib,
				b->hugetlb ? "" : "from a file ", on);
	snprintf(files, sizeof(files), "%u %s%s", blocks, b->memfd ? "memfd" : "shared file",
		 blocks == 1 ? "" : "s");
	if (b->memfd && !b->hugetlb)
		return snprintf(text, size, "%" PRIu64 " MiB in %s", mib, files);
	return snprintf(text, size, "%" PRIu64 " MiB in %s %s", mib, files, on);
}

/* Each kind of memory once, in the order of the blocks. */
static void preflight_found_ram(const struct preflight *p, char *text, size_t size)
{
	const struct ram_block *b = p->vm->blocks;
	size_t len = 0;

	for (unsigned int i = 0; i < p->vm->nblocks && len < size; i++) {
		unsigned int first = 0, n = 0;
		uint64_t pages = 0;

		while (!preflight_same_kind(&b[first], &b[i]))
			first++;
		if (first < i)
			continue;
		for (unsigned int j = i; j < p->vm->nblocks; j++)
			if (preflight_same_kind(&b[j], &b[i])) {
				pages += b[j].pages;
				n++;
			}
		if (len)
			len += (size_t)snprintf(text + len, size - len, ", ");
		if (len < size)
			len += (size_t)preflight_print_kind(&b[i], n, pages, text + len,
							    size - len);
	}
}

static int preflight_check_sharing(struct preflight *p, struct err *e)
{
	return owners_check("/proc", p->vm, OWNERS_SOURCE, e);
}

static void preflight_found_no_sharing(const struct preflight *p, char *text, size_t size)
{
	(void)p;
	snprintf(text, size, "no other VM maps its RAM");
}

static int preflight_find_kvm(struct preflight *p, struct err *e)
{
	return vm_find_kvm(p->vm, e);
}

static void preflight_found_kvm(const struct preflight *p, char *text, size_t size)
{
	(void)p;
	snprintf(text, size, "the process runs one KVM VM");
}

static int preflight_check_devices(struct preflight *p, struct err *e)
{
	return vm_check_devices(*p->qmp, preflight_pid_of(p), 0, e);
}

static void preflight_found_devices(const struct preflight *p, char *text, size_t size)
{
	(void)p;
	snprintf(text, size, "no VFIO, vDPA or RDMA device, no fixed buffers, no free-page hints");
}

static int preflight_check_direct_io(struct preflight *p, struct err *e)
{
	return vm_check_direct_io(preflight_pid_of(p), e);
}

static void preflight_found_direct_io(const struct preflight *p, char *text, size_t size)
{
	(void)p;
	snprintf(text, size, "godwit sees all direct reads into guest RAM");
}

static bool preflight_has_vm_state(const struct preflight *p)
{
	return preflight_has_vm(p) && p->migration->qmp;
}

static int preflight_choose_mode(struct preflight *p, struct err *e)
{
	return mode_choose(p->wish, false, *p->qmp, p->vm, p->migration->was_running, p->mode,
			   p->private, e);
}

static void preflight_found_mode(const struct preflight *p, char *text, size_t size)
{
	if (*p->mode == MODE_MIGRATE)
		snprintf(text, size, "migrate mode: by a migration of QEMU's own");
	else
		snprintf(text, size, "save mode%s, %u parts of private RAM beside it",
			 *p->mode == MODE_EITHER ? " if the destination can load that" : "",
			 p->private->n);
}

const struct preflight_step preflight_steps[] = {
	{ "QMP", preflight_open_qmp, NULL, preflight_found_qmp },
	{ "alone", preflight_check_alone, preflight_has_process, preflight_found_alone },
	{ "state", preflight_check_state, preflight_has_qmp, preflight_found_state },
	{ "blockers", preflight_check_blockers, preflight_has_qmp, preflight_found_no_blockers },
	{ "jobs", preflight_check_jobs, preflight_has_qmp, preflight_found_no_jobs },
	{ "RAM", preflight_find_ram, preflight_has_qmp, preflight_found_ram },
	{ "other VMs", preflight_check_sharing, preflight_has_vm, preflight_found_no_sharing },
	{ "KVM", preflight_find_kvm, preflight_has_vm, preflight_found_kvm },
	{ "devices", preflight_check_devices, preflight_has_process, preflight_found_devices },
	{ "cache modes", preflight_check_direct_io, preflight_has_process,
	  preflight_found_direct_io },
	{ "device state", preflight_choose_mode, preflight_has_vm_state, preflight_found_mode },
};
const unsigned int preflight_steps_count = sizeof(preflight_steps) / sizeof(preflight_steps[0]);

bool preflight_leaves_out(const struct preflight *p, const struct preflight_step *step)
{
	return p->pause && step->run == preflight_find_kvm;
}

int preflight_all(struct preflight *p, struct err *e)
{
	int r = 0;

	for (unsigned int i = 0; !r && i < preflight_steps_count; i++)
		if (!preflight_leaves_out(p, &preflight_steps[i]))
			r = preflight_steps[i].run(p, e);
	return r;
}
