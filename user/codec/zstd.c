// SPDX-License-Identifier: GPL-2.0-only
/*
 * Zstandard. A block is one zstd frame without a checksum: TCP, --verify and the size that must fit
 * stand for that. ZSTD_decompressDCtx() takes @out as its window, so what a hostile frame says of
 * its window's size reserves nothing.
 */
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <zstd.h>

#include "codec/codec.h"
#include "wire/wire.h"

static void *zstd_new_packer(void)
{
	return ZSTD_createCCtx();
}

static void zstd_free_packer(void *state)
{
	ZSTD_freeCCtx(state);
}

static size_t zstd_pack(void *state, unsigned int level, const void *in, size_t len, void *out,
			size_t room)
{
	size_t n = ZSTD_compressCCtx(state, out, room, in, len, (int)level);

	return ZSTD_isError(n) ? 0 : n;
}

static void *zstd_new_unpacker(void)
{
	return ZSTD_createDCtx();
}

static void zstd_free_unpacker(void *state)
{
	ZSTD_freeDCtx(state);
}

static int zstd_unpack(void *state, const void *in, size_t len, void *out, size_t size)
{
	const uint32_t magic = htole32(ZSTD_MAGICNUMBER);

	/* Else it is for the decoders of old formats, if the library was built with them. */
	if (len < sizeof(magic) || memcmp(in, &magic, sizeof(magic)))
		return -EPROTO;
	return ZSTD_decompressDCtx(state, out, size, in, len) == size ? 0 : -EPROTO;
}

const struct codec codec_zstd = {
	.name = "zstd", .library = "libzstd", .version = ZSTD_versionString,
	.number = 2, .feature = WIRE_ZSTD,
	.level_min = 1, .level_max = 19, .level = 1,
	.new_packer = zstd_new_packer, .free_packer = zstd_free_packer, .pack = zstd_pack,
	.new_unpacker = zstd_new_unpacker, .free_unpacker = zstd_free_unpacker,
	.unpack = zstd_unpack,
};
