// SPDX-License-Identifier: GPL-2.0-only
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "claim/owners.h"
#include "claim/unix_peers.h"
#include "vmm/proc_io.h"

/**
 * struct search
 * @may_look: we have CAP_SYS_PTRACE
 * @peers: of the VMM; looked up when the first process needs it
 */
struct search {
	const char *proc;
	const struct vm *vm;
	enum owners_end end;
	struct unix_peers peers;
	bool has_peers;
	bool may_look;
};

/* A block of the VM whose file this mapping shows, and concerns us; or NULL. */
static const struct ram_block *block_of(const struct search *s, const struct proc_map *m)
{
	for (unsigned int i = 0; i < s->vm->nblocks; i++) {
		const struct ram_block *b = &s->vm->blocks[i];

		/* SysV shared memory is numbered by itself, on the device that memfds are on. */
		if (b->dev == m->dev && b->ino == m->ino && strncmp(m->path, "/SYSV", strlen("/SYSV")))
			return s->end == OWNERS_SOURCE && !m->shared ? NULL : b;
	}
	return NULL;
}

/* 1: *b is mapped; 0: none; -ENODATA: it maps nothing at all; -errno: it cannot be told. */
static int search_maps(const struct search *s, const char *path, const struct ram_block **b)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t cap = 0;
	int r = -ENODATA;

	if (!f)
		return errno == ENOENT || errno == ESRCH ? -ENODATA : -errno;
	*b = NULL;
	while (!*b && getline(&line, &cap, f) > 0) {
		struct proc_map m;

		line[strcspn(line, "\n")] = '\0';
		r = proc_parse_map(line, &m);
		if (r)
			break;
		*b = block_of(s, &m);
	}
	if (ferror(f) && errno != ESRCH)
		r = -errno;
	free(line);
	fclose(f);
	return r ? r : *b != NULL;
}

struct threads {
	const struct search *s;
	const struct ram_block **b;
	int found;
};

static int search_thread(const char *tasks, const char *tid, void *arg, struct err *e)
{
	struct threads *t = arg;
	char path[PATH_MAX];

	(void)e;
	snprintf(path, sizeof(path), "%s/%s/maps", tasks, tid);
	t->found = search_maps(t->s, path, t->b);
	return t->found != -ENODATA;
}

/* Its first thread may have ended before the others: then that one has no memory, and they have. */
static int search_threads(const struct search *s, const char *dir, const struct ram_block **b)
{
	struct threads t = { s, b, -ENODATA };
	struct err ignored = { 0 };

	proc_each_thread(dir, search_thread, &t, &ignored);
	return t.found;
}

static bool is_connected(struct search *s, const char *dir)
{
	char vmm[PATH_MAX];

	if (!s->has_peers) {
		snprintf(vmm, sizeof(vmm), "%s/%d", s->proc, (int)s->vm->pid);
		unix_peers_find(vmm, &s->peers);
		s->has_peers = true;
	}
	return unix_peers_has(&s->peers, dir);
}

static int is_kvm_vm(void *arg, const char *number, const char *link, struct err *e)
{
	(void)arg;
	(void)number;
	(void)e;
	return !strcmp(link, "anon_inode:kvm-vm");
}

/* It has a VM of KVM's, or is QEMU. */
static bool is_vmm(const char *dir)
{
	struct err ignored = { 0 };
	char path[PATH_MAX], exe[PATH_MAX];
	const char *name;
	ssize_t n;

	if (proc_each_fd(dir, is_kvm_vm, NULL, &ignored) == 1)
		return true;
	snprintf(path, sizeof(path), "%s/exe", dir);
	n = readlink(path, exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = '\0';
	name = strrchr(exe, '/') ? strrchr(exe, '/') + 1 : exe;
	return !strncmp(name, "qemu-system-", strlen("qemu-system-")) || !strcmp(name, "qemu-kvm");
}

static int refuse(const struct search *s, const char *pid, const char *dir, const struct ram_block *b, struct err *e)
{
	char name[64];

	proc_name(dir, name, sizeof(name));
	if (s->end == OWNERS_SOURCE)
		return err_set(e, GW_RAM_IN_USE, EBUSY,
			       "RAM \"%s\" is shared with another VM: process %s (%s) maps its file too: give each VM a file of its own",
			       b->name, pid, name);
	return err_set(e, GW_RAM_IN_USE, EBUSY,
		       "the file of the destination's RAM \"%s\" is in use: process %s (%s) maps it too, and its memory would be overwritten: give the destination QEMU a file of its own (another mem-path)",
		       b->name, pid, name);
}

/* One that exits meanwhile maps nothing. */
static int judge(struct search *s, const char *pid, struct err *e)
{
	char dir[PATH_MAX - NAME_MAX], path[PATH_MAX];
	const struct ram_block *b;
	int r;

	snprintf(dir, sizeof(dir), "%s/%s", s->proc, pid);
	snprintf(path, sizeof(path), "%s/maps", dir);
	r = search_maps(s, path, &b);
	if (r == -ENODATA)
		r = search_threads(s, dir, &b);
	/* One that all capabilities do not let us look into is not a VMM of this host's: a container's init, for example. */
	if (r == -ENODATA || !r || ((r == -EACCES || r == -EPERM) && s->may_look))
		return 0;
	if (r < 0)
		return proc_failed(path, -r, e);
	/* QEMU's own helper (async-teardown), which shares its memory. */
	if (!syscall(SYS_kcmp, (pid_t)atoi(pid), s->vm->pid, KCMP_VM, 0, 0))
		return 0;
	/* A backend is none that has a VM of its own; a source may have given devices to processes of QEMU's (multi-process QEMU). */
	if (s->end == OWNERS_SOURCE ? !is_vmm(dir) || is_connected(s, dir) : !is_vmm(dir) && is_connected(s, dir))
		return 0;
	return refuse(s, pid, dir, b, e);
}

static bool may_ptrace(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3];

	return !syscall(SYS_capget, &h, d) && (d[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective & CAP_TO_MASK(CAP_SYS_PTRACE));
}

int owners_check(const char *proc, const struct vm *vm, enum owners_end end, struct err *e)
{
	struct search s = { .proc = proc, .vm = vm, .end = end, .may_look = may_ptrace() };
	DIR *d = opendir(proc);
	struct dirent *de;
	int r = 0;

	if (!d)
		return proc_failed(proc, errno, e);
	while (!r && (de = readdir(d))) {
		pid_t pid = isdigit((unsigned char)*de->d_name) ? atoi(de->d_name) : 0;

		if (pid > 0 && pid != vm->pid && pid != getpid())
			r = judge(&s, de->d_name, e);
	}
	closedir(d);
	unix_peers_free(&s.peers);
	return r;
}
