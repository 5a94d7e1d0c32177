// SPDX-License-Identifier: GPL-2.0-only
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault.h"
#include "host.h"

#define DEBUGFS	"/sys/kernel/debug/"

void fault_setup(void)
{
	static const char * const waiting[] = {
		DEBUGFS "failslab/ignore-gfp-wait", DEBUGFS "fail_page_alloc/ignore-gfp-wait",
		DEBUGFS "fail_page_alloc/ignore-gfp-highmem",
	};
	unsigned int i;

	/* By default only allocations that may not wait fail, and single pages never do. */
	for (i = 0; i < sizeof(waiting) / sizeof(waiting[0]); i++)
		require(!file_write(waiting[i], "N"), waiting[i]);
	require(!file_write(DEBUGFS "fail_page_alloc/min-order", "0"), "fail_page_alloc/min-order");
	require(!file_write(DEBUGFS "failslab/verbose", "0"), "failslab/verbose");
	require(!file_write(DEBUGFS "fail_page_alloc/verbose", "0"), "fail_page_alloc/verbose");
}

static void add(struct fault *f, const char *pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%.20s/fail-nth", pid);
	require(f->nr < WORKERS_MAX, "fewer workers");
	f->fds[f->nr] = open(path, O_RDWR | O_CLOEXEC);
	if (f->fds[f->nr] >= 0)
		f->nr++;	/* else it has ended */
}

/* A worker of high priority, as godwit's queue has them: comm kworker/CPU:IDH, nice -20. */
static bool is_worker(const char *pid)
{
	char path[64], stat[1024] = "", *field;
	int fd, i;

	snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (read(fd, stat, sizeof(stat) - 1) < 0)
		stat[0] = '\0';
	close(fd);
	field = strrchr(stat, ')');
	if (!field || !strstr(stat, "(kworker/"))
		return false;
	for (i = 2; i < 19 && field; i++)
		field = strchr(field + 1, ' ');
	return field && strtol(field, NULL, 10) == -20;
}

static void add_workers(struct fault *f)
{
	struct dirent *entry;
	DIR *dir = opendir("/proc");

	require(dir, "/proc");
	while ((entry = readdir(dir)))
		if (isdigit((unsigned char)entry->d_name[0]) && is_worker(entry->d_name))
			add(f, entry->d_name);
	closedir(dir);
}

void fault_prepare(struct fault *f, enum where where)
{
	f->nr = 0;
	if (where == IN_CALLER)
		add(f, "self");
	else
		add_workers(f);
	require(f->nr, "a thread to arm");
}

/* A worker may have ended meanwhile: then there is nothing to arm, nor to look at. */
void fault_arm(struct fault *f, unsigned int nth)
{
	char text[16];
	unsigned int i;
	int len = snprintf(text, sizeof(text), "%u", nth);

	f->nth = nth;
	for (i = 0; i < f->nr; i++)
		if (pwrite(f->fds[i], text, len, 0) != len)
			continue;
}

struct outcome fault_disarm(struct fault *f)
{
	struct outcome o = { 0 };
	unsigned int i, left;
	char text[16];
	ssize_t n;

	for (i = 0; i < f->nr; i++) {
		n = pread(f->fds[i], text, sizeof(text) - 1, 0);
		if (n > 0 && pwrite(f->fds[i], "0", 1, 0) == 1) {
			text[n] = '\0';
			left = strtoul(text, NULL, 10);
			o.fired |= !left;
			if (f->nth - left > o.counted)
				o.counted = f->nth - left;
		}
		close(f->fds[i]);
	}
	f->nr = 0;
	return o;
}
