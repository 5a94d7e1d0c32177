// SPDX-License-Identifier: GPL-2.0-only
/* RAM in a file of tmpfs or hugetlbfs that QEMU maps shared. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "page/page.h"
#include "ram/ram_block.h"
#include "ram/thp.h"

static int file_data_failed(struct err *e)
{
	return err_set(e, GW_INTERNAL, errno, "cannot find data in a RAM file: %s",
		       strerror(errno));
}

/* Pages of a run that need not be exact: as many as a frame has. */
#define RUN_PAGES	64u

/* Finds only where data begins: to find its end the kernel walks all of it, some 40 ns a page. */
static int file_first_data(int fd, uint64_t first, uint64_t end, uint64_t *data, struct err *e)
{
	off_t at;

	if (first >= end)
		return 0;
	at = lseek(fd, (off_t)(first * PAGE_BYTES), SEEK_DATA);
	if (at < 0)
		return errno == ENXIO ? 0 : file_data_failed(e);
	*data = (uint64_t)at / PAGE_BYTES;
	if (*data < first)
		*data = first;
	return *data < end;
}

/* The run that begins at *run_first. */
static int file_data_end(int fd, uint64_t end, bool exact, const uint64_t *run_first,
			 uint64_t *run_count, struct err *e)
{
	uint64_t last;
	off_t hole;
	int r;

	if (!exact) {
		if (end - *run_first > RUN_PAGES)
			end = *run_first + RUN_PAGES;
		*run_count = end - *run_first;
		r = *run_count > 1 ? file_first_data(fd, end - 1, end, &last, e) : 1;
		if (r)
			return r;
		/* The run ends in a hole, so its end is near, and cheap for the kernel to find. */
	}
	hole = lseek(fd, (off_t)(*run_first * PAGE_BYTES), SEEK_HOLE);
	if (hole < 0)
		return errno == ENXIO ? 0 : file_data_failed(e);	/* punched in between */
	hole = (hole + PAGE_BYTES - 1) / PAGE_BYTES;
	*run_count = ((uint64_t)hole < end ? (uint64_t)hole : end) - *run_first;
	return 1;
}

int file_next_data(int fd, uint64_t first, uint64_t end, bool exact, uint64_t *run_first,
		   uint64_t *run_count, struct err *e)
{
	int r = file_first_data(fd, first, end, run_first, e);

	return r > 0 ? file_data_end(fd, end, exact, run_first, run_count, e) : r;
}

/*
 * Up to Linux 6.3 khugepaged puts a huge page into the file while it still copies the pages of the
 * guest's into it, also while the guest stands still, and SEEK_DATA takes a page that is not up to
 * date for a hole. What it takes for one would go as zeros. But pread() waits until the page is up
 * to date, or the old ones are back, and makes nothing in a real hole.
 */
static int file_wait_collapsed(int fd, uint64_t first, uint64_t end, struct err *e)
{
	uint8_t byte;

	for (; first < end; first = (first / THP_PAGES + 1) * THP_PAGES)
		if (pread(fd, &byte, 1, (off_t)(first * PAGE_BYTES)) < 0)
			return file_data_failed(e);
	return 0;
}

/*
 * What was waited for is no hole when it is looked at once more. (khugepaged that had to give up
 * tries again much later.) Where data was there may be a collapse by then: it is waited for, too.
 */
static int ram_file_next_data(const struct ram_block *b, uint64_t first, uint64_t end, bool exact,
			      uint64_t *run_first, uint64_t *run_count, struct err *e)
{
	uint64_t waited = first;
	int r;

	if (!b->waits)
		return file_next_data(b->fd, first, end, exact, run_first, run_count, e);
	while ((r = file_first_data(b->fd, first, end, run_first, e)) >= 0) {
		const uint64_t hole_end = r ? *run_first : end;

		if (hole_end <= waited)
			break;
		r = file_wait_collapsed(b->fd, waited, hole_end, e);
		if (r)
			return r;
		waited = hole_end;
	}
	return r > 0 ? file_data_end(b->fd, end, exact, run_first, run_count, e) : r;
}

static int ram_file_read(const struct ram_block *b, uint64_t first, uint64_t count, void *buf,
			 struct err *e)
{
	ssize_t n = pread(b->fd, buf, count * PAGE_BYTES, (off_t)(first * PAGE_BYTES));

	if (n == (ssize_t)(count * PAGE_BYTES))
		return 0;
	return err_set(e, GW_INTERNAL, n < 0 ? errno : EIO, "cannot read RAM \"%s\" at page %llu: %s", b->name,
		       (unsigned long long)first, n < 0 ? strerror(errno) : "its file is shorter than it was");
}

static int ram_file_patch(const struct ram_block *b, uint64_t at, size_t len, const void *buf)
{
	const uint8_t *p = buf;

	while (len) {
		ssize_t n = pwrite(b->fd, p, len, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		p += n;
		at += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int ram_file_write(const struct ram_block *b, uint64_t first, uint64_t count,
			  const void *buf)
{
	return ram_file_patch(b, first * PAGE_BYTES, count * PAGE_BYTES, buf);
}

static int ram_file_clear(const struct ram_block *b, uint64_t first, uint64_t count)
{
	return fallocate(b->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
			 (off_t)(first * PAGE_BYTES), (off_t)(count * PAGE_BYTES)) < 0 ?
		       -errno :
		       0;
}

static uint64_t ram_file_allocated(const struct ram_block *b)
{
	struct stat st;
	uint64_t pages = fstat(b->fd, &st) ? 0 : (uint64_t)st.st_blocks * 512 / PAGE_BYTES;

	/* The file may be longer than the backend. */
	return pages < b->pages ? pages : b->pages;
}

const struct ram_ops ram_file_ops = {
	.read = ram_file_read,
	.write = ram_file_write,
	.patch = ram_file_patch,
	.next_data = ram_file_next_data,
	.clear = ram_file_clear,
	.allocated = ram_file_allocated,
};
