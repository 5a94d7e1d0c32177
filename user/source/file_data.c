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

/* Where nobody wants to know exactly: a frame's worth. */
#define LOOK_PAGES	64u

/* Only where it begins: looking for its end walks all of it, some 40 ns a page. */
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

int file_next_data(int fd, uint64_t first, uint64_t end, bool exact, uint64_t *run_first, uint64_t *run_count, struct err *e)
{
	int r = first_data(fd, first, end, run_first, e);
	uint64_t last;
	off_t hole;

	if (r <= 0)
		return r;
	if (!exact) {
		if (end - *run_first > LOOK_PAGES)
			end = *run_first + LOOK_PAGES;
		*run_count = end - *run_first;
		r = *run_count > 1 ? first_data(fd, end - 1, end, &last, e) : 1;
		if (r)
			return r;	/* it ends with a hole, which is near: the kernel may look for it */
	}
	hole = lseek(fd, (off_t)(*run_first * PAGE_BYTES), SEEK_HOLE);
	if (hole < 0)
		return errno == ENXIO ? 0 : failed(e);	/* ENXIO: punched in between */
	hole = (hole + PAGE_BYTES - 1) / PAGE_BYTES;
	*run_count = ((uint64_t)hole < end ? (uint64_t)hole : end) - *run_first;
	return 1;
}
