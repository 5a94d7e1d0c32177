/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a page, a disk sector or a network frame must hold. Writer and checker
 * may be different programs (guest, disk maker, frame sender), so the content
 * is a function of its coordinates alone. It does not compress.
 */
#ifndef CONTENT_H
#define CONTENT_H

#include <stdint.h>

enum content_kind {
	CONTENT_PAGE	= 0x50574447,	/* number: page, seq: write */
	CONTENT_SECTOR	= 0x53574447,	/* number: 512-byte sector */
	CONTENT_FRAME	= 0x4e574447,	/* number: sender's sequence number */
};

enum {
	CONTENT_HEADER_WORDS	= 3,
	CONTENT_SECTOR_BYTES	= 512,
	CONTENT_ETHERTYPE	= 0x88b5,	/* IEEE: local experiments */
	CONTENT_UDP_PORT	= 7777,
};

static inline uint32_t content_step(uint32_t x)
{
	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return x;
}

static inline uint32_t content_word(enum content_kind kind, uint32_t number,
				    uint32_t seq, unsigned int i, uint32_t *x)
{
	switch (i) {
	case 0:
		*x = (number * 0x9e3779b1u) ^ (seq * 0x85ebca6bu) ^ kind;
		*x |= 1;		/* xorshift never leaves zero */
		return kind;
	case 1:
		return number;
	case 2:
		return seq;
	}
	return *x = content_step(*x);
}

static inline void content_fill(void *to, unsigned int words, enum content_kind kind,
				uint32_t number, uint32_t seq)
{
	uint32_t *w = to, x = 0;
	unsigned int i;

	for (i = 0; i < words; i++)
		w[i] = content_word(kind, number, seq, i, &x);
}

/* The first wrong word, or -1. Unaligned memory is welcome. */
static inline int content_check(const void *at, unsigned int words,
				enum content_kind kind, uint32_t number, uint32_t seq)
{
	const char *p = at;
	uint32_t w, x = 0;
	unsigned int i;

	for (i = 0; i < words; i++, p += sizeof(w)) {
		__builtin_memcpy(&w, p, sizeof(w));
		if (w != content_word(kind, number, seq, i, &x))
			return i;
	}
	return -1;
}

/* How many words are wrong: one, or a page that is another one? */
static inline unsigned int content_wrong(const void *at, unsigned int words, enum content_kind kind, uint32_t number,
					 uint32_t seq)
{
	const char *p = at;
	uint32_t w, x = 0;
	unsigned int i, wrong = 0;

	for (i = 0; i < words; i++, p += sizeof(w)) {
		__builtin_memcpy(&w, p, sizeof(w));
		wrong += w != content_word(kind, number, seq, i, &x);
	}
	return wrong;
}

#endif
