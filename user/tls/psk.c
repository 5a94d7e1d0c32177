// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "tls/psk.h"

static int psk_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static const char *psk_parse_key(const char *hex, size_t len, struct psk_user *u)
{
	if (len % 2 || len < 2 * PSK_KEY_MIN || len > 2 * PSK_KEY_MAX)
		return "a key has 32 to 128 hexadecimal digits";
	for (size_t i = 0; i < len; i += 2) {
		int high = psk_digit(hex[i]), low = psk_digit(hex[i + 1]);

		if (high < 0 || low < 0)
			return "a key has hexadecimal digits only";
		u->key[i / 2] = (uint8_t)(high << 4 | low);
	}
	u->len = (unsigned int)(len / 2);
	return NULL;
}

/* One line, without its end. NULL, or what is wrong. */
static const char *psk_parse_line(const char *text, size_t len, struct psk_user *u)
{
	const char *colon = memchr(text, ':', len);
	size_t name = colon ? (size_t)(colon - text) : 0;

	memset(u, 0, sizeof(*u));
	if (!colon)
		return "a line is USER:HEXKEY";
	if (!name || name > PSK_USER_MAX)
		return "a user's name has 1 to 63 characters";
	for (size_t i = 0; i < name; i++)
		if (text[i] <= ' ' || text[i] > '~' || (!i && text[i] == '#'))
			return "a user's name has printable characters of ASCII, and does not begin with \"#\"";
	memcpy(u->name, text, name);
	return psk_parse_key(colon + 1, len - name - 1, u);
}

static bool psk_has(const struct psk_user *all, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(all[i].name, name))
			return true;
	return false;
}

int psk_parse(const char *text, size_t len, struct psk_user *out, unsigned int max,
	      unsigned int *line, const char **why)
{
	const char *end = text + len;
	int n = 0;

	*line = 0;
	*why = "it is empty: make a key (psktool -u godwit -p FILE)";
	while (text < end) {
		const char *stop = memchr(text, '\n', (size_t)(end - text));
		size_t bytes = (size_t)((stop ? stop : end) - text);

		++*line;
		if (bytes && text[bytes - 1] == '\r')
			bytes--;
		if (bytes) {
			*why = (unsigned int)n == max ? "there are too many users" :
							psk_parse_line(text, bytes, &out[n]);
			if (!*why && psk_has(out, n, out[n].name))
				*why = "this user has a key already";
			if (*why)
				return -EINVAL;
			n++;
		}
		text = stop ? stop + 1 : end;
	}
	if (n)
		*line = 0;
	return n ? n : -EINVAL;
}
