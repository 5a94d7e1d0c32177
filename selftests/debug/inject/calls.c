// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <linux/godwit.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "calls.h"
#include "host.h"
#include "netlink.h"

/* The one session's number. */
static long session_id;

static void look_up(struct trial *t)
{
	(void)t;
	require(sessions_count(&session_id), "a session");
}

static void write_news(struct trial *t)
{
	trial_settle(t);
	trial_write(t);
}

static void write_and_change(struct trial *t)
{
	write_news(t);
	trial_change(t);
}

static int add_and_start(struct trial *t)
{
	return trial_add_ram(t) ?: trial_start(t);
}

/* munmap() allocates too, and is not the call that is meant. */
static void unmap(struct trial *t)
{
	session_unmap(&t->s);
}

/* Of this process; opened once. */
static int mem_fd = -1, userfaultfd_fd = -1;

static void keep(struct trial *t)
{
	if (mem_fd < 0) {
		mem_fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
		userfaultfd_fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	}
	require(mem_fd >= 0 && userfaultfd_fd >= 0, "the descriptors that UFFD asks for");
	require(!trial_keep(t), "GODWIT_KEEP");
}

static int uffd(struct trial *t)
{
	struct godwit_uffd a = { .mem_fd = mem_fd, .dev_fd = userfaultfd_fd };

	if (ioctl(t->s.fd, GODWIT_UFFD, &a))
		return -errno;
	close(a.fd);
	return 0;
}

static void keep_one(struct trial *t)
{
	keep(t);
	require(!uffd(t), "GODWIT_UFFD");
}

static int harvest(struct trial *t)
{
	return session_harvest(&t->s, NULL);
}

static int clear(struct trial *t)
{
	return session_clear(&t->s, 0, 0, t->s.ram[0].npages);
}

/* The RAM files are tmpfs, whose holes lseek() knows. */
static int next_data(struct trial *t)
{
	uint64_t at, len;
	int r = session_next_data(&t->s, 0, 0, 1, &at, &len);

	return r == -EOPNOTSUPP ? 0 : r;
}

static int mappers(struct trial *t)
{
	uint32_t pids[4];
	struct godwit_mappers a = { .pids = (uintptr_t)pids, .room = 4 };

	return ioctl(t->s.fd, GODWIT_MAPPERS, &a) ? -errno : 0;
}

static int next_pinned(struct trial *t)
{
	struct godwit_range a = { .npages = t->s.ram[0].npages };

	return ioctl(t->s.fd, GODWIT_NEXT_PINNED, &a) && errno != ENXIO ? -errno : 0;
}

static int get_session(struct trial *t)
{
	(void)t;
	return netlink_get(session_id);
}

static int dump_sessions(struct trial *t)
{
	(void)t;
	return netlink_dump();
}

static int read_counter(struct trial *t)
{
	char path[96], text[32];
	int fd, err = 0;

	(void)t;
	snprintf(path, sizeof(path), SYSFS "sessions/%ld/harvests", session_id);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (read(fd, text, sizeof(text)) <= 0)
		err = -errno;
	close(fd);
	return err;
}

const struct call calls[] = {
	{ "open", IN_CALLER, NOTHING, OPENED, .run = trial_open, .allocates = true },
	{ "KEEP", IN_CALLER, OPENED, NOTHING, .run = trial_keep, .allocates = true },
	{ "UFFD", IN_CALLER, OPENED, NOTHING, keep, uffd, .allocates = true },
	{ "UFFD", IN_WORKER, OPENED, NOTHING, keep, uffd, .allocates = true },
	{ "KEEP_END", IN_CALLER, OPENED, NOTHING, .prepare = keep_one, .run = trial_keep_end },
	{ "ATTACH", IN_CALLER, OPENED, ATTACHED, .run = trial_attach, .allocates = true },
	{ "ATTACH", IN_WORKER, OPENED, ATTACHED, .run = trial_attach, .allocates = true },
	{ "ADD_RAM", IN_CALLER, ATTACHED, ADDED, .run = trial_add_ram, .allocates = true },
	{ "mmap", IN_CALLER, STARTED, STARTED, unmap, trial_map, .allocates = true },
	{ "START", IN_CALLER, ADDED, STARTED, .run = trial_start, .again = add_and_start,
	  .allocates = true },
	{ "START", IN_WORKER, ADDED, STARTED, .run = trial_start, .again = add_and_start,
	  .allocates = true },
	{ "HARVEST", IN_CALLER, STARTED, STARTED, write_news, harvest, .allocates = true,
	  .reports = true },
	{ "HARVEST", IN_WORKER, STARTED, STARTED, write_news, harvest, .allocates = true,
	  .reports = true },
	{ "HARVEST after a change", IN_WORKER, STARTED, STARTED, write_and_change, harvest,
	  .allocates = true, .reports = true },
	{ "CLEAR", IN_CALLER, STARTED, STARTED, .run = clear, .allocates = true },
	{ "CLEAR", IN_WORKER, STARTED, STARTED, .run = clear, .allocates = true },
	{ "NEXT_DATA", IN_CALLER, STARTED, STARTED, .run = next_data },
	{ "NEXT_PINNED", IN_CALLER, STARTED, STARTED, .run = next_pinned },
	{ "MAPPERS", IN_CALLER, STARTED, STARTED, .run = mappers, .allocates = true },
	{ "netlink get", IN_CALLER, STARTED, STARTED, look_up, get_session, .allocates = true },
	{ "netlink dump", IN_CALLER, STARTED, STARTED, .run = dump_sessions, .allocates = true },
	{ "sysfs", IN_CALLER, STARTED, STARTED, look_up, read_counter, .allocates = true },
	{ "close", IN_CALLER, STARTED, NOTHING, unmap, .run = trial_close },
	{ "close", IN_WORKER, STARTED, NOTHING, unmap, .run = trial_close, .allocates = true },
};

const unsigned int nr_calls = sizeof(calls) / sizeof(calls[0]);
