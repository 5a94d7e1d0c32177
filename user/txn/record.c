// SPDX-License-Identifier: GPL-2.0-only
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "txn/record.h"

#define LOCK_TRIES	20u	/* a millisecond apart */

const char *record_dir(void)
{
	static char first[128];	/* of several directories, with colons between them */
	const char *dir = getenv("RUNTIME_DIRECTORY");

	if (!dir || *dir != '/')
		return RECORD_DIR;
	snprintf(first, sizeof(first), "%.*s", (int)strcspn(dir, ":"), dir);
	return first;
}

/*
 * Has its last holder unlinked the file between our open() and our lock? Then no other process sees
 * our lock.
 */
static bool record_is_linked(const struct record *r)
{
	struct stat ours, named;

	return !fstat(r->fd, &ours) && !stat(r->path, &named) && ours.st_dev == named.st_dev &&
	       ours.st_ino == named.st_ino;
}

/*
 * Names of files there are secrets, by which anybody may ask or answer for a migration. What an
 * older godwit has left open is closed; a directory of other programs is theirs to change.
 */
static int record_check_dir(const char *dir)
{
	const char *slash = strrchr(dir, '/');
	bool its_own = !strncmp(slash ? slash + 1 : dir, "godwit", strlen("godwit"));
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	int r = 0;

	if (fd < 0)
		return -errno;
	/* A service with capabilities may use root's, and root, which resolves, a service's. */
	if (fstat(fd, &st) || (st.st_uid && st.st_uid != geteuid() && geteuid()))
		r = -EPERM;
	else if ((st.st_mode & 077) && (!its_own || fchmod(fd, 0700)))
		r = -EPERM;
	close(fd);
	return r;
}

const char *record_error(int r)
{
	return r == -EPERM ? "it must be of godwit's own user, and no other's to look into: mode 0700, for a service RuntimeDirectoryMode=0700" :
			     strerror(-r);
}

int record_open(struct record *r, const char *dir, const char *name)
{
	/* Who reads records holds each for an instant. */
	unsigned int tries = LOCK_TRIES;
	bool locked;
	int ret;

	r->fd = -1;
	if (mkdir(dir, 0700) < 0 && errno != EEXIST)
		return -errno;
	ret = record_check_dir(dir);
	if (ret)
		return ret;
	if ((size_t)snprintf(r->path, sizeof(r->path), "%s/%s", dir, name) >= sizeof(r->path))
		return -ENAMETOOLONG;
	for (;;) {
		r->fd = open(r->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (r->fd < 0)
			return -errno;
		locked = !flock(r->fd, LOCK_EX | LOCK_NB);
		if (locked && record_is_linked(r))
			return 0;
		close(r->fd);
		r->fd = -1;
		if (locked)
			continue;
		if (!tries--)
			return -EBUSY;
		nap_ms(1);
	}
}

/* @len: of what stands in the line. */
static int record_put(struct record *r, char line[RECORD_MAX], size_t len)
{
	ssize_t n;

	memset(line + len, ' ', RECORD_MAX - len);
	line[RECORD_MAX - 1] = '\n';
	if (r->fd < 0)
		return -EBADF;
	n = pwrite(r->fd, line, RECORD_MAX, 0);
	if (n == RECORD_MAX)
		return 0;
	return n < 0 ? -errno : -EIO;
}

int record_write(struct record *r, json_t *j)
{
	char line[RECORD_MAX];
	size_t len = j ? json_dumpb(j, line, sizeof(line) - 1, JSON_COMPACT) : 0;

	json_decref(j);
	if (!len || len > sizeof(line) - 1)
		return -EMSGSIZE;
	return record_put(r, line, len);
}

int record_reserve(struct record *r)
{
	char line[RECORD_MAX];

	return record_put(r, line, 0);
}

void record_close(struct record *r)
{
	if (r->fd >= 0)
		close(r->fd);
	r->fd = -1;
}

void record_remove(struct record *r)
{
	/* Another program's file may have that name by now, if a co-holder of ours unlinked it. */
	if (r->fd >= 0 && record_is_linked(r))
		unlink(r->path);
	record_close(r);
}

json_t *record_read(const char *dir, const char *name, bool *held)
{
	char path[256], line[RECORD_MAX];
	json_t *j = NULL;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return NULL;
	*held = flock(fd, LOCK_SH | LOCK_NB) < 0;
	n = pread(fd, line, sizeof(line), 0);
	if (n > 0)
		j = json_loadb(line, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
	close(fd);
	if (json_is_object(j))
		return j;
	json_decref(j);
	return NULL;
}

/*
 * Of two records of one migration the later one ranks higher: a receiver that took the guest over
 * wrote it to its own directory. All that it can add is that the guest is lost, or has all of its
 * RAM; until then it may hold its record.
 */
static unsigned int record_rank(const json_t *j, bool held)
{
	const char *state = json_string_value(json_object_get(j, "state"));

	if (json_is_true(json_object_get(j, "lost")))
		return 3;
	if (state && commit_state_parse(state) == COMMIT_RUNS &&
	    !json_is_true(json_object_get(j, "owing")))
		return 2;
	return held;
}

json_t *record_find_in(const char *const *dirs, size_t n, const char *name, bool *held)
{
	json_t *best = NULL;

	for (size_t i = 0; i < n; i++) {
		bool is_held = false;
		json_t *j = record_read(dirs[i], name, &is_held);

		if (!j || (best && record_rank(j, is_held) <= record_rank(best, *held))) {
			json_decref(j);
			continue;
		}
		json_decref(best);
		best = j;
		*held = is_held;
	}
	return best;
}

#define RECORD_DIRS { record_dir(), RECORD_DIR, RECORD_DIR_SERVICE }

json_t *record_find(const char *name, bool *held)
{
	const char *const dirs[] = RECORD_DIRS;

	return record_find_in(dirs, sizeof(dirs) / sizeof(dirs[0]), name, held);
}

/* What the directory says; a record of that name may be in another one as well. */
static bool record_search_in(const char *dir, const char *kind, record_wanted_fn *wanted,
			     const void *arg, char name[RECORD_NAME])
{
	DIR *d = opendir(dir);
	const struct dirent *file;
	bool found = false;

	while (d && !found && (file = readdir(d))) {
		json_t *j;
		bool held;

		if (strncmp(file->d_name, kind, strlen(kind)) ||
		    snprintf(name, RECORD_NAME, "%s", file->d_name) >= (int)RECORD_NAME)
			continue;
		j = record_find(name, &held);
		found = j && wanted(name, j, arg);
		json_decref(j);
	}
	if (d)
		closedir(d);
	return found;
}

bool record_search(const char *kind, record_wanted_fn *wanted, const void *arg,
		   char name[RECORD_NAME])
{
	const char *const dirs[] = RECORD_DIRS;

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++)
		if (record_search_in(dirs[i], kind, wanted, arg, name))
			return true;
	return false;
}

void record_forget(const char *name)
{
	const char *const dirs[] = RECORD_DIRS;
	char path[256];

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", dirs[i], name);
		unlink(path);
	}
}

