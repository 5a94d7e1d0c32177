// SPDX-License-Identifier: GPL-2.0-only
/*
 * RAM that is private to the VMM: reached by address, in its process.
 *
 * process_vm_readv() and process_vm_writev() take 1.4 (4 KiB pages) to 3.8 (huge ones) times less
 * CPU time than /proc/PID/mem. But to pin a page that KSM has merged separates it, so where KSM is
 * at work reads go through /proc/PID/mem.
 *
 * A pid is given to another process only after the VMM has exited and all other numbers have been
 * used: the pidfd is looked at before each write, so all of that would have to happen within
 * microseconds.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "page/page.h"
#include "proc/memory.h"
#include "proc/proc_io.h"
#include "ram/missing.h"
#include "ram/pagemap.h"
#include "ram/ram_block.h"

#define CLEAR_PAGES	16u	/* looked at at a time */

static int ram_process_gone(const struct ram_block *b, struct err *e)
{
	return err_set(e, GW_VM_GONE, ESRCH, "process %d, which has RAM \"%s\", has exited", (int)b->pid, b->name);
}

/*
 * r: of a read, or of a look: bytes, or -errno. A process that ends loses its memory before its
 * pidfd tells: then it cannot be found, and of its /proc/PID/mem nothing is read.
 */
static bool ram_process_is_gone(const struct ram_block *b, ssize_t r)
{
	return !r || r == -ESRCH || proc_ended(b->pidfd);
}

/* The file's first character; '0': there is none. */
static char ram_read_char(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char c = '0';

	if (fd < 0)
		return c;
	if (read(fd, &c, 1) != 1)
		c = '0';
	close(fd);
	return c;
}

/* KSM runs now, or has left merged pages in this process. */
static bool ksm_at_work(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ksm_merging_pages", (int)pid);
	return ram_read_char("/sys/kernel/mm/ksm/run") == '1' || ram_read_char(path) != '0';
}

static int ram_open_proc(pid_t pid, const char *name, struct err *e)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 ? fd : proc_failed(path, errno, e);
}

int ram_process_open(struct ram_block *b, struct err *e)
{
	b->mem = -1;
	b->pagemap = ram_open_proc(b->pid, "pagemap", e);
	if (b->pagemap < 0)
		return b->pagemap;
	if (!ksm_at_work(b->pid))
		return 0;
	b->mem = ram_open_proc(b->pid, "mem", e);
	return b->mem < 0 ? b->mem : 0;
}

void ram_block_close(struct ram_block *b)
{
	if (b->fd >= 0)
		close(b->fd);
	if (!b->hva)
		return;
	if (b->pagemap >= 0)
		close(b->pagemap);
	if (b->mem >= 0)
		close(b->mem);
}

static int ram_process_read(const struct ram_block *b, uint64_t first, uint64_t count, void *buf,
			    struct err *e)
{
	uint64_t at = b->hva + first * PAGE_BYTES;
	size_t len = count * PAGE_BYTES;
	ssize_t n;

	if (b->mem < 0) {
		n = proc_memory_read(b->pid, at, buf, len);
	} else {
		n = pread(b->mem, buf, len, (off_t)at);
		if (n < 0)
			n = -errno;
	}
	/* By number it may have been another process, which is known behind the read. */
	if (b->mem < 0 && n > 0 && proc_ended(b->pidfd))
		n = -ESRCH;
	if (n == (ssize_t)len)
		return 0;
	if (ram_process_is_gone(b, n))
		return ram_process_gone(b, e);
	if (n >= 0)
		n = -EFAULT;
	return err_set(e, GW_INTERNAL, (int)-n, "cannot read RAM \"%s\" at page %llu in process %d: %s", b->name,
		       (unsigned long long)first, (int)b->pid, strerror((int)-n));
}

static int ram_process_patch(const struct ram_block *b, uint64_t at, size_t len, const void *buf)
{
	const uint8_t *p = buf;

	at += b->hva;

	while (len) {
		ssize_t n = proc_ended(b->pidfd) ? -ESRCH : proc_memory_write(b->pid, at, p, len);

		if (b->hugetlb)
			missing_void();
		if (n <= 0)
			return proc_ended(b->pidfd) ? -ESRCH : n ? (int)n : -EFAULT;
		p += n;
		at += (uint64_t)n;
		len -= (size_t)n;
	}
	return 0;
}

static int ram_process_write(const struct ram_block *b, uint64_t first, uint64_t count,
			     const void *buf)
{
	return ram_process_patch(b, first * PAGE_BYTES, count * PAGE_BYTES, buf);
}

/*
 * A run of the file behind a private mapping, as it was found last: the pages [first, end) have
 * data, and none from @from to there. To find the end of a run the kernel walks all of it, so it is
 * not asked for each page that the process has copied. What others write to the file is not seen.
 */
struct file_run {
	dev_t dev;
	ino_t ino;
	uint64_t from, first, end;
};

