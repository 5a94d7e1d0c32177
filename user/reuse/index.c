// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "page/page.h"
#include "ram/ram_block.h"
#include "reuse/index.h"

/**
 * struct reuse_index
 * @hashes: @pages: of each entry, its hash and the page of the file; entries below @entries change
 *	no more
 * @said: so many of them the sender has got
 */
struct reuse_index {
	char *path;
	int fd;
	dev_t dev;
	ino_t ino;
	uint64_t file_pages, most;
	struct reuse_key key;
	uint64_t (*hashes)[2];
	uint32_t *pages;
	size_t bytes;
	_Atomic uint64_t entries, said, left_out, ns;
	atomic_bool done, stop;
	atomic_int error;
	pthread_t thread;
	bool started;
};

/* As many whole pages as there are; *error: an errno, if it was one that ended them. */
static unsigned int index_pread(int fd, uint64_t page, unsigned int n, uint8_t *buf, int *error)
{
	size_t have = 0;

	*error = 0;
	while (have < (size_t)n * PAGE_BYTES) {
		ssize_t got = pread(fd, buf + have, (size_t)n * PAGE_BYTES - have,
				    (off_t)(page * PAGE_BYTES + have));

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			*error = errno;
		if (got <= 0)
			break;
		have += (size_t)got;
	}
	return (unsigned int)(have / PAGE_BYTES);
}

static void index_add(struct reuse_index *ix, const struct reuse_hasher *h, uint64_t page,
		      const uint8_t *bytes)
{
	const uint64_t n = atomic_load_explicit(&ix->entries, memory_order_relaxed);

	if (!reuse_worth(bytes))
		return;
	if (n == ix->most) {
		atomic_fetch_add(&ix->left_out, 1);
		return;
	}
	if (!reuse_hash(h, bytes, ix->hashes[n]))
		return;
	ix->pages[n] = (uint32_t)page;
	atomic_store_explicit(&ix->entries, n + 1, memory_order_release);
}

/* A run of pages that are there. 1; 0: it is of no use to go on; or -errno. */
static int index_run(struct reuse_index *ix, const struct reuse_hasher *h, uint64_t first,
		      uint64_t count, uint8_t *buf)
{
	while (count) {
		unsigned int n = count < REUSE_READ_PAGES ? (unsigned int)count : REUSE_READ_PAGES;
		unsigned int got;
		int error;

		if (atomic_load(&ix->stop))
			return 0;
		if (atomic_load(&ix->entries) == ix->most) {
			atomic_fetch_add(&ix->left_out, count);
			return 1;
		}
		got = index_pread(ix->fd, first, n, buf, &error);
		for (unsigned int i = 0; i < got; i++)
			index_add(ix, h, first + i, buf + i * PAGE_BYTES);
		if (got < n)
			return -error;
		first += n;
		count -= n;
	}
	return 1;
}

static void *index_main(void *arg)
{
	static const size_t bytes = (size_t)REUSE_READ_PAGES * PAGE_BYTES;
	struct reuse_index *ix = arg;
	uint8_t *buf = aligned_alloc(PAGE_BYTES, bytes);
	const uint64_t began_ns = now_ns();
	uint64_t from = 0, first = 0, count = 0;
	struct reuse_hasher h;
	struct err e = { 0 };
	int r = reuse_hasher_open(&h, &ix->key) && buf ? 1 : -ENOMEM;

	while (r > 0) {
		r = file_next_data(ix->fd, from, ix->file_pages, false, &first, &count, &e);
		if (r > 0)
			r = index_run(ix, &h, first, count, buf);
		from = first + count;
		atomic_store(&ix->ns, now_ns() - began_ns);
	}
	reuse_hasher_close(&h);
	free(buf);
	atomic_store(&ix->ns, now_ns() - began_ns);
	atomic_store(&ix->error, r < 0 ? -r : 0);
	atomic_store(&ix->done, true);
	return NULL;
}

