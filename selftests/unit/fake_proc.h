/* SPDX-License-Identifier: GPL-2.0-only */
/* A directory on tmpfs that looks like /proc/PID as far as godwit reads it, with RAM files beside it. */
#ifndef GODWIT_FAKE_PROC_H
#define GODWIT_FAKE_PROC_H

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct fake_proc {
	char dir[64];
};

static inline const char *fake_path(const struct fake_proc *f, const char *name, char path[512])
{
	snprintf(path, 512, "%s/%.400s", f->dir, name);
	return path;
}

static inline int fake_new(struct fake_proc *f)
{
	static const char *const dirs[] = { "fd", "fdinfo", "map_files", "root", "root/mem", "root/dir", "cwd", "task" };
	char path[512];

	strcpy(f->dir, "/dev/shm/godwit-test-XXXXXX");
	if (!mkdtemp(f->dir))
		return -1;
	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		if (mkdir(fake_path(f, dirs[i], path), 0700) < 0)
			return -1;
	close(open(fake_path(f, "maps", path), O_CREAT | O_WRONLY, 0600));
	return 0;
}

static inline int fake_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static inline void fake_remove(const struct fake_proc *f)
{
	nftw(f->dir, fake_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void fake_write(const struct fake_proc *f, const char *name, const char *text)
{
	char path[512];
	FILE *out = fopen(fake_path(f, name, path), "a");

	fputs(text, out);
	fclose(out);
}

/* A file beside, of this size. */
static inline void fake_file(const struct fake_proc *f, const char *name, off_t bytes)
{
	char path[512];
	int fd = open(fake_path(f, name, path), O_CREAT | O_RDWR, 0600);

	if (ftruncate(fd, bytes) < 0)
		abort();
	close(fd);
}

/* Maps the file at that address, under the path that maps shall show. */
static inline void fake_map(const struct fake_proc *f, const char *file, uint64_t start, uint64_t bytes,
			    uint64_t offset, const char *perms, const char *shown)
{
	char target[512], text[1024], path[512];
	struct stat st = { 0 };

	if (*file == '/')
		snprintf(target, sizeof(target), "%s", file);
	else
		fake_path(f, file, target);
	if (stat(target, &st) < 0)
		abort();
	snprintf(text, sizeof(text), "%08" PRIx64 "-%08" PRIx64 " %s %08" PRIx64 " %02x:%02x %llu       %s\n",
		 start, start + bytes, perms, offset, major(st.st_dev), minor(st.st_dev),
		 (unsigned long long)st.st_ino, shown);
	fake_write(f, "maps", text);
	snprintf(text, sizeof(text), "map_files/%" PRIx64 "-%" PRIx64, start, start + bytes);
	if (symlink(target, fake_path(f, text, path)) < 0)
		abort();
}

/* An open descriptor. */
static inline void fake_fd(const struct fake_proc *f, int number, const char *link, const char *info)
{
	char name[64], path[512];

	snprintf(name, sizeof(name), "fd/%d", number);
	if (symlink(link, fake_path(f, name, path)) < 0)
		abort();
	snprintf(name, sizeof(name), "fdinfo/%d", number);
	if (info)
		fake_write(f, name, info);
}

/* A thread in this state, traced by that process (0: by none). Its files have to be made as well, where they matter. */
static inline void fake_thread(const struct fake_proc *f, int tid, char state, int tracer)
{
	char name[64], text[128], path[512];

	snprintf(name, sizeof(name), "task/%d", tid);
	if (mkdir(fake_path(f, name, path), 0700) < 0)
		abort();
	snprintf(name, sizeof(name), "task/%d/stat", tid);
	snprintf(text, sizeof(text), "%d (a) b) %c 1 2 3\n", tid, state);
	fake_write(f, name, text);
	snprintf(name, sizeof(name), "task/%d/status", tid);
	snprintf(text, sizeof(text), "Name:\ta) b\nTracerPid:\t%d\nUid:\t0\n", tracer);
	fake_write(f, name, text);
}

#endif
