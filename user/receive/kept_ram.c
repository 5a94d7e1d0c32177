// SPDX-License-Identifier: GPL-2.0-only
/*
 * A note of the RAM of a guest that runs here and lacks some of it, for a receiver that takes over.
 *
 * QEMU could tell of it as well, but not as long as its main loop waits for a page: a device that
 * QEMU emulates, or a command, has touched one that is missing. The page comes only when a receiver
 * serves faults, so a receiver that asked QEMU first would wait for itself.
 *
 * The note is there from the verdict "runs" on, until nothing is owed and the module keeps nothing
 * any more (postcopy_complete()): so it also says that this QEMU has all of the device state. It is
 * named by QEMU's process. It may be missing (the receiver was killed just before it, no file could
 * be made, RAM is in more blocks than it has room for): then QEMU is asked.
 *
 * It has the blocks in the sender's order: in which mode they were matched is known from it alone.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "kernel/device.h"
#include "net/unix.h"
#include "receive/postcopy_internal.h"
#include "receive/receiver_internal.h"
#include "txn/mark.h"
#include "vmm/mtree.h"
#include "vmm/ram.h"

/* By the name of its process, which is known also when that has exited. false: it is not known. */
static bool kept_ram_name(const char *vmm, char name[RECORD_NAME])
{
	const char *process = vmm ? strchr(vmm, '-') : NULL;

	return process && snprintf(name, RECORD_NAME, "ram%s", process) < (int)RECORD_NAME;
}

static json_t *kept_ram_block(const struct ram_block *b)
{
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:b, s:b}", "name", b->name,
			 "dev", (json_int_t)b->dev, "ino", (json_int_t)b->ino,
			 "pages", (json_int_t)b->pages, "at", (json_int_t)b->address,
			 "memfd", b->memfd, "ivshmem", b->ivshmem);
}

/*
 * Whose monitor's socket it is. That of a QEMU that waits for a page may have as many clients
 * waiting as it lets, and then tells nobody which process listens.
 */
static int kept_ram_monitor(const struct receiver *r, json_t *note)
{
	struct stat st;

	if (r->at.socket < 0 || fstat(r->at.socket, &st) < 0)
		return 0;
	return json_object_set_new(note, "monitor-dev", json_integer((json_int_t)st.st_dev)) |
	       json_object_set_new(note, "monitor-ino", json_integer((json_int_t)st.st_ino)) |
	       json_object_set_new(note, "monitor-its-own", json_boolean(r->at.vmm));
}

void kept_ram_note(const struct receiver *r)
{
	struct record rec = RECORD_NONE;
	char name[RECORD_NAME];
	json_t *blocks, *note;
	int lacks = 0;

	if (!kept_ram_name(r->vmm, name) || record_open(&rec, record_dir(), name))
		return;
	blocks = json_array();
	for (unsigned int i = 0; i < r->vm.nblocks; i++)
		lacks |= json_array_append_new(blocks, kept_ram_block(&r->vm.blocks[i]));
	note = json_pack("{s:b, s:o}", "save-mode", r->save_mode, "blocks", blocks);
	lacks |= kept_ram_monitor(r, note);
	/* Without a note QEMU is asked. */
	if (record_write(&rec, note) || lacks)
		record_remove(&rec);
	record_close(&rec);
}

void kept_ram_forget(const struct receiver *r)
{
	char name[RECORD_NAME];

	if (kept_ram_name(r->vmm, name))
		record_forget(name);
}

/*
 * The token names the keep and the record alike, so the keep is of a guest to which nothing is
 * owed: what waits there waits for a page that is zero, as the kernel makes it.
 */
int kept_ram_end(const uint8_t token[WIRE_SECRET], const json_t *whole, struct err *e)
{
	char name[RECORD_NAME];
	int dev = device_open(e), ret = dev < 0 ? dev : device_keep(dev, token, true, e);

	if (ret >= 0)
		ret = device_keep_end(dev, e);
	if (dev >= 0)
		close(dev);
	/* The module keeps nothing any more, or another receiver is at it. */
	if (ret < 0 && (e->exit == GW_NO_MIGRATION || e->exit == GW_BUSY ||
			e->exit == GW_NO_MODULE)) {
		*e = (struct err) { 0 };
		ret = 0;
	}
	if (ret < 0)
		return ret;
	if (kept_ram_name(json_string_value(json_object_get(whole, "vmm")), name))
		record_forget(name);
	return 0;
}

