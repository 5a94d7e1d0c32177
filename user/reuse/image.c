// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "page/page.h"
#include "reuse/image.h"

#define IMAGE_PAGES	64u	/* at a time */

/* @at: where the block begins, bytes */
struct image {
	int fd;
	const char *path;
	uint64_t at, bytes;
	bool (*stop)(void);
	uint8_t *buf;
};

int image_check(const char *path, struct err *e)
{
	char copy[PATH_MAX];
	struct stat st;

	if (!*path || path[strlen(path) - 1] == '/')
		return err_set(e, GW_USAGE, EISDIR, "--leave-image: give the name of a file");
	if (strlen(path) + sizeof(".XXXXXX") > sizeof(copy))
		return err_set(e, GW_USAGE, ENAMETOOLONG, "--leave-image: the name is too long");
	strcpy(copy, path);
	if (access(dirname(copy), W_OK | X_OK))
		return err_set(e, GW_USAGE, errno, "--leave-image: no file can be made in the directory of %.400s: %s",
			       path, strerror(errno));
	if (!stat(path, &st) && !S_ISREG(st.st_mode))
		return err_set(e, GW_USAGE, EEXIST, "--leave-image: %.400s is there, and is no regular file",
			       path);
	return 0;
}

static int image_failed(const struct image *im, struct err *e)
{
	return err_set(e, GW_INTERNAL, errno, "cannot write %.400s: %s", im->path, strerror(errno));
}

static int image_put(struct image *im, uint64_t at, const uint8_t *p, size_t len, struct err *e)
{
	while (len) {
		ssize_t n = pwrite(im->fd, p, len, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			errno = n ? errno : EIO;
			return image_failed(im, e);
		}
		p += n;
		at += (uint64_t)n;
		len -= (size_t)n;
		im->bytes += (uint64_t)n;
	}
	return 0;
}

/* Pages in the buffer; zeros stay a hole. */
static int image_pages(struct image *im, uint64_t first, unsigned int n, struct err *e)
{
	const struct zero_filter *filter = zero_filter_best();
	unsigned int from = 0, end;
	int r = 0;

	while (from < n && !r) {
		for (end = from; end < n && !filter->is_zero(im->buf + end * PAGE_BYTES); end++)
			;
		if (end > from)
			r = image_put(im, im->at + (first + from) * PAGE_BYTES,
				      im->buf + from * PAGE_BYTES, (end - from) * PAGE_BYTES, e);
		from = end + 1;
	}
	return r;
}

static int image_run(struct image *im, const struct ram_block *b, uint64_t first, uint64_t count,
		     struct err *e)
{
	int r = 0;

	while (count && !r) {
		unsigned int n = count < IMAGE_PAGES ? (unsigned int)count : IMAGE_PAGES;

		if (im->stop())
			return err_set(e, GW_CANCELLED, EINTR, "stopped while %.400s was written",
				       im->path);
		r = ram_ops(b)->read(b, first, n, im->buf, e);
		if (!r)
			r = image_pages(im, first, n, e);
		first += n;
		count -= n;
	}
	return r;
}

static int image_block(struct image *im, const struct ram_block *b, struct err *e)
{
	uint64_t from = 0, first, count;
	int r;

	while ((r = ram_ops(b)->next_data(b, from, b->pages, false, &first, &count, e)) > 0) {
		r = image_run(im, b, first, count, e);
		if (r)
			return r;
		from = first + count;
	}
	im->at += b->pages * PAGE_BYTES;
	return r;
}

/*
 * A file of mode 0600 without a name, which goes with this process however it ends; *temp is empty
 * then. Where the file system has no such files, one with a new name: no link of another's is
 * followed.
 */
static int image_open(const char *path, char temp[PATH_MAX])
{
	char copy[PATH_MAX];
	int fd;

	snprintf(copy, sizeof(copy), "%s", path);
	*temp = '\0';
	fd = open(dirname(copy), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0)
		return fd;
	snprintf(temp, PATH_MAX, "%s.XXXXXX", path);
	return mkostemp(temp, O_CLOEXEC);
}

/* From here on the file is there, whole, in place of any before. */
static int image_name(const struct image *im, char temp[PATH_MAX], struct err *e)
{
	char fd[32];

	if (!*temp) {
		snprintf(fd, sizeof(fd), "/proc/self/fd/%d", im->fd);
		snprintf(temp, PATH_MAX, "%s.%d", im->path, (int)getpid());
		unlink(temp);
		if (linkat(AT_FDCWD, fd, AT_FDCWD, temp, AT_SYMLINK_FOLLOW)) {
			*temp = '\0';
			return image_failed(im, e);
		}
	}
	return rename(temp, im->path) ? image_failed(im, e) : 0;
}

int image_write(const char *path, const struct vm *vm, bool (*stop)(void), uint64_t *bytes,
		struct err *e)
{
	struct image im = { .path = path, .stop = stop };
	char temp[PATH_MAX];
	int r = 0;

	im.fd = image_open(path, temp);
	if (im.fd < 0)
		return image_failed(&im, e);
	im.buf = aligned_alloc(PAGE_BYTES, (size_t)IMAGE_PAGES * PAGE_BYTES);
	if (!im.buf)
		r = err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	for (unsigned int i = 0; i < vm->nblocks && !r; i++)
		r = image_block(&im, &vm->blocks[i], e);
	if (!r && ftruncate(im.fd, (off_t)im.at))
		r = image_failed(&im, e);
	free(im.buf);
	/* What a network file system could not write it says here at the latest. */
	if (!r && fsync(im.fd))
		r = image_failed(&im, e);
	if (!r)
		r = image_name(&im, temp, e);
	close(im.fd);
	if (r && *temp)
		unlink(temp);
	*bytes = im.bytes;
	return r;
}
