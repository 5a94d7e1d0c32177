// SPDX-License-Identifier: GPL-2.0-only
/* zlib (RFC 1950), for comparison and for hosts that have an accelerator behind the library. */
#include <errno.h>
#include <stdlib.h>
#include <zlib.h>

#include "codec/codec.h"
#include "wire/wire.h"

struct zlib_packer {
	z_stream z;
	unsigned int level;
};

static void *zlib_new_packer(void)
{
	struct zlib_packer *p = calloc(1, sizeof(*p));

	if (p && deflateInit(&p->z, (int)codec_zlib.level) == Z_OK) {
		p->level = codec_zlib.level;
		return p;
	}
	free(p);
	return NULL;
}

static void zlib_free_packer(void *state)
{
	struct zlib_packer *p = state;

	deflateEnd(&p->z);
	free(p);
}

static size_t zlib_pack(void *state, unsigned int level, const void *in, size_t len, void *out,
			size_t room)
{
	struct zlib_packer *p = state;

	if (deflateReset(&p->z) != Z_OK)
		return 0;
	p->z.next_in = (Bytef *)in;
	p->z.avail_in = (uInt)len;
	p->z.next_out = out;
	p->z.avail_out = (uInt)room;
	if (p->level != level && deflateParams(&p->z, (int)level, Z_DEFAULT_STRATEGY) != Z_OK)
		return 0;
	p->level = level;
	return deflate(&p->z, Z_FINISH) == Z_STREAM_END ? room - p->z.avail_out : 0;
}

static void *zlib_new_unpacker(void)
{
	z_stream *z = calloc(1, sizeof(*z));

	if (z && inflateInit(z) == Z_OK)
		return z;
	free(z);
	return NULL;
}

static void zlib_free_unpacker(void *state)
{
	inflateEnd(state);
	free(state);
}

/* Its window has at most 32 KiB, whatever the block says. */
static int zlib_unpack(void *state, const void *in, size_t len, void *out, size_t size)
{
	z_stream *z = state;

	if (inflateReset(z) != Z_OK)
		return -EPROTO;
	z->next_in = (Bytef *)in;
	z->avail_in = (uInt)len;
	z->next_out = out;
	z->avail_out = (uInt)size;
	return inflate(z, Z_FINISH) == Z_STREAM_END && !z->avail_in && !z->avail_out ? 0 : -EPROTO;
}

const struct codec codec_zlib = {
	.name = "zlib", .library = "zlib", .version = zlibVersion,
	.number = 3, .feature = WIRE_ZLIB,
	.level_min = 1, .level_max = 9, .level = 1,
	.new_packer = zlib_new_packer, .free_packer = zlib_free_packer, .pack = zlib_pack,
	.new_unpacker = zlib_new_unpacker, .free_unpacker = zlib_free_unpacker,
	.unpack = zlib_unpack,
};
