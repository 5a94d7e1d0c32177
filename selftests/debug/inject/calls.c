// SPDX-License-Identifier: GPL-2.0-only
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/godwit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "calls.h"
#include "host.h"
#include "netlink.h"

/* The one session's number. */
static char session_id[16];

static void look_up(struct rig *r)
{
	struct dirent *entry;
	DIR *dir = opendir(SYSFS "sessions");

	(void)r;
	require(dir, SYSFS "sessions");
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			snprintf(session_id, sizeof(session_id), "%.15s", entry->d_name);
	closedir(dir);
}

static void write_news(struct rig *r)
{
	rig_settle(r);
	rig_write(r);
}

static void write_and_change(struct rig *r)
{
	write_news(r);
	rig_change(r);
}

static int add_and_start(struct rig *r)
{
	return rig_add_ram(r) ?: rig_start(r);
}

/* munmap() allocates too, and is not the call that is meant. */
static void unmap(struct rig *r)
{
	unsigned int i;

	for (i = 0; i < r->s.nr_rams; i++) {
		require(!munmap(r->s.ram[i].words, r->s.ram[i].bytes), "munmap of a bitmap");
		r->s.ram[i].words = NULL;
	}
}

static int harvest(struct rig *r)
{
	return session_harvest(&r->s, NULL);
}

static int clear(struct rig *r)
{
	return session_clear(&r->s, 0, 0, r->s.ram[0].npages);
}

/* The RAM files are tmpfs, whose holes lseek() knows. */
static int next_data(struct rig *r)
{
	struct godwit_range a = { .npages = 1 };

	return ioctl(r->s.fd, GODWIT_NEXT_DATA, &a) && errno != EOPNOTSUPP ? -errno : 0;
}

static int mappers(struct rig *r)
{
	uint32_t pids[4];
	struct godwit_mappers a = { .pids = (uintptr_t)pids, .room = 4 };

	return ioctl(r->s.fd, GODWIT_MAPPERS, &a) ? -errno : 0;
}

static int next_pinned(struct rig *r)
{
	struct godwit_range a = { .npages = r->s.ram[0].npages };

	return ioctl(r->s.fd, GODWIT_NEXT_PINNED, &a) && errno != ENXIO ? -errno : 0;
}

static int get_session(struct rig *r)
{
	(void)r;
	return netlink_get(strtoul(session_id, NULL, 10));
}

static int dump_sessions(struct rig *r)
{
	(void)r;
	return netlink_dump();
}

static int read_counter(struct rig *r)
{
	char path[96], text[32];
	int fd, err = 0;

	(void)r;
	snprintf(path, sizeof(path), SYSFS "sessions/%s/harvests", session_id);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (read(fd, text, sizeof(text)) <= 0)
		err = -errno;
	close(fd);
	return err;
}

const struct call calls[] = {
	{ "open", IN_CALLER, NOTHING, OPENED, .run = rig_open, .allocates = true },
	{ "ATTACH", IN_CALLER, OPENED, ATTACHED, .run = rig_attach, .allocates = true },
	{ "ATTACH", IN_WORKER, OPENED, ATTACHED, .run = rig_attach, .allocates = true },
	{ "ADD_RAM", IN_CALLER, ATTACHED, ADDED, .run = rig_add_ram, .allocates = true },
	{ "mmap", IN_CALLER, STARTED, STARTED, unmap, rig_map, .allocates = true },
	{ "START", IN_CALLER, ADDED, STARTED, .run = rig_start, .again = add_and_start, .allocates = true },
	{ "START", IN_WORKER, ADDED, STARTED, .run = rig_start, .again = add_and_start, .allocates = true },
	{ "HARVEST", IN_CALLER, STARTED, STARTED, write_news, harvest, .allocates = true, .reports = true },
	{ "HARVEST", IN_WORKER, STARTED, STARTED, write_news, harvest, .allocates = true, .reports = true },
	{ "HARVEST after a change", IN_WORKER, STARTED, STARTED, write_and_change, harvest, .allocates = true,
	  .reports = true },
	{ "CLEAR", IN_CALLER, STARTED, STARTED, .run = clear, .allocates = true },
	{ "CLEAR", IN_WORKER, STARTED, STARTED, .run = clear, .allocates = true },
	{ "NEXT_DATA", IN_CALLER, STARTED, STARTED, .run = next_data },
	{ "NEXT_PINNED", IN_CALLER, STARTED, STARTED, .run = next_pinned },
	{ "MAPPERS", IN_CALLER, STARTED, STARTED, .run = mappers, .allocates = true },
	{ "netlink get", IN_CALLER, STARTED, STARTED, look_up, get_session, .allocates = true },
	{ "netlink dump", IN_CALLER, STARTED, STARTED, .run = dump_sessions, .allocates = true },
	{ "sysfs", IN_CALLER, STARTED, STARTED, look_up, read_counter, .allocates = true },
	{ "close", IN_CALLER, STARTED, NOTHING, unmap, .run = rig_close },
	{ "close", IN_WORKER, STARTED, NOTHING, unmap, .run = rig_close, .allocates = true },
};

const unsigned int nr_calls = sizeof(calls) / sizeof(calls[0]);