static bool kept_ram_read_block(json_t *j, struct ram_block *b)
{
	json_int_t dev, ino, pages, at;
	int memfd, ivshmem;
	const char *name;

	if (json_unpack(j, "{s:s, s:I, s:I, s:I, s:I, s:b, s:b}", "name", &name, "dev", &dev,
			"ino", &ino, "pages", &pages, "at", &at, "memfd", &memfd,
			"ivshmem", &ivshmem) || strlen(name) > WIRE_NAME_MAX)
		return false;
	*b = (struct ram_block) {
		.pages = (uint64_t)pages, .address = (uint64_t)at, .fd = -1, .dev = (dev_t)dev,
		.ino = (ino_t)ino, .memfd = memfd, .ivshmem = ivshmem,
	};
	memcpy(b->name, name, strlen(name) + 1);
	return true;
}

/* *n: how many; 0: there is no note that makes sense. */
static void kept_ram_read(const json_t *note, struct ram_block *known, unsigned int *n)
{
	const json_t *blocks = json_object_get(note, "blocks");

	*n = 0;
	if (json_array_size(blocks) > WIRE_BLOCKS_MAX)
		return;
	for (size_t i = 0; i < json_array_size(blocks); i++)
		if (!kept_ram_read_block(json_array_get(blocks, i), &known[i]))
			return;
	*n = (unsigned int)json_array_size(blocks);
}

/*
 * The process that listens there, whether or not it answers; 0: not known. Takes up a place of its
 * clients'.
 */
static pid_t kept_ram_peer(const struct qmp_place *at, unsigned int timeout_ms)
{
	int fd = sock_unix_connect_held(at->socket, deadline_ms(timeout_ms));
	pid_t peer;

	if (fd < 0)
		return 0;
	peer = sock_unix_peer(fd);
	close(fd);
	return peer;
}

/* The number of a socket may be used again, but not while its process listens there. */
static bool kept_ram_is_at(const char *name, const json_t *note, const void *arg)
{
	const json_t *dev = json_object_get(note, "monitor-dev");
	const json_t *ino = json_object_get(note, "monitor-ino");
	const struct stat *st = arg;

	return json_is_integer(dev) && json_is_integer(ino) &&
	       json_integer_value(dev) == (json_int_t)st->st_dev &&
	       json_integer_value(ino) == (json_int_t)st->st_ino && record_process(name);
}

/* 0: no note says whose this socket is. */
static pid_t kept_ram_noted(const struct qmp_place *at)
{
	char name[RECORD_NAME];
	struct stat st;

	if (at->socket < 0 || fstat(at->socket, &st) < 0 ||
	    !record_search("ram-", kept_ram_is_at, &st, name))
		return 0;
	return record_process(name);
}

static pid_t kept_ram_pid(const struct receiver *r, const struct qmp_place *at)
{
	pid_t pid = r->o->pid ? r->o->pid : kept_ram_noted(at);

	return pid ? pid : kept_ram_peer(at, r->o->timeout_ms);
}

/* By a relay, or the like: only that this very socket was noted says whose monitor it is. */
static bool kept_ram_is_relayed(const struct qmp_place *at, const char *name, const json_t *note)
{
	struct stat st;

	return !json_is_true(json_object_get(note, "monitor-its-own")) && at->socket >= 0 &&
	       !fstat(at->socket, &st) && kept_ram_is_at(name, note, &st);
}

static int kept_ram_find_at(struct receiver *r, struct qmp_place *at, struct err *e)
{
	const pid_t pid = kept_ram_pid(r, at);
	struct ram_block known[WIRE_BLOCKS_MAX];
	json_auto_t *note = NULL;
	char name[RECORD_NAME];
	unsigned int n;
	bool held;
	int ret;

	if (pid <= 0 || record_name_vm(r->vmm, "doubt", pid) || !kept_ram_name(r->vmm, name))
		return 0;
	note = record_find(name, &held);
	kept_ram_read(note, known, &n);
	if (!n)
		return 0;
	r->save_mode = json_is_true(json_object_get(note, "save-mode"));
	/*
	 * It may be hours until QEMU can be asked, and another one may have the path by then; nor
	 * does a --pid say that its monitor is at the path.
	 */
	at->vmm = kept_ram_is_relayed(at, name, note) ? 0 : pid;
	r->numbered = true;
	ret = vm_find_known(pid, known, n, &r->vm, e);
	if (!ret)
		ret = claim_take(&r->claim, &r->vm, e);
	return ret ? ret : 1;
}

int kept_ram_find(struct receiver *r, struct err *e)
{
	struct qmp_place at = {
		.path = r->o->qmp_path, .socket = sock_unix_hold(r->o->qmp_path),
	};
	int ret = kept_ram_find_at(r, &at, e);

	if (ret > 0)
		r->at = at;
	else
		qmp_place_forget(&at);
	return ret;
}

