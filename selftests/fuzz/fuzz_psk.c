// SPDX-License-Identifier: GPL-2.0-only
/* A file of pre-shared keys: an answer to any bytes, users that are whole, and no byte of the text in what is said. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tls/psk.h"

#define CHECK(x)	do { if (!(x)) { fprintf(stderr, "%s\n", #x); abort(); } } while (0)
#define USERS		8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct psk_user users[USERS];
	const char *why = NULL;
	unsigned int line = 0;
	int n = psk_parse((const char *)data, size, users, USERS, &line, &why);

	CHECK(n == -EINVAL || (n > 0 && n <= (int)USERS));
	CHECK(n > 0 ? !line : !!why);
	for (int i = 0; i < n; i++) {
		CHECK(users[i].len >= PSK_KEY_MIN && users[i].len <= PSK_KEY_MAX);
		CHECK(memchr(users[i].name, '\0', sizeof(users[i].name)) && users[i].name[0]);
		for (int k = 0; k < i; k++)
			CHECK(strcmp(users[i].name, users[k].name));
	}
	return 0;
}
