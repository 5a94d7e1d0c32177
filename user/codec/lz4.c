// SPDX-License-Identifier: GPL-2.0-only
/*
 * LZ4. What does not compress it gives up at 5 to 14 GiB/s, so no sample has to be taken before.
 * The table is zeroed for each block: 16 KiB, of up to 256 that are read; a table that is kept
 * needs care after each block that did not fit, and was not faster.
 */
#include <errno.h>
#include <limits.h>
#include <lz4.h>
#include <stdlib.h>

#include "codec/codec.h"
#include "wire/wire.h"

static void *lz4_new_packer(void)
{
	return malloc((size_t)LZ4_sizeofState());
}

static size_t lz4_pack(void *state, unsigned int level, const void *in, size_t len, void *out,
		       size_t room)
{
	int n;

	if (len > LZ4_MAX_INPUT_SIZE || room > INT_MAX)
		return 0;
	n = LZ4_compress_fast_extState(state, in, out, (int)len, (int)room, (int)level);
	return n > 0 ? (size_t)n : 0;
}

/* It needs no state, but what is made must not be NULL. */
static void *lz4_new_unpacker(void)
{
	return malloc(1);
}

static int lz4_unpack(void *state, const void *in, size_t len, void *out, size_t size)
{
	(void)state;
	if (len > INT_MAX || size > INT_MAX)
		return -EPROTO;
	return LZ4_decompress_safe(in, out, (int)len, (int)size) == (int)size ? 0 : -EPROTO;
}

/* The level is the library's acceleration. */
const struct codec codec_lz4 = {
	.name = "lz4", .library = "liblz4", .version = LZ4_versionString,
	.number = 1, .feature = WIRE_LZ4, .level = 1,
	.new_packer = lz4_new_packer, .free_packer = free, .pack = lz4_pack,
	.new_unpacker = lz4_new_unpacker, .free_unpacker = free, .unpack = lz4_unpack,
};
