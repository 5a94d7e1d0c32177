/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * --verify: the proof. With the VM stopped and the last round in place, the source sends a hash of every
 * allocated page and names the ranges that it never touched; the destination compares with what it holds.
 * Reading is by pread(): a hole stays a hole on both sides. XXH3, 64 bits, a page.
 */
#ifndef GODWIT_VERIFY_H
#define GODWIT_VERIFY_H

#include <stdint.h>

#include "err.h"
#include "io/channel.h"
#include "source/source.h"

/* Sends all hashes, waits for the verdict. GW_VERIFY names the pages that differ. */
int verify_send(const struct vm *vm, struct dirty_source *s, struct channel *ch, struct err *e);

/* At the destination: what differed so far. */
struct verify_result {
	uint64_t differ;
	struct wire_extent listed[WIRE_BAD_MAX];
	unsigned int nr_listed;
};

/* One VERIFY frame, header h already read. */
int verify_frame(const struct vm *vm, struct channel *ch, const struct wire_header *h, const uint64_t *block_pages,
		 struct verify_result *v, struct err *e);
int verify_answer(struct channel *ch, const struct verify_result *v, struct err *e);

#endif
