/* SPDX-License-Identifier: GPL-2.0-only */
/* A guest's RAM as a file, which a receiver indexes when the guest comes back. */
#ifndef GODWIT_REUSE_IMAGE_H
#define GODWIT_REUSE_IMAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "vmm/vm.h"

/* Before anything is changed: could a file be made at @path? Errors: GW_USAGE */
int image_check(const char *path, struct err *e);
/**
 * image_write() - all blocks, one after the other
 * @path: becomes the file, of mode 0600 and without pages of zeros, once that is whole; what was
 *	there before stays until then
 * @stop: asked often: true ends it
 * @bytes: out: that were written
 * Errors: GW_CANCELLED, GW_INTERNAL, GW_VM_GONE: there is no new file
 */
int image_write(const char *path, const struct vm *vm, bool (*stop)(void), uint64_t *bytes,
		struct err *e);

#endif
