// SPDX-License-Identifier: GPL-2.0-only
#include "vmm/text.h"

char *one_line(char *dst, size_t size, const char *src)
{
	size_t i;

	for (i = 0; i + 1 < size && src[i]; i++)
		dst[i] = (unsigned char)src[i] < ' ' || src[i] == 0x7f ? ' ' : src[i];
	dst[i] = '\0';
	return dst;
}
