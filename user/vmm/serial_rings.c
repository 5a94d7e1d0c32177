// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "proc/memory.h"
#include "vmm/mtree.h"
#include "vmm/serial_rings.h"

#define QUEUES_MAX	1024	/* of a device: QEMU's VIRTIO_QUEUE_MAX */
#define RINGS_MAX	4096
#define BATCH		16
#define USED_INDEX	2	/* bytes from the beginning of a used ring */

static int rings_no_memory(struct err *e)
{
	return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
}

/* One more, if the guest has set it up; its index is where the guest sees it: rings_locate(). */
static int rings_add(struct serial_rings *r, const struct qmp_batch *b, const char *path,
		     struct err *e)
{
	json_int_t at = json_integer_value(json_object_get(b->ret, "vring-used"));
	struct serial_ring *more;

	if (!at || r->n == RINGS_MAX)
		return 0;
	more = realloc(r->ring, (r->n + 1) * sizeof(*more));
	if (!more)
		return rings_no_memory(e);
	r->ring = more;
	more[r->n] = (struct serial_ring) { .index = (uint64_t)at + USED_INDEX };
	snprintf(more[r->n++].path, sizeof(more->path), "%s", path);
	return 0;
}

/*
 * Output has the odd queues (virtio 1.2, 5.3.2). Until QEMU refuses one: x-query-virtio-status
 * would tell how many there are, and 11.1 aborts on it (fit/view_behind.c).
 */
static int rings_of_device(struct qmp *q, const char *path, struct serial_rings *r, struct err *e)
{
	bool more = true;
	int ret = 0;

	for (unsigned int queue = 1; !ret && more && queue < QUEUES_MAX; queue += 2 * BATCH) {
		struct qmp_batch b[BATCH] = { 0 };

		for (unsigned int i = 0; i < BATCH; i++) {
			b[i].command = "x-query-virtio-queue-status";
			b[i].args = json_pack("{s:s, s:i}", "path", path, "queue",
					      (int)(queue + 2 * i));
		}
		ret = qmp_call_all(q, b, BATCH, e);
		for (unsigned int i = 0; i < BATCH; i++) {
			more &= !!b[i].ret;
			if (!ret)
				ret = rings_add(r, &b[i], path, e);
			json_decref(b[i].ret);
		}
	}
	return ret;
}

/* Addresses of the guest's become QEMU's; what the guest does not see there is left out. */
static int rings_locate(struct qmp *q, struct serial_rings *r, struct err *e)
{
	CLEANUP_FREE struct qmp_batch *b = calloc(r->n + 1, sizeof(*b));
	char line[MTREE_LINE], name[WIRE_NAME_MAX + 1];
	unsigned int kept = 0;
	int ret;

	if (!b)
		return rings_no_memory(e);
	for (unsigned int i = 0; i < r->n; i++) {
		mtree_ask_hva(line, r->ring[i].index);
		b[i].command = "human-monitor-command";
		b[i].args = json_pack("{s:s}", "command-line", line);
	}
	ret = qmp_call_all(q, b, r->n, e);
	for (unsigned int i = 0; i < r->n; i++) {
		const char *told = json_string_value(b[i].ret);
		struct serial_ring ring = r->ring[i];

		if (mtree_told_hva(told, r->ring[i].index, name, &ring.index))
			r->ring[kept++] = ring;
		json_decref(b[i].ret);
	}
	r->n = kept;
	return ret;
}

int serial_rings_find(struct qmp *q, pid_t pid, struct serial_rings *r, struct err *e)
{
	struct qmp_batch all = { .command = "x-query-virtio" };
	const json_t *device;
	size_t i;
	int ret;

	serial_rings_free(r);
	r->pid = pid;
	ret = qmp_call_all(q, &all, 1, e);
	json_array_foreach(all.ret, i, device) {
		const char *name = json_string_value(json_object_get(device, "name"));
		const char *path = json_string_value(json_object_get(device, "path"));

		if (!ret && name && path && !strcmp(name, "virtio-serial"))
			ret = rings_of_device(q, path, r, e);
	}
	json_decref(all.ret);
	return ret ? ret : rings_locate(q, r, e);
}

static bool rings_read(const struct serial_rings *r, const struct serial_ring *ring, uint16_t *used)
{
	return proc_memory_read(r->pid, ring->index, used, sizeof(*used)) == sizeof(*used);
}

void serial_rings_note(struct serial_rings *r)
{
	unsigned int kept = 0;

	for (unsigned int i = 0; i < r->n; i++) {
		r->ring[kept] = r->ring[i];
		kept += rings_read(r, &r->ring[i], &r->ring[kept].used);
	}
	r->n = kept;
}

int serial_rings_check(const struct serial_rings *r, struct err *e)
{
	char shown[256];

	for (unsigned int i = 0; i < r->n; i++) {
		const struct serial_ring *ring = &r->ring[i];
		uint16_t used;

		if (!rings_read(r, ring, &used) || used == ring->used)
			continue;
		return err_set(e, GW_VM_STATE, EBUSY,
			       "a client of a port of %s (virtio-serial) took what was held up for it while the guest stood still, and the guest could lose that: try again, with no client that is slow to take its output",
			       one_line(shown, sizeof(shown), ring->path));
	}
	return 0;
}

void serial_rings_free(struct serial_rings *r)
{
	free(r->ring);
	*r = (struct serial_rings) { 0 };
}
