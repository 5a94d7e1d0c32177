/* SPDX-License-Identifier: GPL-2.0-only */
/* RAM blocks by QEMU's names: the body of a BLOCKS, PRIVATE_BLOCKS or CHECK frame. */
#ifndef GODWIT_WIRE_BLOCKS_H
#define GODWIT_WIRE_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

#define WIRE_NAME_MAX	255	/* bytes of a RAM block's name */
#define WIRE_BLOCKS_MAX	64
#define WIRE_NO_ADDRESS	UINT64_MAX

/**
 * struct wire_block - one RAM block, in the BLOCKS, PRIVATE_BLOCKS and CHECK frames
 * On the wire: u64 pages, u64 address, u32 page_size, u16 name_len, u16 reserved (0), name.
 * @address: the block's address in the guest, bytes; in save mode it must be the same at both ends.
 *	WIRE_NO_ADDRESS: not known, as always in PRIVATE_BLOCKS
 * @pages: 4 KiB pages, at least 1; their bytes fit into 63 bits
 * @page_size: bytes of a native page at the sender (informative)
 * @name: QEMU's RAM block name, NUL-terminated here, printable ASCII
 */
struct wire_block {
	uint64_t pages;
	uint64_t address;
	uint32_t page_size;
	char name[WIRE_NAME_MAX + 1];
};

/* Bytes that the records of n blocks take. */
size_t wire_blocks_size(const struct wire_block *b, unsigned int n);
void wire_put_blocks(uint8_t *p, const struct wire_block *b, unsigned int n);
/*
 * Decodes exactly n records from exactly len bytes; names must be non-empty, printable and
 * distinct.
 */
int wire_get_blocks(const uint8_t *p, size_t len, struct wire_block *b, unsigned int n);

#endif
