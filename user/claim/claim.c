// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/clock.h"
#include "claim/claim.h"
#include "claim/process_lock.h"
#include "txn/guardian.h"
#include "txn/mark.h"

#define WAIT_MS		3000u
#define NAP_MS		20

/* The process that holds the lock on this file, by its inode; 0: not known. */
static pid_t claim_lock_holder(int fd)
{
	FILE *f = fopen("/proc/locks", "re");
	unsigned int dev_major, dev_minor;
	unsigned long long ino;
	char line[256];
	struct stat st;
	pid_t pid = 0;
	int found;

	while (f && !fstat(fd, &st) && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%llu", &found, &dev_major, &dev_minor,
			   &ino) == 4 &&
		    ino == st.st_ino && makedev(dev_major, dev_minor) == st.st_dev)
			pid = found;
	if (f)
		fclose(f);
	return pid;
}

/*
 * Where no file can be made, or another godwit makes its own elsewhere (a service has a directory
 * of its own), the other locks must do.
 */
static int claim_open_record(struct claim *c, pid_t vmm)
{
	char name[RECORD_NAME];

	if (c->lock.fd >= 0 || record_name_vm(name, "claim", vmm))
		return 0;
	return record_open(&c->lock, record_dir(), name) == -EBUSY ? -EBUSY : 0;
}

/* A process that cannot be opened is one whose memory we cannot reach. */
static int claim_lock_process(struct claim *c, pid_t vmm)
{
	int fd = c->process < 0 ? process_lock_open(vmm) : -1;

	if (fd < 0)
		return 0;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
		close(fd);
		return -EBUSY;
	}
	c->process = fd;
	return 0;
}

int claim_process(struct claim *c, pid_t vmm, struct err *e)
{
	uint64_t deadline = deadline_ms(WAIT_MS);

	while (claim_open_record(c, vmm) || claim_lock_process(c, vmm)) {
		if (now_ns() > deadline)
			return err_set(e, GW_BUSY, EBUSY,
				       "another godwit is at work on this VM (process %d): wait for it to end",
				       (int)vmm);
		nap_ms(NAP_MS);
	}
	return 0;
}

/* Several VMs may have one private file: the pages that each writes are its own. */
static bool claim_has_lock(const struct ram_block *b)
{
	return !b->hva;
}

static int claim_lock_ram(const struct ram_block *b, uint64_t deadline, struct err *e)
{
	int r;

	while ((r = flock(b->fd, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK &&
	       now_ns() < deadline)
		nap_ms(NAP_MS);
	if (!r || errno != EWOULDBLOCK)
		return 0;
	return err_set(e, GW_BUSY, EBUSY,
		       "another process (%d; 0: not visible here) has locked the file of RAM \"%s\", as a godwit does that migrates this VM or another: wait for it to end, or give each VM a file of its own",
		       (int)claim_lock_holder(b->fd), b->name);
}

int claim_take(struct claim *c, const struct vm *vm, struct err *e)
{
	uint64_t deadline = deadline_ms(WAIT_MS);
	int r = claim_process(c, vm->pid, e);

	for (unsigned int i = 0; !r && i < vm->nblocks; i++)
		if (claim_has_lock(&vm->blocks[i]))
			r = claim_lock_ram(&vm->blocks[i], deadline, e);
	return r;
}

static void claim_close_process(struct claim *c)
{
	if (c->process >= 0)
		close(c->process);
	c->process = -1;
}

void claim_drop(struct claim *c, const struct vm *vm)
{
	for (unsigned int i = 0; vm && i < vm->nblocks; i++)
		if (claim_has_lock(&vm->blocks[i]))
			flock(vm->blocks[i].fd, LOCK_UN);
	if (c->process >= 0)
		flock(c->process, LOCK_UN);
	claim_close_process(c);
	record_remove(&c->lock);
}

void claim_leave(struct claim *c)
{
	claim_close_process(c);
	record_close(&c->lock);
}

unsigned int claim_fds(const struct claim *c, const struct vm *vm, int fds[CLAIM_FDS_MAX])
{
	unsigned int n = 0;

	static_assert(CLAIM_FDS_MAX <= GUARDIAN_HELD_MAX, "the guardian holds a whole claim");
	if (c->lock.fd >= 0)
		fds[n++] = c->lock.fd;
	if (c->process >= 0)
		fds[n++] = c->process;
	for (unsigned int i = 0; i < vm->nblocks; i++)
		if (claim_has_lock(&vm->blocks[i]))
			fds[n++] = vm->blocks[i].fd;
	return n;
}

int claim_check_mark(struct qmp *q, struct err *e)
{
	char target[MARK_MAX];
	int r = mark_read(q, target, e);

	if (r <= 0)
		return r;
	if (!strcmp(target, MARK_HERE))
		return err_set(e, GW_BUSY, EEXIST,
			       "this guest came by post-copy, and may lack RAM that only its source has (QEMU has the object \"" MARK_ID "\"): wait until \"godwit receive\" says that all RAM is here; if it said so, \"godwit resolve --forget\" removes that object");
	return err_set(e, GW_VM_STATE, EEXIST,
		       "this guest was sent to %s, or godwit and its guardian were killed while they sent it (QEMU has the object \"" MARK_ID "\"): \"godwit resolve\" finds out where it runs; if it is to run here, \"godwit resolve --forget\" removes that object",
		       target);
}

int claim_mark(struct qmp *q, struct journal *j, const char *addr, struct err *e)
{
	char token[MARK_TOKEN + 1];
	uint64_t random;
	int r;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random))
		return err_set(e, GW_INTERNAL, errno, "no random numbers: %s", strerror(errno));
	snprintf(token, sizeof(token), "%0*llx", MARK_TOKEN, (unsigned long long)random);
	r = journal_mark(j, token, e);
	if (r)
		return r;
	r = mark_make(q, token, addr, e);
	/* Without an answer QEMU may have made the mark: the record stays. */
	if (r && e->exit == GW_QMP)
		journal_refused(j);
	return r;
}
