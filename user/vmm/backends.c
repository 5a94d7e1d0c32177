// SPDX-License-Identifier: GPL-2.0-only
/* Reads QEMU's memory backends (query-memdev). */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "page/page.h"
#include "vmm/plugged.h"
#include "vmm/ram.h"
#include "vmm/ramblocks.h"

static int backends_odd(const char *what, struct err *e)
{
	return err_set(e, GW_NOT_QEMU, EPROTO, "query-memdev: %s: is this QEMU's own QMP socket?", what);
}

/* The size in the form that -object takes. */
static void backends_size_text(char *buf, size_t len, uint64_t bytes)
{
	if (bytes % (1 << 30) == 0)
		snprintf(buf, len, "%lluG", (unsigned long long)bytes >> 30);
	else if (bytes % (1 << 20) == 0)
		snprintf(buf, len, "%lluM", (unsigned long long)bytes >> 20);
	else
		snprintf(buf, len, "%llu", (unsigned long long)bytes);
}

int ram_refuse(const char *id, uint64_t bytes, struct err *e, const char *fmt, ...)
{
	char why[400], why_line[400], size[24];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	backends_size_text(size, sizeof(size), bytes);
	return err_set(e, GW_RAM_PRIVATE, EINVAL,
		       "RAM \"%s\" %s: start QEMU with \"-object memory-backend-file,id=%s,mem-path=/dev/shm/FILE,size=%s,share=on\" and \"-machine ...,memory-backend=%s\" (with NUMA \"-numa node,memdev=%s\")",
		       id, one_line(why_line, sizeof(why_line), why), id, size, id, id);
}

static int backends_get(struct qmp *q, const char *id, const char *property, json_t **value,
			struct err *e)
{
	char path[WIRE_NAME_MAX + sizeof("/objects/")];

	snprintf(path, sizeof(path), "/objects/%s", id);
	return qmp_call(q, "qom-get", json_pack("{s:s, s:s}", "path", path, "property", property),
			value, e);
}

/* The id becomes a name on the wire, and part of one-line messages. */
static bool backends_good_id(const char *id)
{
	size_t len = id ? strlen(id) : 0;

	for (size_t i = 0; i < len; i++)
		if (id[i] <= ' ' || id[i] > '~')
			return false;
	return len && len <= WIRE_NAME_MAX;
}

/* What no other end can be filled from, and what there is no need for. */
static int backends_refuse_type(const struct backend *b, const char *type, struct err *e)
{
	if (!strcmp(type, "memory-backend-epc"))
		return err_set(e, GW_RAM_PRIVATE, EINVAL,
			       "RAM \"%s\" is SGX memory (memory-backend-epc), which the CPU lets no program read: start QEMU without it (-machine sgx-epc.0.memdev=%s)",
			       b->id, b->id);
	if (!strcmp(type, "memory-backend-shm"))
		return ram_refuse(b->id, b->bytes, e,
				  "is a memory-backend-shm, which godwit does not move");
	return ram_refuse(b->id, b->bytes, e, "is a %.64s, which godwit does not know", type);
}

static int backends_get_type(struct qmp *q, struct backend *b, struct err *e)
{
	static const char *const types[] = {
		[BACKEND_FILE] = "memory-backend-file",
		[BACKEND_MEMFD] = "memory-backend-memfd",
		[BACKEND_SHARED] = "memory-backend-ram",
	};
	json_auto_t *value = NULL;
	const char *type;
	int r = backends_get(q, b->id, "type", &value, e);

	if (r)
		return r;
	type = json_string_value(value);
	if (!type)
		return backends_odd("a backend without a type", e);
	for (unsigned int i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(type, types[i])) {
			b->kind = (enum backend_kind)i;
			return 0;
		}
	return backends_refuse_type(b, type, e);
}

static int backends_get_share(struct qmp *q, struct backend *b, struct err *e)
{
	json_auto_t *value = NULL;
	int r = backends_get(q, b->id, "share", &value, e);

	if (!r && !json_is_true(value))
		b->kind = BACKEND_PRIVATE;
	return r;
}

static int backends_get_mem_path(struct qmp *q, struct backend *b, struct err *e)
{
	json_auto_t *value = NULL;
	int r = backends_get(q, b->id, "mem-path", &value, e);

	if (r)
		return r;
	if (!json_is_string(value))
		return backends_odd("a file backend without a mem-path", e);
	b->mem_path = strdup(json_string_value(value));
	return b->mem_path ? 0 : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
}

static int backends_query_one(struct qmp *q, const json_t *dev, struct backend *b, struct err *e)
{
	const char *id = json_string_value(json_object_get(dev, "id"));
	json_int_t bytes = json_integer_value(json_object_get(dev, "size"));
	int r;

	if (!backends_good_id(id))
		return backends_odd("a backend without a usable id", e);
	if (bytes <= 0)
		return backends_odd("a backend without a usable size", e);
	strcpy(b->id, id);
	b->bytes = (uint64_t)bytes;
	r = backends_get_type(q, b, e);
	if (!r)
		r = backends_get_share(q, b, e);
	if (!r && b->bytes % PAGE_BYTES)
		r = ram_refuse(id, b->bytes, e, "does not consist of whole pages of 4 KiB");
	return r || b->kind != BACKEND_FILE ? r : backends_get_mem_path(q, b, e);
}

