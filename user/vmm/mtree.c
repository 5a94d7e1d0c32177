// SPDX-License-Identifier: GPL-2.0-only
/*
 * QMP has these addresses for DIMMs only. The human monitor's "info mtree" has a line for each
 * backend:
 *
 *	    0000000008000000-000000000fffffff (prio 0, ram): ram1
 *
 * Where parts of a backend are mapped to several places, the parts are aliases, which are lines of
 * another form. A backend that is one part of such a whole (NUMA nodes) has its address within the
 * whole, as in QEMU's own comparison.
 *
 * virtio-mem with dynamic-memslots=on shows the guest parts of its backend, and none before the
 * guest plugs; nvdimm shows all of it, or all but its labels, by an alias. Such a backend has a
 * line that begins at 0, and query-memory-devices tells where it is.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "vmm/mtree.h"
#include "vmm/ramblocks.h"

/* The name at the end of a line for RAM; NULL: another line. */
static const char *mtree_ram_line(const char *line, uint64_t *address)
{
	uint64_t last;
	int prio, name = 0;

	/* QEMU indents a line below what the region is part of. */
	if (sscanf(line, "%16" SCNx64 "-%16" SCNx64 " (prio %d, ram): %n", address, &last, &prio,
		   &name) != 3 || !name)
		return NULL;
	return line + name;
}

bool mtree_address(const char *text, const char *name, uint64_t *address)
{
	char line[WIRE_NAME_MAX + 256];

	for (const char *at = text; *at; at += strspn(at, "\r\n")) {
		size_t n = strcspn(at, "\r\n");
		const char *found = NULL;

		if (n < sizeof(line)) {
			memcpy(line, at, n);
			line[n] = '\0';
			found = mtree_ram_line(line, address);
		}
		if (found && ramblocks_is(found, name))
			return true;
		at += n;
	}
	return false;
}

static void mtree_take_device(const json_t *device, struct vm *vm)
{
	const json_t *data = json_object_get(device, "data");
	const char *memdev = json_string_value(json_object_get(data, "memdev"));
	const char *type = json_string_value(json_object_get(device, "type"));
	bool nvdimm = type && !strcmp(type, "nvdimm");
	json_int_t address = json_integer_value(json_object_get(data, nvdimm ? "addr" : "memaddr"));

	for (unsigned int i = 0; memdev && address && i < vm->nblocks; i++)
		if (ramblocks_is(memdev, vm->blocks[i].name))
			vm->blocks[i].address = (uint64_t)address;
}

static int mtree_query_devices(struct qmp *q, struct vm *vm, struct err *e)
{
	json_auto_t *all = NULL;
	const json_t *device;
	size_t i;
	int r = qmp_call(q, "query-memory-devices", NULL, &all, e);

	json_array_foreach(all, i, device)
		mtree_take_device(device, vm);
	return r;
}

/* Not both can be there: where two that may be taken for each other are is not known. */
static void mtree_forget_same(struct vm *vm)
{
	struct ram_block *b = vm->blocks;

	for (unsigned int i = 0; i < vm->nblocks; i++) {
		const uint64_t address = b[i].address;

		for (unsigned int j = i + 1; j < vm->nblocks; j++)
			if (b[j].address == address && b[j].pages == b[i].pages)
				b[i].address = b[j].address = WIRE_NO_ADDRESS;
	}
}

int mtree_query(struct qmp *q, struct vm *vm, struct err *e)
{
	CLEANUP_FREE char *text = NULL;
	int r = qmp_monitor(q, "info mtree", &text, e);

	for (unsigned int i = 0; !r && i < vm->nblocks; i++)
		if (!text || !mtree_address(text, vm->blocks[i].name, &vm->blocks[i].address))
			vm->blocks[i].address = WIRE_NO_ADDRESS;
	if (!r && text && (strstr(text, "): virtio-mem") || strstr(text, "): alias nvdimm-memory @")))
		r = mtree_query_devices(q, vm, e);
	mtree_forget_same(vm);
	return r;
}

/*
 *	FlatView #2
 *	 AS "memory", root: system
 *	 AS "cpu-memory-0", root: system
 *	 Root memory region: system
 *	  0000000000000000-000000000009ffff (prio 0, ram): pc.ram KVM
 *	  00000000000c0000-00000000000c9fff (prio 0, rom): pc.ram @00000000000c0000 KVM
 */
const char *mtree_memory(const char *text)
{
	static const char title[] = " AS \"memory\", root: system";
	const char *at = strstr(text, title);

	return at ? at + strlen(title) : NULL;
}

static bool mtree_parse_range(const char *line, struct mtree_range *range)
{
	int name = 0, offset = 0;
	const char *rest;

	static_assert(WIRE_NAME_MAX == 255, "the width below");
	range->offset = 0;
	if (sscanf(line, " %16" SCNx64 "-%16" SCNx64 " (prio %*d, %*[^)]): %255s%n", &range->first,
		   &range->last, range->name, &name) != 3 || !name || range->last < range->first)
		return false;
	rest = line + name;
	if (sscanf(rest, " @%16" SCNx64 "%n", &range->offset, &offset) == 1)
		rest += offset;
	return !*rest || !strcmp(rest, " KVM");
}

bool mtree_next(const char **at, struct mtree_range *range)
{
	char line[WIRE_NAME_MAX + 256];
	size_t n;

	for (; **at; *at += n) {
		*at += strspn(*at, "\r\n");
		n = strcspn(*at, "\r\n");
		if (!strncmp(*at, "FlatView", strlen("FlatView")))
			return false;
		if (n >= sizeof(line))
			continue;
		memcpy(line, *at, n);
		line[n] = '\0';
		if (mtree_parse_range(line, range)) {
			*at += n;
			return true;
		}
	}
	return false;
}

void mtree_ask_hva(char line[MTREE_LINE], uint64_t address)
{
	snprintf(line, MTREE_LINE, "gpa2hva 0x%" PRIx64, address);
}

bool mtree_told_hva(const char *text, uint64_t address, char *name, uint64_t *hva)
{
	uint64_t of;

	static_assert(WIRE_NAME_MAX == 255, "the width below");
	return text && sscanf(text, "Host virtual address for 0x%" SCNx64 " (%255[^)]) is 0x%" SCNx64,
			      &of, name, hva) == 3 && of == address;
}

int mtree_check(const struct vm *vm, struct err *e)
{
	const struct ram_block *b = vm->blocks;

	for (unsigned int i = 0; i < vm->nblocks; i++)
		for (unsigned int j = 0; j < vm->nblocks; j++)
			if (i != j && b[i].pages == b[j].pages && b[i].address == WIRE_NO_ADDRESS)
				return err_set(e, GW_QMP, EOPNOTSUPP,
					       "this QEMU does not say where RAM \"%s\" lies in the guest (info mtree), and another RAM block has the same size: give it another size, or use memory-backend-file and --device-state migrate",
					       b[i].name);
	return 0;
}
