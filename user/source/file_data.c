// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "page/page.h"
#include "source/source.h"

static int failed(struct err *e)
{
	return err_set(e, GW_INTERNAL, errno, "cannot look for data in a RAM file: %s", strerror(errno));
}

/* Only where it begins: looking for its end walks all of it. */
static int first_data(int fd, uint64_t first, uint64_t end, uint64_t *data, struct err *e)
{
	off_t at;

	if (first >= end)
		return 0;
	at = lseek(fd, (off_t)(first * PAGE_BYTES), SEEK_DATA);
	if (at < 0)
		return errno == ENXIO ? 0 : failed(e);
	*data = (uint64_t)at / PAGE_BYTES;
	if (*data < first)
		*data = first;
	return *data < end;
}

int file_next_data(int fd, uint64_t first, uint64_t end, uint64_t *run_first, uint64_t *run_count, struct err *e)
{
	int r = first_data(fd, first, end, run_first, e);
	off_t hole;

	if (r <= 0)
		return r;
	hole = lseek(fd, (off_t)(*run_first * PAGE_BYTES), SEEK_HOLE);
	if (hole < 0)
		return errno == ENXIO ? 0 : failed(e);	/* ENXIO: punched in between */
	hole = (hole + PAGE_BYTES - 1) / PAGE_BYTES;
	*run_count = ((uint64_t)hole < end ? (uint64_t)hole : end) - *run_first;
	return 1;
}
