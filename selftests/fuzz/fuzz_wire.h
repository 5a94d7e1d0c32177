/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parts of fuzz_wire share: each takes bytes of the fuzzer, and aborts where a decoder breaks its promise. */
#ifndef FUZZ_WIRE_H
#define FUZZ_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "wire/extent.h"
#include "wire/owed.h"
#include "wire/reuse.h"
#include "wire/wire.h"

#define CHECK(cond)	do { if (!(cond)) abort(); } while (0)

/* The blocks that frames are about: from nothing to more than an off_t, so that all of the range checks can be met. */
#define RAM_BLOCKS	6
extern const uint64_t ram[RAM_BLOCKS];

/* An allocation of its own of exactly this length, so that ASan sees a read outside of it. */
void *exact_copy(const uint8_t *p, size_t len);
/* An extent that a decoder let through, and the bytes that it came from. */
void check_extent(const uint8_t *p, const struct wire_extent *x);

/* fuzz_wire_ram.c */
void fuzz_extent(const uint8_t *data, size_t size);
void fuzz_ram(const struct wire_header *h, const uint8_t *data, size_t size);
void fuzz_ram_pages(const uint8_t *data, size_t size, unsigned int n);
void fuzz_changed(const uint8_t *data, size_t size, unsigned int n);

/* fuzz_wire_later.c; these take a body as long as its header says */
void fuzz_owed(const struct wire_header *h, const uint8_t *body);
void fuzz_reuse(const struct wire_header *h, const uint8_t *body);
void fuzz_owed_frame(const uint8_t *data, size_t size, unsigned int n);
void fuzz_reuse_frame(const uint8_t *data, size_t size, unsigned int n);

/* These decoders take a whole body: as much of it as the header says must be there. */
void fuzz_whole(const struct wire_header *h, const uint8_t *data, size_t size,
		void (*fuzz)(const struct wire_header *h, const uint8_t *body));

#endif
