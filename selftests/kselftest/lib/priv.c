// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/swap.h>
#include <unistd.h>

#include "blockdev.h"
#include "host.h"
#include "priv.h"
#include "ram.h"

#define FLUSH_WINDOW	"/sys/module/godwit/parameters/pause_before_flush_ms"
#define PAUSED_NOW	"/sys/module/godwit/parameters/paused_before_flush"
#define RAM_SLOT	1

uint8_t *priv_mmap(uint64_t bytes, int flags, int fd)
{
	uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			   flags | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);

	require(at != MAP_FAILED, "mmap");
	return at;
}

static int half_a_file(uint64_t bytes)
{
	int fd = sized_memfd(bytes, 0);
	uint64_t at;

	for (at = 0; at < bytes; at += 2 * PAGE)
		require(pwrite(fd, &at, sizeof(at), at) == sizeof(at), "pwrite");
	return fd;
}

int priv_map(struct priv *p, enum priv_kind kind, uint64_t bytes)
{
	static const struct {
		int flags;
		uint64_t page;
	} kinds[] = {
		[PRIV_4K] = { MAP_ANONYMOUS, PAGE },
		[PRIV_THP] = { MAP_ANONYMOUS, 2 * MIB },
		[PRIV_2M] = { MAP_ANONYMOUS | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT, 2 * MIB },
		[PRIV_1G] = { MAP_ANONYMOUS | MAP_HUGETLB | 30 << MAP_HUGE_SHIFT, GIB },
		[PRIV_FILE] = { 0, PAGE },
	};
	int fd = kind == PRIV_FILE ? half_a_file(bytes) : -1, r;
	uint8_t *at = aligned_room(2 * bytes, kind == PRIV_1G ? GIB : 2 * MIB);

	memset(p, 0, sizeof(*p));
	p->kind = kind;
	p->bytes = bytes;
	p->page = kinds[kind].page;
	p->map = mmap(at, bytes, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_FIXED | kinds[kind].flags, fd, 0);
	r = p->map == MAP_FAILED ? -errno : 0;
	if (fd >= 0)
		close(fd);
	if (r)
		p->map = NULL;
	else if (kind == PRIV_4K || kind == PRIV_THP)
		madvise(p->map, bytes, kind == PRIV_THP ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	return r;
}

/* False: it is not there just now. */
static bool copy_pages(struct priv *p, uint64_t first, uint64_t npages)
{
	return pread(p->mem, p->copy + first * PAGE, npages * PAGE,
		     (uintptr_t)p->map + first * PAGE) == (ssize_t)(npages * PAGE);
}

/* As a sender does it: what is not there is neither read nor touched. */
static void copy_what_is_there(struct priv *p)
{
	uint64_t at = 0, end = p->copied / PAGE, len;

	for (; !session_next_data(&p->s, 0, at, end - at, &at, &len); at += len)
		require(copy_pages(p, at, len), "/proc/self/mem");
}

void priv_begin(struct priv *p, unsigned int nr_vcpus, uint64_t copied)
{
	p->copied = copied;
	p->mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	p->copy = mmap(NULL, copied, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	require(p->mem >= 0 && p->copy != MAP_FAILED, "a copy of RAM");
	vm_create(&p->vm, nr_vcpus, 3);
	require(!vm_slot(&p->vm, RAM_SLOT, 0, RAM_GPA, p->bytes, p->map), "the RAM's slot");
	session_open(&p->s);
	require(!session_attach(&p->s, p->vm.fd), "GODWIT_ATTACH");
	require(!session_add_private(&p->s, p->map, p->bytes), "GODWIT_ADD_RAM");
	require(!session_start(&p->s), "GODWIT_START");
	session_settle(&p->s);
	copy_what_is_there(p);
}

void priv_end(struct priv *p)
{
	rows_on(ALL_ROWS);
	flush_window(0);
	session_close(&p->s);
	vm_destroy(&p->vm);
	munmap(p->copy, p->copied);
	munmap(p->map, p->bytes);
	close(p->mem);
}

static void take_word(struct priv *p, struct bitmap *b, uint64_t first)
{
	uint64_t page;

	if (!~b->words[first / 64] && copy_pages(p, first, 64)) {
		b->words[first / 64] = 0;
		return;
	}
	for (page = first; page < first + 64; page++)
		if (bit_take(b, page) && !copy_pages(p, page, 1))
			b->words[page / 64] |= 1ULL << page % 64;
}

static void take(struct priv *p)
{
	struct bitmap *b = &p->s.ram[0];
	uint64_t first;

	for (first = 0; first < p->copied / PAGE; first += 64)
		if (b->words[first / 64])
			take_word(p, b, first);
}

void priv_round(struct priv *p, bool clear)
{
	require(!(clear ? session_sync(&p->s, NULL) : session_harvest(&p->s, NULL)), "a harvest");
	take(p);
}

uint64_t priv_differs(const struct priv *p)
{
	return pages_differ(p->mem, (uintptr_t)p->map, p->copy, p->copied);
}

void safeguard_off(enum safeguard which)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", 1U << which);
	require(!file_write(ROWS_OFF, text), ROWS_OFF);
}

void flush_window(unsigned int ms)
{
	char text[16];

	snprintf(text, sizeof(text), "%u", ms);
	require(!file_write(FLUSH_WINDOW, text), FLUSH_WINDOW);
}

bool in_flush_window(void)
{
	return file_number(PAUSED_NOW);
}

#define SWAP_BYTES	(256 * MIB)

static const struct blockdev *swap_dev;
static char swap_node[BLOCKDEV_NODE];

/* What mkswap writes. */
static void use_as_swap(const struct blockdev *dev)
{
	static const char magic[] = "SWAPSPACE2";
	uint32_t head[] = { 1, SWAP_BYTES / PAGE - 1, 0 };	/* version, last page, bad pages */
	uint8_t first[PAGE] = { 0 };
	int fd = open(swap_node, O_WRONLY | O_CLOEXEC);

	memcpy(first + 1024, head, sizeof(head));
	memcpy(first + PAGE - strlen(magic), magic, strlen(magic));
	require(fd >= 0 && pwrite(fd, first, PAGE, 0) == PAGE && !close(fd), swap_node);
	require(!swapon(swap_node, 0), "swapon");
	swap_dev = dev;
}

void swap_on(void)
{
	require(!blockdev_make(&blockdevs[DEV_ZRAM], swap_node), "zram");
	require(!file_write("/sys/block/zram0/disksize", "256M"), "zram's size");
	use_as_swap(&blockdevs[DEV_ZRAM]);
}

void swap_on_device(void)
{
	require(!blockdev_make(&blockdevs[DEV_NULL_BLK], swap_node), "null_blk");
	use_as_swap(&blockdevs[DEV_NULL_BLK]);
}

void swap_off(void)
{
	require(!swapoff(swap_node), "swapoff");
	if (swap_dev == &blockdevs[DEV_ZRAM])
		require(!file_write("/sys/block/zram0/reset", "1"), "reset of zram");
}
