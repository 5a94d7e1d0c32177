// SPDX-License-Identifier: GPL-2.0-only
/*
 * Matches the RAM blocks of both ends, in save mode by guest address and size, else by name, and
 * checks that they have the same sizes and addresses.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "claim/own_ram.h"
#include "peer/hello.h"
#include "receive/receiver_internal.h"
#include "vmm/mtree.h"

static bool agree_is_at_its_place(const struct ram_block *b, const struct wire_block *theirs)
{
	return theirs->address != WIRE_NO_ADDRESS && b->address == theirs->address &&
	       b->pages == theirs->pages;
}

static bool agree_is_namesake(const struct ram_block *b, const struct wire_block *theirs)
{
	return !strcmp(b->name, theirs->name);
}

/*
 * It has no place yet, as the guest gives it one: an ivshmem device's. No other block here has its
 * size: mtree_check().
 */
static bool agree_has_its_size(const struct ram_block *b, const struct wire_block *theirs)
{
	return b->address == WIRE_NO_ADDRESS && theirs->address != WIRE_NO_ADDRESS &&
	       b->pages == theirs->pages;
}

typedef bool agree_fn(const struct ram_block *b, const struct wire_block *theirs);

/* Gives each block of the sender's that has none yet the first that fits and is not taken. */
static void agree_find(const struct vm *vm, const struct wire_block *theirs, agree_fn *fits,
		       const struct ram_block **found)
{
	bool taken[WIRE_BLOCKS_MAX] = { false };

	for (unsigned int i = 0; i < vm->nblocks; i++)
		if (found[i])
			taken[found[i] - vm->blocks] = true;
	for (unsigned int i = 0; i < vm->nblocks; i++)
		for (unsigned int j = 0; !found[i] && j < vm->nblocks; j++)
			if (!taken[j] && fits(&vm->blocks[j], &theirs[i])) {
				found[i] = &vm->blocks[j];
				taken[j] = true;
			}
}

/*
 * The wire numbers blocks as the sender does, and so does the receiver from here on. by_place: in
 * save mode, as the device state holds no names of RAM, which are a matter of the command line.
 * Names count then where it is not known where a block is, and last its size.
 */
static int agree_order(struct vm *vm, const struct wire_block *theirs, unsigned int n,
		       bool by_place, struct err *e)
{
	const struct ram_block *found[WIRE_BLOCKS_MAX] = { NULL };
	struct ram_block ours[WIRE_BLOCKS_MAX];
	struct err ignored = { 0 };

	if (n != vm->nblocks)
		return err_set(e, GW_RAM_DIFFERS, EINVAL, "the source has %u RAM blocks and the destination %u: give both QEMUs the same -m, -numa and -device pc-dimm options",
			       n, vm->nblocks);
	if (by_place)
		agree_find(vm, theirs, agree_is_at_its_place, found);
	agree_find(vm, theirs, agree_is_namesake, found);
	if (by_place && !mtree_check(vm, &ignored))
		agree_find(vm, theirs, agree_has_its_size, found);
	for (unsigned int i = 0; i < n; i++) {
		if (!found[i])
			return err_set(e, GW_RAM_DIFFERS, EINVAL, "the source has a RAM block \"%s\" and the destination has none of that name%s: use the same id= at both ends",
				       theirs[i].name,
				       by_place ? ", nor one of its size at its guest address" : "");
		if (found[i]->pages != theirs[i].pages)
			return err_set(e, GW_RAM_DIFFERS, EINVAL, "RAM block \"%s\" has %llu MiB at the source and %llu MiB at the destination: use the same size= at both ends",
				       theirs[i].name, (unsigned long long)(theirs[i].pages >> 8),
				       (unsigned long long)(found[i]->pages >> 8));
		ours[i] = *found[i];
	}
	memcpy(vm->blocks, ours, n * sizeof(*ours));
	return 0;
}

/* In migrate mode QEMU itself sends RAM that is private, over what the streams have written. */
static int agree_all_shared(const struct vm *vm, struct err *e)
{
	for (unsigned int i = 0; i < vm->nblocks; i++)
		if (vm->blocks[i].hva)
			return err_set(e, GW_RAM_DIFFERS, EINVAL, "RAM \"%s\" is private to the destination QEMU, and the sender did not offer save mode: use --device-state auto there, or start this QEMU with memory-backend-file, share=on",
				       vm->blocks[i].name);
	return 0;
}

/*
 * In migrate mode QEMU compares addresses itself. A device state of save mode does not hold them,
 * and if two blocks of one size were swapped the guest would have its RAM in the wrong places. The
 * blocks are sorted like the sender's.
 */
static int agree_addresses(const struct vm *vm, const struct wire_block *theirs, struct err *e)
{
	for (unsigned int i = 0; i < vm->nblocks; i++) {
		const struct ram_block *b = &vm->blocks[i];

		if (b->address != theirs[i].address && b->address != WIRE_NO_ADDRESS &&
		    theirs[i].address != WIRE_NO_ADDRESS)
			return err_set(e, GW_RAM_DIFFERS, EINVAL, "RAM block \"%s\" begins at guest address 0x%llx at the source and at 0x%llx at the destination: give both QEMUs the same -numa and -device pc-dimm options",
				       b->name, (unsigned long long)theirs[i].address,
				       (unsigned long long)b->address);
	}
	return 0;
}

int agree_ram(struct receiver *r, const struct wire_header *h, struct err *e)
{
	/* Who takes over without a note knows no mode. In migrate mode QEMU has compared both. */
	const bool by_place = r->save_mode || (r->o->recover && !r->numbered);
	struct wire_block *theirs;
	int ret = hello_read_table(r->ch, h, "RAM blocks", &theirs, e);

	if (!ret && r->source_ram)
		ret = own_ram_refuse(r->source_ram, e);
	if (!ret)
		ret = agree_order(&r->vm, theirs, h->arg, by_place, e);
	if (!ret && by_place)
		ret = agree_addresses(&r->vm, theirs, e);
	if (!ret && !r->save_mode)
		ret = agree_all_shared(&r->vm, e);
	free(theirs);
	return ret;
}
