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

#include "claim/claim.h"
#include "io/sock.h"
#include "txn/guardian.h"
#include "txn/mark.h"

#define WAIT_MS		3000u
#define NAP_MS		20

/* Whoever has that lock, by its inode; 0: it cannot be told. */
static pid_t holder(int fd)
{
	FILE *f = fopen("/proc/locks", "re");
	unsigned int dev_major, dev_minor;
	unsigned long long ino;
	char line[256];
	struct stat st;
	pid_t pid = 0;
	int found;

	while (f && !fstat(fd, &st) && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*d: FLOCK %*s %*s %d %x:%x:%llu", &found, &dev_major, &dev_minor, &ino) == 4 &&
		    ino == st.st_ino && makedev(dev_major, dev_minor) == st.st_dev)
			pid = found;
	if (f)
		fclose(f);
	return pid;
}

int claim_process(struct claim *c, pid_t vmm, struct err *e)
{
	uint64_t deadline = deadline_ms(WAIT_MS);
	char name[RECORD_NAME];
	int r = 0;

	/*
	 * Where no file can be made, or another godwit makes its own elsewhere (a service has a
	 * directory of its own), the RAM files' locks must do: those all of them take, and a lock is
	 * its file's, whatever the name.
	 */
	while (c->lock.fd < 0 && !record_name_vm(name, "claim", vmm)) {
		r = record_open(&c->lock, record_dir(), name);
		if (r != -EBUSY || now_ns() > deadline)
			break;
		nap_ms(NAP_MS);
	}
	if (r != -EBUSY)
		return 0;
	return err_set(e, GW_BUSY, EBUSY, "another godwit is at work on this VM (process %d): wait for it to end", (int)vmm);
}

static int lock_ram(const struct ram_block *b, uint64_t deadline, struct err *e)
{
	int r;

	while ((r = flock(b->fd, LOCK_EX | LOCK_NB)) < 0 && errno == EWOULDBLOCK && now_ns() < deadline)
		nap_ms(NAP_MS);
	if (!r || errno != EWOULDBLOCK)
		return 0;
	return err_set(e, GW_BUSY, EBUSY,
		       "the file of RAM \"%s\" is locked by another process (%d; 0: not seen from here), as a godwit does that is at work on it, for this VM or another: wait for it to end, or give each VM a file of its own",
		       b->name, (int)holder(b->fd));
}

int claim_take(struct claim *c, const struct vm *vm, struct err *e)
{
	uint64_t deadline = deadline_ms(WAIT_MS);
	int r = claim_process(c, vm->pid, e);

	for (unsigned int i = 0; !r && i < vm->nblocks; i++)
		r = lock_ram(&vm->blocks[i], deadline, e);
	return r;
}

void claim_drop(struct claim *c, const struct vm *vm)
{
	for (unsigned int i = 0; vm && i < vm->nblocks; i++)
		flock(vm->blocks[i].fd, LOCK_UN);
	record_remove(&c->lock);
}

void claim_leave(struct claim *c)
{
	record_close(&c->lock);
}

unsigned int claim_fds(const struct claim *c, const struct vm *vm, int fds[CLAIM_FDS_MAX])
{
	unsigned int n = 0;

	static_assert(CLAIM_FDS_MAX <= GUARDIAN_HELD_MAX, "the guardian holds a whole claim");
	if (c->lock.fd >= 0)
		fds[n++] = c->lock.fd;
	for (unsigned int i = 0; i < vm->nblocks; i++)
		fds[n++] = vm->blocks[i].fd;
	return n;
}

int claim_check_mark(struct qmp *q, struct err *e)
{
	char says[MARK_MAX];
	int r = mark_read(q, says, e);

	if (r <= 0)
		return r;
	return err_set(e, GW_VM_STATE, EEXIST,
		       "this guest was sent to %s, or was on its way when godwit and its guardian were killed (QEMU has the object \"" MARK_ID "\"): \"godwit resolve\" finds out where it runs; if it is to run here, \"godwit resolve --forget\"",
		       says);
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
	/* An answer that did not come says nothing. */
	if (r && e->exit == GW_QMP)
		journal_refused(j);
	return r;
}
