// SPDX-License-Identifier: GPL-2.0-only
#include <stdbool.h>

#include "base/text.h"

/* Bytes of the UTF-8 character at src; 0: there is none, or only a part of one. */
static size_t text_utf8_len(const unsigned char *src)
{
	static const struct {
		unsigned char first, last;	/* range of the first byte */
		unsigned char low, high;	/* range of the second byte */
		size_t len;
	} forms[] = {
		{ 0xc2, 0xdf, 0x80, 0xbf, 2 },
		{ 0xe0, 0xe0, 0xa0, 0xbf, 3 },
		{ 0xe1, 0xec, 0x80, 0xbf, 3 },
		{ 0xed, 0xed, 0x80, 0x9f, 3 },
		{ 0xee, 0xef, 0x80, 0xbf, 3 },
		{ 0xf0, 0xf0, 0x90, 0xbf, 4 },
		{ 0xf1, 0xf3, 0x80, 0xbf, 4 },
		{ 0xf4, 0xf4, 0x80, 0x8f, 4 },
	};

	if (*src < 0x80)
		return 1;
	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		size_t n = 2;

		if (*src < forms[i].first || *src > forms[i].last ||
		    src[1] < forms[i].low || src[1] > forms[i].high)
			continue;
		while (n < forms[i].len && (src[n] & 0xc0) == 0x80)
			n++;
		return n == forms[i].len ? n : 0;
	}
	return 0;
}

/* U+0080 to U+009F: of 8 bits; a terminal may obey them as it does ESC and another character. */
static bool text_is_control(const char *src, size_t len)
{
	if (len == 1)
		return (unsigned char)*src < ' ' || *src == 0x7f;
	return len == 2 && (unsigned char)src[0] == 0xc2 && (unsigned char)src[1] < 0xa0;
}

char *one_line(char *dst, size_t size, const char *src)
{
	size_t to = 0;

	while (*src && to + 1 < size) {
		size_t len = text_utf8_len((const unsigned char *)src);

		if (to + (len ? len : 1) >= size)
			break;
		if (!len) {
			dst[to++] = '?';
			src++;
		} else if (text_is_control(src, len)) {
			dst[to++] = ' ';
			src += len;
		} else {
			while (len--)
				dst[to++] = *src++;
		}
	}
	dst[to] = '\0';
	return dst;
}