void record_name_verdict(char *name, const uint8_t *token, size_t len)
{
	int n = snprintf(name, RECORD_NAME, "verdict-");

	for (size_t i = 0; i < len; i++)
		n += snprintf(name + n, RECORD_NAME - (size_t)n, "%02x", token[i]);
}

bool record_parse_verdict(const char *name, uint8_t *token, size_t len)
{
	const size_t skip = strlen("verdict-");

	if (!name || strlen(name) != skip + 2 * len)
		return false;
	for (size_t i = 0; i < len; i++) {
		unsigned int byte;

		if (sscanf(name + skip + 2 * i, "%2x", &byte) != 1)
			return false;
		token[i] = (uint8_t)byte;
	}
	return true;
}

/*
 * A PID is used again; the time when its process began is not (field 22 of /proc/PID/stat, after
 * the name in brackets).
 */
int record_name_vm(char *name, const char *kind, pid_t vmm)
{
	char path[32], line[1024], *at;
	unsigned long long began;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)vmm);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, line, sizeof(line) - 1);
	close(fd);
	line[n > 0 ? n : 0] = '\0';
	at = strrchr(line, ')');
	for (int field = 2; at && field < 22; field++)
		at = strchr(at + 1, ' ');
	if (!at || sscanf(at, " %llu", &began) != 1)
		return -EPROTO;
	snprintf(name, RECORD_NAME, "%s-%d-%llu", kind, (int)vmm, began);
	return 0;
}

pid_t record_process(const char *name)
{
	const size_t kind = strcspn(name, "-");
	char now[RECORD_NAME];
	int pid;

	if (sscanf(name + kind, "-%d-", &pid) != 1 || pid <= 0 || record_name_vm(now, "", pid))
		return 0;
	return strcmp(now, name + kind) ? 0 : pid;
}

void record_unlink_vm(const char *dir, const char *kind, pid_t vmm)
{
	char name[RECORD_NAME], path[256];

	if (record_name_vm(name, kind, vmm))
		return;
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	unlink(path);
}
