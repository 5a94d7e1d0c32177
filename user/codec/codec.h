/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Page encoders: the bytes of some pages in, one block out, and back. Pure, without I/O; the
 * libraries do the work (liblz4, libzstd, zlib).
 *
 * A block is packed for itself: a stream that breaks, or a frame that another stream sends, needs
 * no other block. Up to 64 pages make one, as a frame has so many: that takes 10 to 22 % fewer
 * bytes than a block a page, in half of the time or less.
 *
 * An unpacker trusts no byte. It writes to [out, out + size) and nowhere else, and what does not
 * unpack to exactly that size is refused: the size comes from the frame's extents, not from the
 * block. All blocks are unpacked in one call, for which @out is the window: no library allocates
 * what a block asks for.
 */
#ifndef GODWIT_CODEC_H
#define GODWIT_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define CODECS		3u	/* that pack; raw pages are none of them */
#define CODEC_TEXT	16	/* bytes of codec_text() */

/**
 * struct codec - a variant
 * @library: and @version of it here
 * @number: on the wire
 * @feature: both peers must have this bit in HELLO
 * @level_min, @level_max: of the library; both 0: it has no levels here
 * @level: if the operator names none
 * @new_packer, @new_unpacker: the state of one thread; NULL: no memory
 * @pack: Return: bytes of the block, at most @room; 0: it would not fit
 * @unpack: Return: 0; -EPROTO: the block is malformed, or has another size
 */
struct codec {
	const char *name;
	const char *library;
	const char *(*version)(void);
	unsigned int number;
	uint64_t feature;
	unsigned int level_min, level_max, level;
	void *(*new_packer)(void);
	void (*free_packer)(void *state);
	size_t (*pack)(void *state, unsigned int level, const void *in, size_t len, void *out,
		       size_t room);
	void *(*new_unpacker)(void);
	void (*free_unpacker)(void *state);
	int (*unpack)(void *state, const void *in, size_t len, void *out, size_t size);
};

extern const struct codec codec_lz4, codec_zstd, codec_zlib;
/* By their numbers on the wire, from 1 on. */
extern const struct codec *const codecs[CODECS];

/**
 * struct codec_choice - how to pack
 * @codec: NULL: not at all
 */
struct codec_choice {
	const struct codec *codec;
	unsigned int level;
};

/**
 * struct codec_wish - what the operator wants (--compress)
 * @kind: for CODEC_FIXED @choice says which
 */
struct codec_wish {
	enum { CODEC_AUTO, CODEC_OFF, CODEC_FIXED } kind;
	struct codec_choice choice;
};

/* "auto", "off", "lz4", "zstd[:LEVEL]", "zlib[:LEVEL]". Errors: GW_USAGE */
int codec_parse(const char *text, struct codec_wish *out, struct err *e);
/* The same as text, with the level. */
const char *codec_wish_text(const struct codec_wish *wish, char text[CODEC_TEXT]);
/* "raw", "lz4", "zstd:1" */
const char *codec_text(const struct codec_choice *c, char text[CODEC_TEXT]);
/*
 * A named codec is an order, and auto uses what there is. features: those that both peers offer.
 * Errors: GW_VERSION
 */
int codec_check(const struct codec_wish *wish, uint64_t features, struct err *e);
/* The codecs that both peers have, as "lz4 (liblz4 1.9.4), zlib (...)"; empty: none. */
#define CODEC_LIST	128
const char *codec_list(uint64_t features, char text[CODEC_LIST]);
/* A wish in one word, for another thread, and back. */
uint32_t codec_wish_word(const struct codec_wish *wish);
struct codec_wish codec_word_wish(uint32_t word);

/**
 * struct codec_states - the states of one thread, made when they are first used. Begins with zeros
 * and ends with codec_states_free()
 */
struct codec_states {
	void *packer[CODECS];
	void *unpacker[CODECS];
};

void codec_states_free(struct codec_states *s);
/* The longest block that is worth it: a frame of so many bytes that packs worse goes as it is. */
size_t codec_worth(size_t len);
/* As struct codec's; with c->codec NULL, and where there is no memory, 0. */
size_t codec_pack(struct codec_states *s, const struct codec_choice *c, const void *in, size_t len,
		  void *out, size_t room);
/* As struct codec's. -ENOENT: there is no codec of this number; -ENOMEM. */
int codec_unpack(struct codec_states *s, unsigned int number, const void *in, size_t len, void *out,
		 size_t size);

#endif
