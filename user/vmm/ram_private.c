// SPDX-License-Identifier: GPL-2.0-only
/*
 * Private memory of the VMM as a RAM block: where QEMU says that it lies, if the kernel says the
 * same of it.
 *
 * What is behind it must be memory: no device, and a file only where a page that was never written
 * can be told from one that was (tmpfs), or where there is none of the file's (hugetlbfs).
 * godwit.ko looks at the page tables as well.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"
#include "page/page.h"
#include "proc/proc_io.h"
#include "vmm/ram.h"

static int ram_unfit(const struct backend *b, struct err *e, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int ram_unfit(const struct backend *b, struct err *e, const char *fmt, ...)
{
	char why[300], why_line[300];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	return err_set(e, GW_RAM_PRIVATE, EINVAL, "RAM \"%s\" %s: this VM cannot be migrated as it was started; use memory-backend-ram, or a file on tmpfs or hugetlbfs",
		       b->id, one_line(why_line, sizeof(why_line), why));
}

/* The file that a mapping shows, opened; *out: its descriptor. */
static int open_behind(const struct backend *b, const struct proc_map *m, const char *proc,
		       struct ram_block *out, struct err *e)
{
	struct stat st;
	int r = ram_open_mapped(m, proc, false, out, &st, e);

	if (r < 0)
		return r;
	if (!r && !S_ISREG(st.st_mode))
		return ram_unfit(b, e, "is memory of a device, %.128s", m->path);
	if (!r)
		return ram_unfit(b, e, "is a private mapping of %.128s, which is not on tmpfs or hugetlbfs",
				 m->path);
	if ((uint64_t)st.st_size < b->bytes)
		return ram_unfit(b, e, "is a private mapping of a file that is too short");
	if (m->start != b->hva || m->offset)
		return ram_unfit(b, e, "does not begin at the start of its file (offset=)");
	if (out->hugetlb && st.st_blocks)
		return ram_unfit(b, e, "is a private mapping of a hugetlbfs file that has pages");
	return 0;
}

/* One piece behind another, without a gap, all of one kind. */
static int check_mappings(const struct backend *b, const struct proc_maps *maps, struct err *e)
{
	uint64_t at = b->hva;

	for (size_t i = 0; i < maps->n; i++) {
		const struct proc_map *m = &maps->map[i];

		if (m->start > at)
			break;
		if (m->shared)
			return ram_unfit(b, e, "is shared in part");
		if (m->ino != maps->map[0].ino || m->dev != maps->map[0].dev)
			return ram_unfit(b, e, "is in more than one file");
		at = m->end;
	}
	return at >= b->hva + b->bytes ? 0 : ram_unfit(b, e, "is not mapped where QEMU says that it is");
}

int ram_open_private(const struct backend *b, const char *proc, const struct vm *vm,
		     struct ram_block *out, struct err *e)
{
	__attribute__((cleanup(proc_free_maps))) struct proc_maps maps = { 0 };
	int r;

	if (!b->hva)
		return ram_refuse(b->id, b->bytes, e, "is private to QEMU, and this QEMU does not say where it is: %s",
				  b->why);
	*out = (struct ram_block) {
		.pages = b->bytes / PAGE_BYTES, .address = WIRE_NO_ADDRESS, .page_size = PAGE_BYTES,
		.fd = -1, .pid = vm->pid, .pidfd = vm->pidfd,
	};
	memcpy(out->name, b->id, sizeof(out->name));
	r = proc_load_range(proc, b->hva, b->hva + b->bytes, &maps, e);
	if (!r)
		r = check_mappings(b, &maps, e);
	if (!r && maps.map[0].ino)
		r = open_behind(b, &maps.map[0], proc, out, e);
	if (!r) {
		out->hva = b->hva;
		r = ram_process_open(out, e);
	}
	if (r)
		ram_block_close(out);
	return r;
}
