// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "vmm/devices.h"
#include "vmm/mapper.h"
#include "vmm/proc_io.h"
#include "vmm/text.h"

struct look {
	const char *thread;	/* /proc/PID/task/TID */
	struct mapper *m;
};

static int refuse(const struct mapper *m, const char *what, const char *link, const char *way_out, struct err *e)
{
	char shown[256];

	return err_set(e, GW_PINNED, EBUSY, "%s, which maps guest RAM, has it written where nobody can see it by %s (%s): %s", m->name, what,
		       one_line(shown, sizeof(shown), link), way_out);
}

static void note(struct mapper *m, const char *what, const char *link)
{
	char shown[256];

	snprintf(m->device, sizeof(m->device), "%s (%s)", what, one_line(shown, sizeof(shown), link));
}

static int look_at_file(void *arg, const char *number, const char *link, struct err *e)
{
	const struct device_file *device = device_that_writes(link);
	struct look *l = arg;
	struct proc_fdinfo info;
	char path[PATH_MAX], way_out[160];
	struct hidden_io io;
	int r;

	if (device && device->way_out)
		return refuse(l->m, device->what, link, device->way_out, e);
	if (device)
		note(l->m, device->what, link);
	r = proc_load_fdinfo(l->thread, number, &info, e);
	if (r)
		return r;
	if (info.user_bufs)
		note(l->m, "an io_uring with fixed buffers", link);
	if (!(info.flags & O_DIRECT))
		return 0;
	snprintf(path, sizeof(path), "%s/fd/%s", l->thread, number);
	r = direct_io_hides(path, &io, e);
	snprintf(way_out, sizeof(way_out), "let it do without O_DIRECT%s", io.or_move);
	return r <= 0 ? r : refuse(l->m, io.what, link, way_out, e);
}

static int look(const char *proc, struct mapper *m, struct err *e)
{
	char thread[PATH_MAX / 2], comm[64];
	struct look l = { thread, m };
	int r;

	proc_name(proc, comm, sizeof(comm));
	snprintf(m->name, sizeof(m->name), "process %.20s (%s)", strrchr(proc, '/') + 1, comm);
	r = devices_check_tracer(proc, m->name, e);
	if (!r)
		r = proc_live_thread(proc, thread, sizeof(thread), e);
	return r <= 0 ? r : proc_each_fd(thread, look_at_file, &l, e);
}

int mapper_look(const char *proc, struct mapper *m, struct err *e)
{
	struct err own = { 0 };
	int r;

	*m = (struct mapper) { 0 };
	r = look(proc, m, &own);
	if (r == -ESRCH)
		return 0;
	return r ? err_set(e, own.exit, -r, "%s", own.text) : 0;
}

int mapper_refuse(const struct mapper *m, const char *ram, uint64_t page, struct err *e)
{
	return err_set(e, GW_PINNED, EBUSY,
		       "%s has %s, and guest RAM is pinned for DMA (page %llu of %s): a device may write it where nobody can see it: unplug what that process serves (device_del), or end it",
		       m->name, m->device, (unsigned long long)page, ram);
}
