/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a process maps the VM's RAM files. Each of these mappings must be registered with the
 * process's userfaultfd before pages go missing: one that is not makes a page of zeros of a missing
 * page, for all.
 */
#ifndef GODWIT_GUEST_MAPS_H
#define GODWIT_GUEST_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proc/proc.h"
#include "vmm/vm.h"

/**
 * struct guest_map - addresses of a process that show pages of a block
 * @start: of @first; whole pages of the block's file system
 */
struct guest_map {
	uint64_t start, end;
	unsigned int block;
	uint64_t first;
};

/* In the order of their addresses; what the kernel shows in pieces is one. */
struct guest_maps {
	struct guest_map *map;
	size_t n;
};

/**
 * guest_maps_of() - the mappings among these that show RAM of the VM
 * @whole: the process is the VMM: it maps all of each block
 * guest_maps_free() also after an error. GW_RAM_PRIVATE: a mapping is private, so its pages are the
 * process's own once it has written them, or @whole is not so.
 */
int guest_maps_of(const struct proc_maps *all, const struct vm *vm, bool whole,
		  struct guest_maps *out, struct err *e);
/* The same, of a process that lives. proc: "/proc/PID", or a test's directory. */
int guest_maps_find(const char *proc, const struct vm *vm, bool whole, struct guest_maps *out,
		    struct err *e);
void guest_maps_free(struct guest_maps *m);
bool guest_maps_same(const struct guest_maps *a, const struct guest_maps *b);
/* Which page is there? NULL: none of the VM's. */
const struct guest_map *guest_maps_at(const struct guest_maps *m, uint64_t address,
				      uint64_t *page);

#endif
