// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host.h"
#include "session.h"
#include "vm.h"

int session_try_open(struct session *s)
{
	memset(s, 0, sizeof(*s));
	s->fd = open("/dev/godwit", O_RDWR | O_CLOEXEC);
	return s->fd < 0 ? -errno : 0;
}

void session_open(struct session *s)
{
	require(!session_try_open(s), "/dev/godwit");
}

int session_attach(struct session *s, int vm_fd)
{
	struct godwit_attach a = { .vm_fd = vm_fd };

	return ioctl(s->fd, GODWIT_ATTACH, &a) ? -errno : 0;
}

/* All of the file; 1 page of what is none. */
static uint64_t pages_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) || !S_ISREG(st.st_mode) ? 1 : st.st_size / PAGE;
}

int session_add_ram(struct session *s, int fd)
{
	return session_add_pages(s, fd, pages_of(fd));
}

int session_add_pages(struct session *s, int fd, uint64_t npages)
{
	int index = session_add_unmapped(s, fd, npages);

	require(index < 0 || !session_map(s), "mmap of a bitmap");
	return index;
}

static int add_unmapped(struct session *s, struct godwit_add_ram *a)
{
	int fd = a->fd;

	require(s->nr_rams < ARRAY_LEN(s->ram), "room for RAM");
	if (ioctl(s->fd, GODWIT_ADD_RAM, a))
		return -errno;
	s->ram[s->nr_rams++] = (struct bitmap){
		.npages = a->npages, .bytes = a->map_bytes, .ram_fd = fd, .map_offset = a->map_offset,
	};
	return a->index;
}

int session_add_unmapped(struct session *s, int fd, uint64_t npages)
{
	struct godwit_add_ram a = { .fd = fd, .npages = npages };

	return add_unmapped(s, &a);
}

int session_add_private_unmapped(struct session *s, const void *addr, uint64_t bytes)
{
	struct godwit_add_ram a = {
		.fd = -1, .flags = GODWIT_RAM_PRIVATE, .map_offset = (uintptr_t)addr,
		.npages = bytes / PAGE,
	};

	return add_unmapped(s, &a);
}

int session_add_private(struct session *s, const void *addr, uint64_t bytes)
{
	int index = session_add_private_unmapped(s, addr, bytes);

	require(index < 0 || !session_map(s), "mmap of a bitmap");
	return index;
}

int session_map(struct session *s)
{
	struct bitmap *b;
	void *words;

	for (b = s->ram; b < s->ram + s->nr_rams; b++) {
		if (b->words)
			continue;
		words = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd,
			     b->map_offset);
		if (words == MAP_FAILED)
			return -errno;
		b->words = words;
	}
	return 0;
}

void session_unmap(struct session *s)
{
	struct bitmap *b;

	for (b = s->ram; b < s->ram + s->nr_rams; b++) {
		require(!b->words || !munmap(b->words, b->bytes), "munmap of a bitmap");
		b->words = NULL;
	}
}

int session_start(struct session *s)
{
	struct godwit_start a = { 0 };

	return ioctl(s->fd, GODWIT_START, &a) ? -errno : 0;
}

int session_harvest(struct session *s, struct godwit_harvest *h)
{
	struct godwit_harvest own;

	h = h ? h : &own;
	memset(h, 0, sizeof(*h));
	return ioctl(s->fd, GODWIT_HARVEST, h) ? -errno : 0;
}

int session_clear(struct session *s, unsigned int ram, uint64_t first, uint64_t npages)
{
	struct godwit_range a = { .ram = ram, .first_page = first, .npages = npages };

	return ioctl(s->fd, GODWIT_CLEAR, &a) ? -errno : 0;
}

int session_next_data(struct session *s, unsigned int ram, uint64_t first, uint64_t npages,
		      uint64_t *at, uint64_t *len)
{
	struct godwit_range a = { .ram = ram, .first_page = first, .npages = npages };
	int r = ioctl(s->fd, GODWIT_NEXT_DATA, &a) ? -errno : 0;

	*at = a.first_page;
	*len = a.npages;
	return r;
}

int session_sync(struct session *s, struct godwit_harvest *h)
{
	unsigned int i;
	int r = session_harvest(s, h);

	for (i = 0; i < s->nr_rams && !r; i++)
		r = session_clear(s, i, 0, s->ram[i].npages);
	return r;
}

unsigned long session_flushes(struct session *s, unsigned int harvests, void (*before)(void *arg),
			      void *arg)
{
	unsigned long n = flushes();

	while (harvests--) {
		if (before)
			before(arg);
		require(!session_harvest(s, NULL), "a harvest");
	}
	return flushes() - n;
}

void session_close(struct session *s)
{
	session_unmap(s);
	close(s->fd);
}

void session_begin(struct session *s, int vm_fd, const int *ram_fds, unsigned int nr)
{
	unsigned int i;

	session_open(s);
	require(!session_attach(s, vm_fd), "GODWIT_ATTACH");
	for (i = 0; i < nr; i++)
		require(session_add_ram(s, ram_fds[i]) == (int)i, "GODWIT_ADD_RAM");
	require(!session_start(s), "GODWIT_START");
}

void session_settle(struct session *s)
{
	unsigned int i;

	/* START has set every bit. */
	require(!session_sync(s, NULL), "a harvest");
	for (i = 0; i < s->nr_rams; i++)
		bits_forget(&s->ram[i]);
}

bool bit_set(const struct bitmap *b, uint64_t page)
{
	return b->words[page / 64] >> page % 64 & 1;
}

bool bit_take(struct bitmap *b, uint64_t page)
{
	bool set = bit_set(b, page);

	b->words[page / 64] &= ~(1ULL << page % 64);
	return set;
}

uint64_t bits_count(const struct bitmap *b)
{
	uint64_t i, n = 0;

	for (i = 0; i < b->bytes / sizeof(*b->words); i++)
		n += __builtin_popcountll(b->words[i]);
	return n;
}

void bits_forget(struct bitmap *b)
{
	memset(b->words, 0, b->bytes);
}
