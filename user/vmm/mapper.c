// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "proc/proc_io.h"
#include "vmm/devices.h"
#include "vmm/mapper.h"

struct mapper_scan {
	const char *thread;	/* /proc/PID/task/TID */
	struct mapper *m;
};

static int mapper_refuse_file(const struct mapper *m, const char *what, const char *link,
			      const char *way_out, struct err *e)
{
	char shown[256];

	return err_set(e, GW_PINNED, EBUSY,
		       "%s maps guest RAM, and %s (%s) writes that RAM unseen by godwit: %s", m->name,
		       what, one_line(shown, sizeof(shown), link), way_out);
}

static void mapper_note_device(struct mapper *m, const char *what, const char *link)
{
	char shown[256];

	snprintf(m->device, sizeof(m->device), "%s (%s)", what, one_line(shown, sizeof(shown), link));
}

static int mapper_check_file(void *arg, const char *number, const char *link, struct err *e)
{
	const struct device_file *device = device_that_writes(link);
	struct mapper_scan *scan = arg;
	struct proc_fdinfo info;
	char path[PATH_MAX], way_out[160];
	const char *ring;
	struct hidden_io io;
	int r;

	if (device && device->way_out)
		return mapper_refuse_file(scan->m, device->what, link, device->way_out, e);
	if (device)
		mapper_note_device(scan->m, device->what, link);
	r = devices_load_fdinfo(scan->thread, number, link, &info, &ring, e);
	if (r)
		return r;
	if (ring)
		mapper_note_device(scan->m, ring, link);
	if (!(info.flags & O_DIRECT))
		return 0;
	snprintf(path, sizeof(path), "%s/fd/%s", scan->thread, number);
	r = direct_io_hides(path, &io, e);
	snprintf(way_out, sizeof(way_out), "let that process open the file without O_DIRECT%s",
		 io.or_move);
	return r <= 0 ? r : mapper_refuse_file(scan->m, io.what, link, way_out, e);
}

static int mapper_scan(const char *proc, struct mapper *m, struct err *e)
{
	char thread[PATH_MAX / 2], comm[64];
	struct mapper_scan scan = { thread, m };
	int r;

	proc_name(proc, comm, sizeof(comm));
	snprintf(m->name, sizeof(m->name), "process %.20s (%s)", strrchr(proc, '/') + 1, comm);
	r = devices_check_tracer(proc, m->name, 0, e);
	if (!r)
		r = proc_live_thread(proc, thread, sizeof(thread), e);
	return r <= 0 ? r : proc_each_fd(thread, mapper_check_file, &scan, e);
}

int mapper_check(const char *proc, struct mapper *m, struct err *e)
{
	struct err own = { 0 };
	int r;

	*m = (struct mapper) { 0 };
	r = mapper_scan(proc, m, &own);
	if (r == -ESRCH)
		return 0;
	return r ? err_set(e, own.exit, -r, "%s", own.text) : 0;
}

int mapper_refuse(const struct mapper *m, const char *ram, uint64_t page, struct err *e)
{
	return err_set(e, GW_PINNED, EBUSY,
		       "%s has %s, and guest RAM is pinned for DMA (page %llu of %s), so a device may write that RAM unseen by godwit: unplug what that process serves (device_del), or end the process",
		       m->name, m->device, (unsigned long long)page, ram);
}
