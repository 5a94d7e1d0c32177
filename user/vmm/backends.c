// SPDX-License-Identifier: GPL-2.0-only
/* What QEMU says of its memory backends. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/ram.h"
#include "vmm/ramblocks.h"
#include "vmm/text.h"

static int odd(const char *what, struct err *e)
{
	return err_set(e, GW_NOT_QEMU, EPROTO, "query-memdev: %s: is this QEMU's own QMP socket?", what);
}

/* As -object takes it. */
static void size_text(char *buf, size_t len, uint64_t bytes)
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
	size_text(size, sizeof(size), bytes);
	return err_set(e, GW_RAM_PRIVATE, EINVAL,
		       "RAM \"%s\" %s: start QEMU with \"-object memory-backend-file,id=%s,mem-path=/dev/shm/FILE,size=%s,share=on\" and \"-machine ...,memory-backend=%s\" (with NUMA \"-numa node,memdev=%s\")",
		       id, one_line(why_line, sizeof(why_line), why), id, size, id, id);
}

static int get_property(struct qmp *q, const char *id, const char *property, json_t **value, struct err *e)
{
	char path[WIRE_NAME_MAX + sizeof("/objects/")];

	snprintf(path, sizeof(path), "/objects/%s", id);
	return qmp_call(q, "qom-get", json_pack("{s:s, s:s}", "path", path, "property", property), value, e);
}

/* The id becomes a name on the wire, and part of our one line. */
static bool good_id(const char *id)
{
	size_t len = id ? strlen(id) : 0;

	for (size_t i = 0; i < len; i++)
		if (id[i] <= ' ' || id[i] > '~')
			return false;
	return len && len <= WIRE_NAME_MAX;
}

static int check_type(struct qmp *q, const struct backend *b, bool *memfd, struct err *e)
{
	json_auto_t *value = NULL;
	const char *type;
	int r = get_property(q, b->id, "type", &value, e);

	if (r)
		return r;
	type = json_string_value(value);
	if (!type)
		return odd("a backend without a type", e);
	*memfd = !strcmp(type, "memory-backend-memfd");
	if (!*memfd && strcmp(type, "memory-backend-file"))
		return ram_refuse(b->id, b->bytes, e, "is a %.64s, not a file", type);
	return 0;
}

static int check_share(struct qmp *q, const struct backend *b, struct err *e)
{
	json_auto_t *value = NULL;
	int r = get_property(q, b->id, "share", &value, e);

	if (!r && !json_is_true(value))
		r = ram_refuse(b->id, b->bytes, e, "is private to QEMU (share=off)");
	return r;
}

static int get_mem_path(struct qmp *q, struct backend *b, struct err *e)
{
	json_auto_t *value = NULL;
	int r = get_property(q, b->id, "mem-path", &value, e);

	if (r)
		return r;
	if (!json_is_string(value))
		return odd("a file backend without a mem-path", e);
	b->mem_path = strdup(json_string_value(value));
	return b->mem_path ? 0 : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
}

static int query_one(struct qmp *q, const json_t *dev, struct backend *b, struct err *e)
{
	const char *id = json_string_value(json_object_get(dev, "id"));
	json_int_t bytes = json_integer_value(json_object_get(dev, "size"));
	bool memfd = false;
	int r;

	if (!good_id(id))
		return odd("a backend without a usable id", e);
	if (bytes <= 0)
		return odd("a backend without a usable size", e);
	strcpy(b->id, id);
	b->bytes = (uint64_t)bytes;
	r = check_type(q, b, &memfd, e);
	if (!r)
		r = check_share(q, b, e);
	if (!r && b->bytes % WIRE_PAGE)
		r = ram_refuse(id, b->bytes, e, "does not consist of whole pages of 4 KiB");
	return r || memfd ? r : get_mem_path(q, b, e);
}

/* Only memfds need it: a file is found by its name, also by older QEMU. */
static int find_memfds(struct qmp *q, struct backends *all, struct err *e)
{
	struct ramblocks *blocks = NULL;
	bool told = false;
	int r = 0;

	for (unsigned int i = 0; !r && i < all->n; i++) {
		const struct ramblock *found;

		if (all->b[i].mem_path)
			continue;
		if (!blocks) {
			blocks = malloc(sizeof(*blocks));
			r = blocks ? ramblocks_query(q, blocks, &told, e) : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
		}
		found = !r && told ? ramblocks_find(blocks, all->b[i].id) : NULL;
		if (found)
			all->b[i].hva = found->hva;
	}
	free(blocks);
	return r;
}

static int by_id(const void *a, const void *b)
{
	return strcmp(((const struct backend *)a)->id, ((const struct backend *)b)->id);
}

int backends_query(struct qmp *q, struct backends *all, struct err *e)
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
		return err_set(e, GW_RAM_PRIVATE, EINVAL, "QEMU names no memory backend: QEMU 5.0 or newer is needed");
	if (n > WIRE_BLOCKS_MAX)
		return err_set(e, GW_RAM_PRIVATE, E2BIG, "the VM has %zu memory backends, godwit migrates %d: use fewer, larger ones", n,
			       WIRE_BLOCKS_MAX);
	for (size_t i = 0; !r && i < n; i++) {
		all->b[all->n] = (struct backend) { 0 };
		r = query_one(q, json_array_get(devs, i), &all->b[all->n++], e);
	}
	if (r)
		return r;
	qsort(all->b, all->n, sizeof(all->b[0]), by_id);
	for (size_t i = 1; i < n; i++)
		if (!by_id(&all->b[i - 1], &all->b[i]))
			return odd("two backends with one id", e);
	return find_memfds(q, all, e);
}

static int find_ivshmem(struct qmp *q, const char *container, struct err *e)
{
	json_auto_t *devices = NULL;
	const json_t *device;
	size_t i;
	int r = qmp_call(q, "qom-list", json_pack("{s:s}", "path", container), &devices, e);

	json_array_foreach(devices, i, device) {
		const char *name = json_string_value(json_object_get(device, "name"));
		const char *type = json_string_value(json_object_get(device, "type"));
		char shown[80];

		if (!r && name && type && !strcmp(type, "child<ivshmem-plain>"))
			r = err_set(e, GW_VM_STATE, EBUSY, "QEMU cannot migrate the RAM of an ivshmem device (\"%s\") in place: unplug it first (device_del)",
				    one_line(shown, sizeof(shown), name));
	}
	return r;
}

int ram_refuse_ivshmem(struct qmp *q, struct err *e)
{
	int r = find_ivshmem(q, "/machine/peripheral", e);

	return r ? r : find_ivshmem(q, "/machine/peripheral-anon", e);
}

static bool has_block(const struct vm *vm, const char *id, json_int_t bytes)
{
	for (unsigned int i = 0; id && i < vm->nblocks; i++)
		if (!strcmp(vm->blocks[i].name, id))
			return bytes > 0 && (uint64_t)bytes == vm->blocks[i].pages * WIRE_PAGE;
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
		same = same && has_block(vm, json_string_value(json_object_get(dev, "id")),
					 json_integer_value(json_object_get(dev, "size")));
	if (r || same)
		return r;
	return err_set(e, GW_VM_STATE, EAGAIN, "RAM of the source VM was plugged or unplugged meanwhile: try again");
}

void backends_free(struct backends *all)
{
	for (unsigned int i = 0; i < all->n; i++)
		free(all->b[i].mem_path);
	all->n = 0;
}
