// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every unpacker on arbitrary blocks, of which the peer also chooses the size. Asked is that none writes outside of a buffer
 * of exactly that size (ASan sees it), that the next right block still unpacks with the same state, and that what is packed
 * unpacks.
 */
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "page/page.h"

#define CHECK(cond)	do { if (!(cond)) abort(); } while (0)
#define PAGES		64u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input, over and over: something that packs. */
static void fuzz_round_trip(struct codec_states *s, unsigned int number, const uint8_t *data, size_t size)
{
	const struct codec_choice c = { codecs[number - 1], codecs[number - 1]->level };
	uint8_t in[4 * PAGE_BYTES], block[sizeof(in)], *out = malloc(sizeof(in));
	size_t n;

	CHECK(out);
	for (size_t i = 0; i < sizeof(in); i++)
		in[i] = data[i % size];
	n = codec_pack(s, &c, in, sizeof(in), block, sizeof(in) - 1);
	CHECK(n < sizeof(in));
	if (n) {
		CHECK(!codec_unpack(s, number, block, n, out, sizeof(in)));
		CHECK(!memcmp(in, out, sizeof(in)));
	}
	free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct codec_states s;
	unsigned int number;
	size_t len;
	uint8_t *in, *out;

	if (size < 3)
		return 0;
	number = 1 + data[0] % CODECS;
	len = (1 + data[1] % PAGES) * PAGE_BYTES;
	in = malloc(size - 2);
	out = malloc(len);
	CHECK(in && out);
	memcpy(in, data + 2, size - 2);
	codec_unpack(&s, number, in, size - 2, out, len);
	fuzz_round_trip(&s, number, data + 2, size - 2);
	free(in);
	free(out);
	return 0;
}
