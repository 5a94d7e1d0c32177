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
#include "proc/map_query.h"
#include "proc/proc_io.h"

/**
 * struct owners_search
 * @may_ptrace: we have CAP_SYS_PTRACE
 * @peers: of the VMM; looked up when the first process needs it
 * @by_text: the kernel has no map_query()
 */
struct owners_search {
	const char *proc;
	const struct vm *vm;
	enum owners_end end;
	struct unix_peers peers;
	bool has_peers;
	bool may_ptrace;
	bool by_text;
};

/* The block of the VM whose file this mapping shows, if the mapping concerns us; or NULL. */
static const struct ram_block *owners_block_of(const struct owners_search *s,
					       const struct proc_map *m)
{
	for (unsigned int i = 0; i < s->vm->nblocks; i++) {
		const struct ram_block *b = &s->vm->blocks[i];

		/*
		 * Anonymous memory has no file. SysV shared memory has numbers of its own, on the
		 * device that memfds are on.
		 */
		if (b->ino && b->dev == m->dev && b->ino == m->ino &&
		    strncmp(m->path, "/SYSV", strlen("/SYSV")))
			return (s->end == OWNERS_SOURCE || b->hva) && !m->shared ? NULL : b;
	}
	return NULL;
}

static bool owners_may_be_block(const struct proc_map *m, void *arg)
{
	return owners_block_of(arg, m);
}

/*
 * Most processes map no block, and all that it takes to know that is asked first. 0: this one does
 * not. -ENODATA: it maps nothing at all. Else it may map one, or the kernel does not tell: the text
 * decides, which has the names as well.
 */
static int owners_query_maps(struct owners_search *s, FILE *maps)
{
	bool shared = true;
	int r;

	if (s->by_text)
		return -ENOTTY;
	/* As in owners_block_of(). */
	for (unsigned int i = 0; i < s->vm->nblocks; i++)
		shared &= s->end == OWNERS_SOURCE || s->vm->blocks[i].hva;
	r = map_query(fileno(maps), shared, owners_may_be_block, s);
	s->by_text = r == -ENOTTY;
	return r == -ESRCH ? -ENODATA : r;
}

/*
 * 1: the process maps *b. 0: it maps no block. -ENODATA: it maps nothing at all. Other -errno: it
 * is not known.
 */
static int owners_search_maps(struct owners_search *s, const char *path, const struct ram_block **b)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t cap = 0;
	int r;

	if (!f)
		return errno == ENOENT || errno == ESRCH ? -ENODATA : -errno;
	*b = NULL;
	r = owners_query_maps(s, f);
	if (!r || r == -ENODATA) {
		fclose(f);
		return r;
	}
	r = -ENODATA;
	while (!*b && getline(&line, &cap, f) > 0) {
		struct proc_map m;

		line[strcspn(line, "\n")] = '\0';
		r = proc_parse_map(line, &m);
		if (r)
			break;
		*b = owners_block_of(s, &m);
	}
	if (ferror(f) && errno != ESRCH)
		r = -errno;
	free(line);
	fclose(f);
	return r ? r : *b != NULL;
}

struct owners_threads {
	struct owners_search *s;
	const struct ram_block **b;
	int found;
};

static int owners_search_thread(const char *tasks, const char *tid, void *arg, struct err *e)
{
	struct owners_threads *t = arg;
	char path[PATH_MAX];

	(void)e;
	snprintf(path, sizeof(path), "%s/%s/maps", tasks, tid);
	t->found = owners_search_maps(t->s, path, t->b);
	return t->found != -ENODATA;
}

/*
 * The first thread of a process may have ended before the others: then it has no memory, and the
 * others have.
 */
static int owners_search_threads(struct owners_search *s, const char *dir,
				 const struct ram_block **b)
{
	struct owners_threads t = { s, b, -ENODATA };
	struct err ignored = { 0 };

	proc_each_thread(dir, owners_search_thread, &t, &ignored);
	return t.found;
}

static bool owners_is_connected(struct owners_search *s, const char *dir)
{
	char vmm[PATH_MAX];

	if (!s->has_peers) {
		snprintf(vmm, sizeof(vmm), "%s/%d", s->proc, (int)s->vm->pid);
		unix_peers_find(vmm, &s->peers);
		s->has_peers = true;
	}
	return unix_peers_has(&s->peers, dir);
}

static int owners_is_kvm_vm(void *arg, const char *number, const char *link, struct err *e)
{
	(void)arg;
	(void)number;
	(void)e;
	return !strcmp(link, "anon_inode:kvm-vm");
}