static int find_in_file(const struct ram_block *b, uint64_t from, struct file_run *run,
			struct err *e)
{
	uint64_t first, count;
	int r;

	if (run->dev == b->dev && run->ino == b->ino && from >= run->from && from < run->end)
		return 0;
	r = ram_file_ops.next_data(b, from, b->pages, true, &first, &count, e);
	if (r < 0)
		return r;
	*run = (struct file_run) {
		.dev = b->dev, .ino = b->ino, .from = from, .first = b->pages, .end = b->pages,
	};
	if (r) {
		run->first = first;
		run->end = first + count;
	}
	return 0;
}

static int next_in_file(const struct ram_block *b, uint64_t first, uint64_t end,
			uint64_t *run_first, uint64_t *run_count, struct err *e)
{
	static _Thread_local struct file_run run;
	int r = first < end ? find_in_file(b, first, &run, e) : 0;

	if (r)
		return r;
	*run_first = first > run.first ? first : run.first;
	if (first >= end || *run_first >= end)
		return 0;
	*run_count = (run.end < end ? run.end : end) - *run_first;
	return 1;
}

static int next_in_process(const struct ram_block *b, uint64_t from, uint64_t end, uint64_t *at,
			   uint64_t *len)
{
	return b->hugetlb ? missing_next(b, from, end, at, len) :
			    pagemap_next(b->pagemap, from, end, at, len);
}

/*
 * What the process has, or, of a private mapping, what the file behind it has: a page that was
 * never written is still the file's. The earlier of both runs; where they overlap the next call
 * goes on behind it.
 */
static int ram_process_next_data(const struct ram_block *b, uint64_t first, uint64_t end,
				 bool exact, uint64_t *run_first, uint64_t *run_count,
				 struct err *e)
{
	uint64_t at, len, from_file, count;
	int r = next_in_process(b, b->hva + first * PAGE_BYTES, b->hva + end * PAGE_BYTES, &at,
				&len);
	int of_file;

	if (r < 0 && ram_process_is_gone(b, r))
		return ram_process_gone(b, e);
	if (r < 0)
		return err_set(e, GW_INTERNAL, -r,
			       "cannot see which pages of RAM \"%s\" are there: %s", b->name,
			       strerror(-r));
	if (r) {
		*run_first = (at - b->hva) / PAGE_BYTES;
		*run_count = len / PAGE_BYTES;
	}
	(void)exact;	/* what is not there must not be read, so it always is */
	if (b->fd < 0 || b->hugetlb)
		return r;
	of_file = next_in_file(b, first, r ? *run_first : end, &from_file, &count, e);
	if (of_file > 0) {
		*run_first = from_file;
		*run_count = count;
	}
	return of_file ? of_file : r;
}

static int clear_run(const struct ram_block *b, uint64_t first, uint64_t count, struct err *e)
{
	static const uint8_t zeros[PAGE_BYTES];
	uint8_t pages[CLEAR_PAGES][PAGE_BYTES] __attribute__((aligned(64)));
	int r = 0;

	for (uint64_t n; count && !r; first += n, count -= n) {
		n = count < CLEAR_PAGES ? count : CLEAR_PAGES;
		r = ram_process_read(b, first, n, pages, e);
		for (uint64_t i = 0; i < n && !r; i++)
			if (!zero_filter_best()->is_zero(pages[i]))
				r = ram_process_write(b, first + i, 1, zeros);
	}
	return r;
}

/*
 * Another process's pages cannot be taken away, so they become zeros; a page that is zero already
 * is not written to.
 */
static int ram_process_clear(const struct ram_block *b, uint64_t first, uint64_t count)
{
	uint64_t end = first + count, run, n;
	struct err why = { 0 };
	int r;

	while ((r = ram_process_next_data(b, first, end, true, &run, &n, &why)) > 0) {
		r = clear_run(b, run, n, &why);
		if (r)
			return r;
		first = run + n;
	}
	return r;
}

/* Of hugetlb one look is enough for a number: the kernel moves few pages at a time. */
static uint64_t allocated_hugetlb(const struct ram_block *b)
{
	uint64_t sum = 0, from = b->hva, end = from + b->pages * PAGE_BYTES, run, n;

	while (pagemap_next(b->pagemap, from, end, &run, &n) > 0) {
		sum += n / PAGE_BYTES;
		from = run + n;
	}
	return sum;
}

static uint64_t ram_process_allocated(const struct ram_block *b)
{
	uint64_t sum = 0, from = 0, run, n;
	struct err ignored = { 0 };

	if (b->hugetlb)
		return allocated_hugetlb(b);
	while (ram_process_next_data(b, from, b->pages, true, &run, &n, &ignored) > 0) {
		sum += n;
		from = run + n;
	}
	return sum;
}

const struct ram_ops ram_process_ops = {
	.read = ram_process_read,
	.write = ram_process_write,
	.patch = ram_process_patch,
	.next_data = ram_process_next_data,
	.clear = ram_process_clear,
	.allocated = ram_process_allocated,
};
