// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "page/page.h"
#include "source/source.h"

int file_next_data(int fd, uint64_t first, uint64_t end, uint64_t *run_first, uint64_t *run_count, struct err *e)
{
	off_t data, hole;

	if (first >= end)
		return 0;
	data = lseek(fd, (off_t)(first * PAGE_BYTES), SEEK_DATA);
	if (data < 0 && errno == ENXIO)
		return 0;
	if (data < 0)
		goto fail;
	hole = lseek(fd, data, SEEK_HOLE);
	if (hole < 0 && errno == ENXIO)
		return 0;	/* punched in between */
	if (hole < 0)
		goto fail;
	*run_first = (uint64_t)data / PAGE_BYTES;
	if (*run_first < first)
		*run_first = first;
	if (*run_first >= end)
		return 0;
	hole = (hole + PAGE_BYTES - 1) / PAGE_BYTES;
	*run_count = ((uint64_t)hole < end ? (uint64_t)hole : end) - *run_first;
	return 1;
fail:
	return err_set(e, GW_INTERNAL, errno, "cannot look for data in a RAM file: %s", strerror(errno));
}
