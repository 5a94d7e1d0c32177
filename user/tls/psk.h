/* SPDX-License-Identifier: GPL-2.0-only */
/* A file of pre-shared keys, as psktool makes it: lines of USER:HEXKEY. Pure. */
#ifndef GODWIT_PSK_H
#define GODWIT_PSK_H

#include <stddef.h>
#include <stdint.h>

#define PSK_USER_MAX	63u
#define PSK_KEY_MIN	16u	/* 128 bits, as the cipher has */
#define PSK_KEY_MAX	64u
#define PSK_USERS_MAX	1024u

struct psk_user {
	char name[PSK_USER_MAX + 1];
	uint8_t key[PSK_KEY_MAX];
	unsigned int len;
};

/**
 * psk_parse() - read the text of such a file
 * @out: room for max users
 * @line: of the error, or 0
 * @why: what is wrong with it; it never has a part of the text, which may be a key
 * Return: how many users there are, at least one; -EINVAL.
 */
int psk_parse(const char *text, size_t len, struct psk_user *out, unsigned int max,
	      unsigned int *line, const char **why);

#endif