/* A file is found by its name; all else where QEMU says. */
static int backends_find_addresses(struct qmp *q, pid_t pid, struct backends *all, struct err *e)
{
	CLEANUP_FREE struct ramblocks *blocks = NULL;
	int r = 0;

	for (unsigned int i = 0; !r && i < all->n; i++) {
		const struct ramblock *found;

		if (all->b[i].kind == BACKEND_FILE)
			continue;
		if (!blocks) {
			blocks = calloc(1, sizeof(*blocks));
			if (!blocks)
				return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
			r = ramblocks_query(q, pid, blocks, e);
		}
		found = r ? NULL : ramblocks_find_backend(blocks, all->b[i].id,
							   all->b[i].bytes);
		if (found)
			all->b[i].hva = found->hva;
		snprintf(all->b[i].why, sizeof(all->b[i].why), "%s",
			 *blocks->why ? blocks->why : "x-query-ramblock does not list it");
	}
	return r;
}

static int backends_by_id(const void *a, const void *b)
{
	return strcmp(((const struct backend *)a)->id, ((const struct backend *)b)->id);
}

int backends_query(struct qmp *q, pid_t pid, struct backends *all, struct err *e)
{
	json_auto_t *devs = NULL;
	size_t n;
	int r;

	all->n = 0;
	r = qmp_call(q, "query-memdev", NULL, &devs, e);
	if (r)
		return r;
	n = json_array_size(devs);
	if (n == 0)
		return err_set(e, GW_RAM_PRIVATE, EINVAL,
			       "QEMU names no memory backend: QEMU 5.0 or newer is needed");
	if (n > WIRE_BLOCKS_MAX)
		return err_set(e, GW_RAM_PRIVATE, E2BIG,
			       "the VM has %zu memory backends, godwit migrates up to %d: use fewer, larger backends",
			       n, WIRE_BLOCKS_MAX);
	for (size_t i = 0; !r && i < n; i++) {
		all->b[all->n] = (struct backend) { 0 };
		r = backends_query_one(q, json_array_get(devs, i), &all->b[all->n++], e);
	}
	if (r)
		return r;
	qsort(all->b, all->n, sizeof(all->b[0]), backends_by_id);
	for (size_t i = 1; i < n; i++)
		if (!backends_by_id(&all->b[i - 1], &all->b[i]))
			return backends_odd("two backends with one id", e);
	return backends_find_addresses(q, pid, all, e);
}

static int backends_mark_shown(struct qmp *q, const char *container, const char *device,
			       struct vm *vm, struct err *e)
{
	json_auto_t *memdev = NULL;
	char path[600];
	int r;

	snprintf(path, sizeof(path), "%s/%s", container, device);
	r = qmp_call(q, "qom-get", json_pack("{s:s, s:s}", "path", path, "property", "memdev"),
		     &memdev, e);
	for (unsigned int i = 0; json_is_string(memdev) && i < vm->nblocks; i++)
		vm->blocks[i].ivshmem |=
			ramblocks_is(json_string_value(memdev), vm->blocks[i].name);
	return r;
}

/* What an ivshmem server shares is no backend's, and its programs write it unseen. */
static int backends_refuse_shown(const char *device, struct err *e)
{
	char shown[128];

	return err_set(e, GW_RAM_PRIVATE, EINVAL,
		       "the device \"%s\" (ivshmem-doorbell) shows the guest RAM of an ivshmem server, which godwit does not move: unplug it (device_del), or use ivshmem-plain",
		       one_line(shown, sizeof(shown), device));
}

static int backends_find_ivshmem(struct qmp *q, const char *container, const json_t *devices,
				 struct vm *vm, struct err *e)
{
	const json_t *device;
	size_t i;
	int r = 0;

	json_array_foreach(devices, i, device) {
		const char *name = json_string_value(json_object_get(device, "name"));
		const char *type = json_string_value(json_object_get(device, "type"));

		if (r || !name || !type)
			continue;
		if (!strcmp(type, "child<ivshmem-plain>"))
			r = backends_mark_shown(q, container, name, vm, e);
		else if (!strcmp(type, "child<ivshmem-doorbell>"))
			r = backends_refuse_shown(name, e);
	}
	return r;
}

int ram_find_ivshmem(struct qmp *q, struct vm *vm, struct err *e)
{
	struct plugged p;
	int r = plugged_ask(q, &p, e);

	for (unsigned int i = 0; !r && i < PLUGGED_FOLDERS; i++)
		r = backends_find_ivshmem(q, plugged_folders[i], p.list[i], vm, e);
	plugged_free(&p);
	return r;
}

static bool backends_has_block(const struct vm *vm, const char *id, json_int_t bytes)
{
	for (unsigned int i = 0; id && i < vm->nblocks; i++)
		if (!strcmp(vm->blocks[i].name, id))
			return bytes > 0 && (uint64_t)bytes == vm->blocks[i].pages * PAGE_BYTES;
	return false;
}

int backends_same(struct qmp *q, const struct vm *vm, struct err *e)
{
	json_auto_t *devs = NULL;
	int r = qmp_call(q, "query-memdev", NULL, &devs, e);
	bool same = json_array_size(devs) == vm->nblocks;
	json_t *dev;
	size_t i;

	json_array_foreach(devs, i, dev)
		same = same && backends_has_block(vm, json_string_value(json_object_get(dev, "id")),
						  json_integer_value(json_object_get(dev, "size")));
	if (r || same)
		return r;
	return err_set(e, GW_VM_STATE, EAGAIN,
		       "RAM of the source VM was plugged or unplugged meanwhile: try again");
}

void backends_free(struct backends *all)
{
	for (unsigned int i = 0; i < all->n; i++)
		free(all->b[i].mem_path);
	all->n = 0;
}
