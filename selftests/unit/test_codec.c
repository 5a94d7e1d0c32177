// SPDX-License-Identifier: GPL-2.0-only
/*
 * Each codec: what it packs it unpacks, to the byte and to the size that was asked for, and a block that was changed or
 * cut is refused or gives some bytes, but never one outside of its buffer: buffers are exact, for ASan.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "codec/codec.h"
#include "wire/wire.h"
#include "page/page.h"

#define PAGES	64u
#define BYTES	(PAGES * PAGE_BYTES)

static uint64_t seed = 88172645463325252ull;

static uint64_t draw(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

enum content { TEXT, RANDOM, SAME, MIXED, CONTENTS };

static uint8_t *make(enum content what, size_t len)
{
	static const char *const words[] = { "page ", "guest ", "round ", "\n", "stream ", "0x7ffc" };
	uint8_t *p = malloc(len);

	assert_non_null(p);
	for (size_t i = 0; i < len;) {
		const char *w = words[draw() % 6];

		if (what == RANDOM || (what == MIXED && i / PAGE_BYTES % 2))
			p[i++] = (uint8_t)draw();
		else if (what == SAME)
			p[i++] = 0xcc;
		else
			for (; *w && i < len; w++)
				p[i++] = (uint8_t)*w;
	}
	return p;
}

/* The block in an allocation of its own. 0: it does not fit. */
static uint8_t *pack(struct codec_states *s, const struct codec_choice *c, const uint8_t *in, size_t len, size_t room,
		     size_t *n)
{
	uint8_t *out = malloc(room ? room : 1);

	assert_non_null(out);
	*n = codec_pack(s, c, in, len, out, room);
	assert_true(*n <= room);
	return out;
}

static int unpack(struct codec_states *s, unsigned int number, const uint8_t *block, size_t n, const uint8_t *want, size_t size)
{
	uint8_t *in = malloc(n ? n : 1), *out = malloc(size ? size : 1);
	int r;

	assert_true(in && out);
	memcpy(in, block, n);
	r = codec_unpack(s, number, in, n, out, size);
	if (!r && want)
		assert_memory_equal(out, want, size);
	free(in);
	free(out);
	return r;
}

static const unsigned int levels[CODECS][3] = { { 1, 1, 1 }, { 1, 3, 19 }, { 1, 6, 9 } };

static void test_round_trip(void **state)
{
	struct codec_states s = { .packer = { NULL } };

	(void)state;
	for (unsigned int i = 0; i < CODECS; i++)
		for (int what = 0; what < CONTENTS; what++)
			for (int l = 0; l < 3; l++)
				for (size_t pages = 1; pages <= PAGES; pages *= 4) {
					const struct codec_choice c = { codecs[i], levels[i][l] };
					size_t len = pages * PAGE_BYTES, n;
					uint8_t *in = make(what, len), *block = pack(&s, &c, in, len, len - 1, &n);

					assert_int_equal(codecs[i]->number, i + 1);
					assert_true(what == RANDOM ? !n : n > 0);
					if (what == SAME)
						assert_true(n < len / 20);
					if (what == TEXT)
						assert_true(n < len / 2);
					if (n)
						assert_int_equal(unpack(&s, i + 1, block, n, in, len), 0);
					free(block);
					free(in);
				}
	codec_states_free(&s);
}

/* What does not fit leaves a state that packs the next block right. */
static void test_no_room(void **state)
{
	struct codec_states s = { .packer = { NULL } };
	uint8_t *text = make(TEXT, BYTES), *noise = make(RANDOM, BYTES);

	(void)state;
	for (unsigned int i = 0; i < CODECS; i++)
		for (int l = 0; l < 3; l++) {
			const struct codec_choice c = { codecs[i], levels[i][l] };
			size_t n, less;
			uint8_t *block;

			free(pack(&s, &c, noise, BYTES, BYTES - PAGE_BYTES, &n));
			assert_int_equal(n, 0);
			block = pack(&s, &c, text, BYTES, BYTES - PAGE_BYTES, &n);
			assert_true(n > 0);
			assert_int_equal(unpack(&s, i + 1, block, n, text, BYTES), 0);
			free(pack(&s, &c, text, BYTES, n / 2, &less));
			assert_int_equal(less, 0);
			free(block);
			block = pack(&s, &c, text, BYTES, BYTES - PAGE_BYTES, &n);
			assert_int_equal(unpack(&s, i + 1, block, n, text, BYTES), 0);
			free(block);
		}
	codec_states_free(&s);
	free(text);
	free(noise);
}

/* The size is that of the extents: a block of more (a bomb), or of less, is refused; so is one that something follows. */
static void test_exact_size(void **state)
{
	struct codec_states s = { .packer = { NULL } };
	uint8_t *in = make(SAME, BYTES);

	(void)state;
	for (unsigned int i = 0; i < CODECS; i++) {
		const struct codec_choice c = { codecs[i], codecs[i]->level };
		uint8_t longer[PAGE_BYTES] = { 0 };
		size_t n;
		uint8_t *block = pack(&s, &c, in, BYTES, BYTES - PAGE_BYTES, &n);

		assert_true(n > 8 && n < sizeof(longer) - 8);
		assert_int_equal(unpack(&s, i + 1, block, n, in, BYTES), 0);
		assert_int_equal(unpack(&s, i + 1, block, n, NULL, BYTES - 1), -EPROTO);
		assert_int_equal(unpack(&s, i + 1, block, n, NULL, PAGE_BYTES), -EPROTO);
		assert_int_equal(unpack(&s, i + 1, block, n, NULL, BYTES + PAGE_BYTES), -EPROTO);
		for (size_t cut = 0; cut < n; cut++)
			assert_int_equal(unpack(&s, i + 1, block, cut, NULL, BYTES), -EPROTO);
		memcpy(longer, block, n);
		assert_int_equal(unpack(&s, i + 1, longer, n + 8, NULL, BYTES), -EPROTO);
		free(block);
	}
	codec_states_free(&s);
	free(in);
}

