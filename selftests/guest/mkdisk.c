// SPDX-License-Identifier: GPL-2.0-only
/* mkdisk FILE MIB: a disk image as the guests expect it (content.h). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "content.h"

int main(int argc, char **argv)
{
	static uint32_t sector[CONTENT_SECTOR_BYTES / sizeof(uint32_t)];
	uint32_t n, i;
	FILE *out;

	if (argc != 3 || !(n = strtoul(argv[2], NULL, 10) * 2048)) {
		fprintf(stderr, "usage: mkdisk FILE MIB\n");
		return 2;
	}
	out = fopen(argv[1], "r+");	/* a block device, or an image to renew */
	if (!out)
		out = fopen(argv[1], "w");
	if (!out)
		goto fail;
	for (i = 0; i < n; i++) {
		content_fill(sector, CONTENT_SECTOR_BYTES / sizeof(uint32_t), CONTENT_SECTOR, i, 0);
		if (fwrite(sector, sizeof(sector), 1, out) != 1)
			goto fail;
	}
	if (!fclose(out))
		return 0;
fail:
	fprintf(stderr, "mkdisk: %s: %s\n", argv[1], strerror(errno));
	return 1;
}
