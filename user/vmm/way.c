// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <string.h>

#include "vmm/mtree.h"
#include "vmm/way.h"

/* From here on QEMU's walk through all RAM takes longer than comparing its private RAM, some 4 ms. */
#define LARGE_PAGES	((128ull << 30) / WIRE_PAGE)

int way_parse(const char *text, enum way_wish *wish, struct err *e)
{
	static const char *const names[] = { [WISH_AUTO] = "auto", [WISH_MIGRATE] = "migrate", [WISH_SAVE] = "save" };

	for (unsigned int i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(text, names[i])) {
			*wish = (enum way_wish)i;
			return 0;
		}
	return err_set(e, GW_USAGE, EINVAL, "--device-state is auto, migrate or save, not \"%s\"", text);
}

static const struct ram_block *a_memfd(const struct vm *vm)
{
	for (unsigned int i = 0; i < vm->nblocks; i++)
		if (vm->blocks[i].memfd)
			return &vm->blocks[i];
	return NULL;
}

static bool is_large(const struct vm *vm)
{
	uint64_t pages = 0;

	for (unsigned int i = 0; i < vm->nblocks; i++)
		pages += vm->blocks[i].pages;
	return pages >= LARGE_PAGES;
}

static int refuse_memfd(const struct ram_block *memfd, const char *why, struct err *e)
{
	return err_set(e, GW_RAM_PRIVATE, EINVAL,
		       "RAM \"%s\" is a memfd, which this QEMU does not leave out of its own migration, and %s; or use memory-backend-file",
		       memfd->name, why);
}

/* It does not say where its private RAM is. */
static int untold(enum way_wish wish, struct qmp *q, const struct ram_block *memfd, enum way *way, struct err *e)
{
	*way = WAY_MIGRATE;
	if (wish == WISH_SAVE)
		return err_set(e, GW_QMP, EOPNOTSUPP,
			       "this QEMU does not say where its private RAM is: version 8.0 or newer is needed for --device-state save");
	/* An older one leaves a memfd out of its migration. */
	if (memfd && qmp_version(q) >= 80100)
		return refuse_memfd(memfd, "it does not say where its private RAM is (x-query-ramblock)", e);
	return 0;
}

/* Nothing but saving will do; can it be done? */
static int check_save(struct qmp *q, const struct vm *vm, bool running, struct err *e)
{
	/* To fail with disks that it has given up once already makes a QEMU before 10.0 abort; only cont takes them back. */
	if (!running && qmp_version(q) < 100000)
		return err_set(e, GW_VM_STATE, EINVAL,
			       "the source VM is paused, and before version 10.0 QEMU cannot save the device state of one safely: let it run (cont), or use memory-backend-file and --device-state migrate");
	return mtree_check(vm, e);
}

int way_choose(enum way_wish wish, struct qmp *q, struct vm *vm, bool running, enum way *way, struct private_ram *ram,
	       struct err *e)
{
	const struct ram_block *memfd = a_memfd(vm);
	struct err why = { 0 };
	int r;

	/* QEMU is asked only where it could matter. */
	*way = WAY_MIGRATE;
	*ram = (struct private_ram) { 0 };
	if (wish != WISH_SAVE && !memfd && (wish == WISH_MIGRATE || !is_large(vm) || !running))
		return 0;
	r = private_find(q, vm, ram, &why);
	if (!r && !ram->told)
		return untold(wish, q, memfd, way, e);
	if (!r)
		r = mtree_query(q, vm, &why);
	*way = wish == WISH_SAVE || memfd ? WAY_SAVE : WAY_EITHER;
	if (memfd && wish == WISH_MIGRATE)
		return refuse_memfd(memfd, "--device-state migrate forbids the other way", e);
	if (!r)
		r = check_save(q, vm, running, &why);
	if (!r)
		return 0;
	if (*way == WAY_SAVE) {
		*e = why;
		return r;
	}
	private_free(ram);
	*way = WAY_MIGRATE;
	return 0;
}

int way_refused(enum way_wish wish, struct err *e)
{
	return err_set(e, GW_RAM_DIFFERS, EINVAL,
		       "the destination cannot take a device state that was saved: its godwit says why; it must be the same QEMU with the same devices, or use memory-backend-file at both ends%s",
		       wish == WISH_SAVE ? " and --device-state auto" : "");
}