/*
 * The receiver before may have been killed when it had removed the mark, which is last but for what
 * the module keeps: as long as there is that, it has not ended (postcopy_complete()).
 */
static bool kept_ram_left(const struct receiver *r)
{
	uint8_t token[WIRE_SECRET];
	struct err why = { 0 };
	bool left = false;
	int dev;

	if (!verdict_search(r, token))
		return false;
	dev = device_open(&why);
	if (dev >= 0)
		left = device_keep(dev, token, true, &why) >= 0;
	/* Which leaves it as it was. */
	if (dev >= 0)
		close(dev);
	return left;
}

/* Does the module know that it keeps nothing of this QEMU's? Where that has no KVM: no. */
static bool kept_ram_is_none(struct receiver *r)
{
	struct err why = { 0 };
	int dev, ret;

	if (vm_find_kvm(&r->vm, &why))
		return false;
	dev = device_open(&why);
	ret = dev < 0 ? dev : device_attach(dev, r->vm.vm_fd, &why);
	if (dev >= 0)
		close(dev);
	/* It would outlive QEMU's own. */
	postcopy_close(&r->vm.vm_fd);
	/* That a session is at work there is said after that. */
	return dev >= 0 && (!ret || ret == -EBUSY);
}

/* A receiver that does not reach QEMU's monitor at its end leaves the mark, and nothing else. */
static int kept_ram_check_mark(struct receiver *r, struct err *e)
{
	uint8_t token[WIRE_SECRET];

	if (verdict_search(r, token) || !kept_ram_is_none(r))
		return 0;
	return err_set(e, GW_NO_MIGRATION, ENOENT, "the guest of this QEMU lacks no RAM: its receiver has ended, and could not remove QEMU's object \"" MARK_ID "\": \"godwit resolve --forget\" does");
}

/*
 * Nothing says in which mode the guest has come: its RAM is matched by place. But not by one that
 * the guest itself gives, and may have changed since.
 */
static int kept_ram_places(struct receiver *r, struct err *e)
{
	struct err ignored = { 0 };
	int ret = mtree_query(r->qmp, &r->vm, e);

	if (!ret)
		ram_find_ivshmem(r->qmp, &r->vm, &ignored);
	for (unsigned int i = 0; i < r->vm.nblocks; i++)
		if (r->vm.blocks[i].ivshmem)
			r->vm.blocks[i].address = WIRE_NO_ADDRESS;
	return ret;
}

int kept_ram_claim(struct receiver *r, struct err *e)
{
	char target[MARK_MAX] = "", status[64] = "";
	int ret = kept_ram_find(r, e);

	if (ret)
		return ret < 0 ? ret : 0;
	ret = receiver_find(r, e);
	if (!ret)
		ret = kept_ram_places(r, e);
	if (!ret)
		ret = mark_read(r->qmp, target, e);
	if (ret >= 0 && !strcmp(target, MARK_HERE))
		ret = kept_ram_check_mark(r, e);
	else if (ret >= 0 && !kept_ram_left(r))
		ret = err_set(e, GW_NO_MIGRATION, ENOENT, "the guest of this QEMU lacks no RAM: no post-copy broke off here (QEMU has no object \"" MARK_ID "\" of one)");
	if (ret >= 0)
		ret = migration_vm_status(r->qmp, status, sizeof(status), e);
	/* Its receiver was killed before QEMU had all of the device state. */
	if (!ret && !strcmp(status, "inmigrate"))
		ret = err_set(e, GW_UNKNOWN, EAGAIN, "this QEMU still waits for the device state, so the guest does not run here: end this QEMU, and then \"godwit resolve\" at the source");
	/* Or its operator has stopped it: its record tells, once the sender has named it. */
	r->unstarted = !strcmp(status, "paused");
	postcopy_saw(r, status);
	return ret < 0 ? ret : 0;
}

/*
 * All RAM was here when the receiver before was killed, and its record says so: what is left of it
 * ends without the sender, which may know that already, from another receiver. The keep first, as
 * QEMU may wait for a page of zeros.
 */
int kept_ram_whole(struct receiver *r, struct err *e)
{
	json_auto_t *whole = NULL;
	int ret;

	if (!verdict_search(r, r->token))
		return 0;
	whole = verdict_whole(r->token);
	if (!whole)
		return 0;
	ret = kept_ram_end(r->token, whole, e);
	return ret ? ret : 1;
}
