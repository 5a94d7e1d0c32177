// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "devstate/mode.h"
#include "page/page.h"
#include "vmm/mtree.h"

/*
 * From this size on, QEMU's walk through all RAM (migrate mode) takes longer than comparing its
 * private RAM (save mode), some 4 ms.
 */
#define LARGE_PAGES	((128ull << 30) / PAGE_BYTES)

int mode_parse(const char *text, enum mode_wish *wish, struct err *e)
{
	static const char *const names[] = {
		[WISH_AUTO] = "auto", [WISH_MIGRATE] = "migrate", [WISH_SAVE] = "save",
	};

	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(text, names[i])) {
			*wish = (enum mode_wish)i;
			return 0;
		}
	return err_set(e, GW_USAGE, EINVAL, "--device-state takes auto, migrate or save, not \"%s\"",
		       text);
}

/* A block that QEMU does not leave out of its own migration. Before 8.1 it leaves out a memfd. */
static const struct ram_block *mode_find_migrated(const struct qmp *q, const struct vm *vm)
{
	for (unsigned int i = 0; i < vm->nblocks; i++)
		if ((vm->blocks[i].memfd && qmp_version(q) >= 80100) || vm->blocks[i].hva ||
		    vm->blocks[i].ivshmem)
			return &vm->blocks[i];
	return NULL;
}

static bool mode_is_large(const struct vm *vm)
{
	uint64_t pages = 0;

	for (unsigned int i = 0; i < vm->nblocks; i++)
		pages += vm->blocks[i].pages;
	return pages >= LARGE_PAGES;
}

/* b: NULL: the block is the destination's. also: what else helps */
static int mode_refuse_migrated(const struct ram_block *b, const char *why, const char *also,
				struct err *e)
{
	if (!b)
		return err_set(e, GW_RAM_DIFFERS, EINVAL,
			       "the destination's RAM is private to its QEMU, or has other names, so migrate mode cannot fill it, and %s: use memory-backend-file with share=on at both ends%s",
			       why, also);
	if (b->ivshmem)
		return err_set(e, GW_RAM_PRIVATE, EINVAL,
			       "RAM \"%s\" is an ivshmem device's, which QEMU does not leave out of its own migration, and %s: unplug the device first (device_del)%s",
			       b->name, why, also);
	return err_set(e, GW_RAM_PRIVATE, EINVAL,
		       "RAM \"%s\" is %s, which this QEMU does not leave out of its own migration, and %s: use memory-backend-file with share=on%s",
		       b->name, b->hva ? "private" : "a memfd", why, also);
}

/* It is not known where QEMU's private RAM is: only migrate mode is possible. */
static int mode_without_addresses(enum mode_wish wish, const struct private_ram *ram,
				  const struct ram_block *b, bool must_save,
				  enum devstate_mode *mode, struct err *e)
{
	char why[sizeof(ram->why) + 80];

	*mode = MODE_MIGRATE;
	if (wish == WISH_SAVE)
		return err_set(e, GW_QMP, EOPNOTSUPP,
			       "this QEMU does not say where its private RAM is, and %s: use version 8.0 or newer, or --device-state migrate",
			       ram->why);
	snprintf(why, sizeof(why), "QEMU does not say where its private RAM is (%s)", ram->why);
	return must_save || b ? mode_refuse_migrated(b, why, "", e) : 0;
}

/* Is save mode possible? */
static int mode_check_save(struct qmp *q, const struct vm *vm, bool running, struct err *e)
{
	/*
	 * A paused VM may have given up its disks already, and only cont takes them back: a QEMU
	 * before 10.0 aborts when it gives up its disks twice.
	 */
	if (!running && qmp_version(q) < 100000)
		return err_set(e, GW_VM_STATE, EINVAL,
			       "the source VM is paused, and QEMU before version 10.0 cannot safely save the device state of a paused VM: let it run (cont), or use memory-backend-file and --device-state migrate");
	return mtree_check(vm, e);
}

int mode_choose(enum mode_wish wish, bool must_save, struct qmp *q, struct vm *vm, bool running,
		enum devstate_mode *mode, struct private_ram *ram, struct err *e)
{
	const struct ram_block *migrated = mode_find_migrated(q, vm);
	/* What is not needed is not worth a search in QEMU's heap. */
	bool may_save = mode_is_large(vm) && running && qmp_version(q) >= 80000;
	bool must = must_save || migrated;
	struct err why = { 0 };
	int r;

	/* Asks QEMU only where its answer could change the mode. */
	*mode = MODE_MIGRATE;
	*ram = (struct private_ram) { 0 };
	if (wish != WISH_SAVE && !must && (wish == WISH_MIGRATE || !may_save))
		return 0;
	r = private_ram_find(q, vm, ram, &why);
	if (!r && !ram->has_addresses)
		return mode_without_addresses(wish, ram, migrated, must_save, mode, e);
	if (!r)
		r = mtree_query(q, vm, &why);
	*mode = wish == WISH_SAVE || must ? MODE_SAVE : MODE_EITHER;
	if (must && wish == WISH_MIGRATE)
		return mode_refuse_migrated(migrated, "--device-state migrate forbids save mode",
					    " or --device-state auto", e);
	if (!r)
		r = mode_check_save(q, vm, running, &why);
	if (!r)
		return 0;
	if (*mode == MODE_SAVE) {
		*e = why;
		return r;
	}
	private_ram_free(ram);
	*mode = MODE_MIGRATE;
	return 0;
}

int mode_refused(enum mode_wish wish, struct err *e)
{
	return err_set(e, GW_RAM_DIFFERS, EINVAL,
		       "the destination cannot load a device state of save mode, and its receiver says why: start there the same QEMU with the same devices, or use memory-backend-file at both ends%s",
		       wish == WISH_SAVE ? " and --device-state auto" : "");
}