/* The process has a VM of KVM's, or is QEMU. */
static bool owners_is_vmm(const char *dir)
{
	struct err ignored = { 0 };
	char path[PATH_MAX], exe[PATH_MAX];
	const char *name;
	ssize_t n;

	if (proc_each_fd(dir, owners_is_kvm_vm, NULL, &ignored) == 1)
		return true;
	snprintf(path, sizeof(path), "%s/exe", dir);
	n = readlink(path, exe, sizeof(exe) - 1);
	exe[n > 0 ? n : 0] = '\0';
	name = strrchr(exe, '/') ? strrchr(exe, '/') + 1 : exe;
	return !strncmp(name, "qemu-system-", strlen("qemu-system-")) || !strcmp(name, "qemu-kvm");
}

static int owners_refuse(const struct owners_search *s, const char *pid, const char *dir,
			 const struct ram_block *b, struct err *e)
{
	char name[64];

	proc_name(dir, name, sizeof(name));
	if (s->end == OWNERS_SOURCE)
		return err_set(e, GW_RAM_IN_USE, EBUSY,
			       "process %s (%s) maps the file of RAM \"%s\" too, so two VMs share it: give each VM a file of its own",
			       pid, name, b->name);
	if (s->end == OWNERS_REUSED)
		return err_set(e, GW_RAM_IN_USE, EBUSY,
			       "process %s (%s) maps %.255s, so it is the RAM of a VM that is there now: give --reuse a file that no VM has, or start the receiver without it",
			       pid, name, b->name);
	if (s->end == OWNERS_ALONE)
		return err_set(e, GW_RAM_IN_USE, EBUSY,
			       "process %s (%s) maps the file of the destination's RAM \"%s\" too, and would read pages before they came: end that process, or migrate without post-copy",
			       pid, name, b->name);
	return err_set(e, GW_RAM_IN_USE, EBUSY,
		       "process %s (%s) maps the file of the destination's RAM \"%s\" too, and its memory would be overwritten: give the destination QEMU a file of its own (another mem-path)",
		       pid, name, b->name);
}

/* A process that exits meanwhile maps nothing. */
static int owners_check_process(struct owners_search *s, const char *pid, struct err *e)
{
	char dir[PATH_MAX - NAME_MAX], path[PATH_MAX];
	const struct ram_block *b;
	int r;

	snprintf(dir, sizeof(dir), "%s/%s", s->proc, pid);
	snprintf(path, sizeof(path), "%s/maps", dir);
	r = owners_search_maps(s, path, &b);
	if (r == -ENODATA)
		r = owners_search_threads(s, dir, &b);
	/*
	 * A process that refuses a reader with all capabilities is not a VMM of this host's: a
	 * container's init, for example.
	 */
	if (r == -ENODATA || !r || ((r == -EACCES || r == -EPERM) && s->may_ptrace))
		return 0;
	if (r < 0)
		return proc_failed(path, -r, e);
	/* QEMU's own helper (async-teardown), which shares its memory. */
	if (!syscall(SYS_kcmp, (pid_t)atoi(pid), s->vm->pid, KCMP_VM, 0, 0))
		return 0;
	/*
	 * A vhost-user backend has no VM of its own; a source may have given devices to processes
	 * of QEMU's own (multi-process QEMU).
	 */
	if (s->end == OWNERS_SOURCE && (!owners_is_vmm(dir) || owners_is_connected(s, dir)))
		return 0;
	if (s->end == OWNERS_REUSED && !owners_is_vmm(dir))
		return 0;
	if (s->end == OWNERS_DESTINATION && !owners_is_vmm(dir) && owners_is_connected(s, dir))
		return 0;
	return owners_refuse(s, pid, dir, b, e);
}

static bool owners_may_ptrace(void)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3];

	return !syscall(SYS_capget, &h, d) &&
	       (d[CAP_TO_INDEX(CAP_SYS_PTRACE)].effective & CAP_TO_MASK(CAP_SYS_PTRACE));
}

int owners_check(const char *proc, const struct vm *vm, enum owners_end end, struct err *e)
{
	struct owners_search s = {
		.proc = proc, .vm = vm, .end = end, .may_ptrace = owners_may_ptrace(),
	};
	DIR *d = opendir(proc);
	struct dirent *de;
	int r = 0;

	if (!d)
		return proc_failed(proc, errno, e);
	while (!r && (de = readdir(d))) {
		pid_t pid = isdigit((unsigned char)*de->d_name) ? atoi(de->d_name) : 0;

		if (pid > 0 && pid != vm->pid && pid != getpid())
			r = owners_check_process(&s, de->d_name, e);
	}
	closedir(d);
	unix_peers_free(&s.peers);
	return r;
}