static int index_open_file(struct reuse_index *ix, struct err *e)
{
	struct stat st;

	/* Not blocked by a FIFO. */
	ix->fd = open(ix->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (ix->fd < 0 || fstat(ix->fd, &st))
		return err_set(e, GW_USAGE, errno, "cannot read %s: %s; leave out --reuse, or give another file",
			       ix->path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return err_set(e, GW_USAGE, EINVAL, "%s is no regular file: --reuse takes a file with old RAM of the guest",
			       ix->path);
	if (st.st_size < PAGE_BYTES)
		return err_set(e, GW_USAGE, ENODATA, "%s is empty: leave out --reuse, or give another file",
			       ix->path);
	ix->dev = st.st_dev;
	ix->ino = st.st_ino;
	ix->file_pages = (uint64_t)st.st_size / PAGE_BYTES;
	if (ix->file_pages > UINT32_MAX)
		ix->file_pages = UINT32_MAX;
	return 0;
}

/* Address space for all entries, which is backed by memory as they come. */
static int index_open_memory(struct reuse_index *ix, uint64_t memory, struct err *e)
{
	void *p;

	ix->most = memory / REUSE_INDEX_ENTRY;
	if (ix->most > ix->file_pages)
		ix->most = ix->file_pages;
	if (ix->most > WIRE_ENTRIES_MAX)
		ix->most = WIRE_ENTRIES_MAX;
	ix->bytes = (ix->most + 1) * REUSE_INDEX_ENTRY;
	p = mmap(NULL, ix->bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return err_set(e, GW_INTERNAL, ENOMEM, "no memory for --reuse: leave it out, or give a smaller --reuse-memory");
	ix->hashes = p;
	ix->pages = (uint32_t *)(ix->hashes + ix->most);
	/* A guest's RAM must not be guessed from a core. */
	madvise(p, ix->bytes, MADV_DONTDUMP);
	return 0;
}

int reuse_index_open(const char *path, bool other, uint64_t memory, struct reuse_index **out,
		     struct err *e)
{
	struct reuse_index *ix = calloc(1, sizeof(*ix));
	int r;

	if (!ix)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	ix->fd = -1;
	ix->path = strdup(path);
	r = ix->path ? index_open_file(ix, e) : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	if (!r)
		r = index_open_memory(ix, memory, e);
	if (!r && !reuse_key_random(&ix->key, other ? WIRE_REUSE_HMAC : WIRE_REUSE_XXH3))
		r = err_set(e, GW_INTERNAL, EIO, "cannot get random numbers for --reuse");
	if (!r) {
		r = thread_start(&ix->thread, index_main, ix);
		ix->started = !r;
		if (r)
			err_set(e, GW_INTERNAL, -r, "cannot start a thread for --reuse: %s",
				strerror(-r));
	}
	if (r)
		reuse_index_close(ix);
	else
		*out = ix;
	return r;
}

void reuse_index_rest(struct reuse_index *ix)
{
	if (ix)
		atomic_store(&ix->stop, true);
}

void reuse_index_close(struct reuse_index *ix)
{
	if (!ix)
		return;
	atomic_store(&ix->stop, true);
	if (ix->started)
		pthread_join(ix->thread, NULL);
	if (ix->hashes)
		munmap(ix->hashes, ix->bytes);
	if (ix->fd >= 0)
		close(ix->fd);
	free(ix->path);
	explicit_bzero(&ix->key, sizeof(ix->key));
	free(ix);
}

const char *reuse_index_path(const struct reuse_index *ix)
{
	return ix->path;
}

void reuse_index_file(const struct reuse_index *ix, dev_t *dev, ino_t *ino, int *fd)
{
	*dev = ix->dev;
	*ino = ix->ino;
	*fd = ix->fd;
}

const struct reuse_key *reuse_index_key(const struct reuse_index *ix)
{
	return &ix->key;
}

void reuse_index_state(const struct reuse_index *ix, struct reuse_index_state *out)
{
	*out = (struct reuse_index_state) { .most = ix->most, .done = atomic_load(&ix->done) };
	/* After @done: all of it then. */
	out->entries = atomic_load_explicit(&ix->entries, memory_order_acquire);
	out->left_out = atomic_load(&ix->left_out);
	out->ns = atomic_load(&ix->ns);
	out->error = atomic_load(&ix->error);
	out->memory = out->entries * REUSE_INDEX_ENTRY;
}

uint32_t reuse_index_say(struct reuse_index *ix, uint64_t first, uint32_t n, uint8_t *out)
{
	const uint64_t entries = atomic_load_explicit(&ix->entries, memory_order_acquire);

	if (first >= entries)
		return 0;
	if (n > entries - first)
		n = (uint32_t)(entries - first);
	for (uint32_t i = 0; i < n; i++, out += WIRE_ENTRY) {
		wire_put_u64(out, ix->hashes[first + i][0]);
		wire_put_u64(out + 8, ix->hashes[first + i][1]);
	}
	if (atomic_load(&ix->said) < first + n)
		atomic_store(&ix->said, first + n);
	return n;
}

uint64_t reuse_index_said(const struct reuse_index *ix)
{
	return atomic_load(&ix->said);
}

/* How many of these entries follow each other in the file. */
static unsigned int index_together(const uint32_t *pages, unsigned int n)
{
	unsigned int i = 1;

	while (i < n && pages[i] == pages[i - 1] + 1)
		i++;
	return i;
}

uint64_t reuse_index_read(const struct reuse_index *ix, const struct reuse_hasher *h,
			  uint64_t entry, unsigned int n, uint8_t *buf)
{
	uint64_t good = 0;

	for (unsigned int i = 0; i < n;) {
		unsigned int run = index_together(&ix->pages[entry + i], n - i);
		int error;
		unsigned int got = index_pread(ix->fd, ix->pages[entry + i], run,
					       buf + (size_t)i * PAGE_BYTES, &error);

		for (unsigned int end = i + got; i < end; i++, run--) {
			uint64_t hash[2];

			if (reuse_hash(h, buf + (size_t)i * PAGE_BYTES, hash) &&
			    hash[0] == ix->hashes[entry + i][0] &&
			    hash[1] == ix->hashes[entry + i][1])
				good |= (uint64_t)1 << i;
		}
		i += run;
	}
	return good;
}