/* Any block: with one bit flipped, one of another codec, noise. The next right one still unpacks. */
static void test_hostile(void **state)
{
	struct codec_states s = { .packer = { NULL } };
	uint8_t *in = make(MIXED, 4 * PAGE_BYTES), *noise = make(RANDOM, BYTES);

	(void)state;
	for (unsigned int i = 0; i < CODECS; i++) {
		const struct codec_choice c = { codecs[i], codecs[i]->level };
		size_t n;
		uint8_t *block = pack(&s, &c, in, 4 * PAGE_BYTES, 4 * PAGE_BYTES - 1, &n);

		assert_true(n > 0);
		for (int k = 0; k < 4000; k++) {
			size_t at = draw() % n;
			uint8_t bit = (uint8_t)(1u << draw() % 8);

			block[at] ^= bit;
			unpack(&s, i + 1, block, n, NULL, 4 * PAGE_BYTES);
			block[at] ^= bit;
		}
		for (unsigned int other = 1; other <= CODECS; other++)
			if (other != i + 1)
				assert_int_equal(unpack(&s, other, block, n, NULL, 4 * PAGE_BYTES), -EPROTO);
		for (size_t k = 0; k < 2000; k++)
			unpack(&s, i + 1, noise + k, 1 + draw() % 4096, NULL, BYTES);
		assert_int_equal(unpack(&s, i + 1, block, n, in, 4 * PAGE_BYTES), 0);
		assert_int_equal(unpack(&s, 0, block, n, NULL, 4 * PAGE_BYTES), -ENOENT);
		assert_int_equal(unpack(&s, CODECS + 1, block, n, NULL, 4 * PAGE_BYTES), -ENOENT);
		free(block);
	}
	codec_states_free(&s);
	free(in);
	free(noise);
}

static void test_parse(void **state)
{
	static const struct {
		const char *text, *shown;
		int kind;
	} good[] = {
		{ "auto", "raw", CODEC_AUTO }, { "off", "raw", CODEC_OFF }, { "lz4", "lz4", CODEC_FIXED },
		{ "zstd", "zstd:1", CODEC_FIXED }, { "zstd:19", "zstd:19", CODEC_FIXED },
		{ "zlib", "zlib:1", CODEC_FIXED }, { "zlib:9", "zlib:9", CODEC_FIXED },
	};
	static const char *const bad[] = {
		"", "on", "zst", "zstdd", "zstd:", "zstd:0", "zstd:20", "zstd:-1", "zstd:1x", "zstd: 1", "zlib:10", "lz4:1",
		"auto:1", "off:", ":1", "zstd:99999999999999999999",
	};
	char text[CODEC_TEXT];
	struct codec_wish w, back;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct err e = { 0 };

		assert_int_equal(codec_parse(good[i].text, &w, &e), 0);
		assert_int_equal(w.kind, good[i].kind);
		assert_string_equal(codec_text(&w.choice, text), good[i].shown);
		/* Through a word, and as text: the same again. */
		back = codec_word_wish(codec_wish_word(&w));
		assert_int_equal(back.kind, w.kind);
		assert_ptr_equal(back.choice.codec, w.choice.codec);
		assert_int_equal(back.choice.level, w.choice.level);
		assert_string_equal(codec_wish_text(&back, text), w.kind == CODEC_FIXED ? good[i].shown : good[i].text);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct err e = { 0 };

		assert_int_equal(codec_parse(bad[i], &w, &e), -EINVAL);
		assert_int_equal(e.exit, GW_USAGE);
		assert_non_null(strstr(e.text, "--compress"));
	}
}

/* A named codec is an order; auto and off take what there is. */
static void test_check(void **state)
{
	const struct codec_wish wish = { .kind = CODEC_AUTO }, off = { .kind = CODEC_OFF };
	const struct codec_wish fixed = { .kind = CODEC_FIXED, .choice = { &codec_zstd, 3 } };
	struct err e = { 0 };

	(void)state;
	assert_int_equal(codec_check(&wish, 0, &e), 0);
	assert_int_equal(codec_check(&off, 0, &e), 0);
	assert_int_equal(codec_check(&fixed, WIRE_ZSTD, &e), 0);
	assert_int_equal(codec_check(&fixed, WIRE_LZ4 | WIRE_ZLIB, &e), -EPROTONOSUPPORT);
	assert_int_equal(e.exit, GW_VERSION);
	assert_non_null(strstr(e.text, "--compress zstd"));
}

static void test_list(void **state)
{
	char text[CODEC_LIST];

	(void)state;
	assert_string_equal(codec_list(0, text), "");
	assert_string_equal(codec_list(~(uint64_t)(WIRE_LZ4 | WIRE_ZSTD | WIRE_ZLIB), text), "");
	codec_list(WIRE_LZ4 | WIRE_ZSTD | WIRE_ZLIB, text);
	assert_memory_equal(text, "lz4 (liblz4 1.", 14);
	assert_non_null(strstr(text, "), zstd (libzstd 1."));
	assert_non_null(strstr(text, "), zlib (zlib 1."));
	assert_int_equal(text[strlen(text) - 1], ')');
	assert_memory_equal(codec_list(WIRE_ZSTD | WIRE_LOADS, text), "zstd (libzstd 1.", 16);
	assert_null(strstr(text, ","));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_no_room), cmocka_unit_test(test_exact_size),
		cmocka_unit_test(test_hostile), cmocka_unit_test(test_parse), cmocka_unit_test(test_check),
		cmocka_unit_test(test_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
