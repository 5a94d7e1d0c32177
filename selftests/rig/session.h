/* SPDX-License-Identifier: GPL-2.0-only */
/* A session of /dev/godwit. Calls return 0 (or an index) or -errno. */
#ifndef RIG_SESSION_H
#define RIG_SESSION_H

#include <linux/godwit.h>
#include <stdbool.h>
#include <stdint.h>

struct bitmap {
	uint64_t *words;
	uint64_t npages;
	uint64_t bytes;
	uint64_t map_offset;
	int ram_fd;
};

struct session {
	int fd;
	unsigned int nr_rams;
	struct bitmap ram[8];
};

void session_open(struct session *s);
int session_try_open(struct session *s);
int session_attach(struct session *s, int vm_fd);
/* Maps the bitmap too. The descriptor stays the caller's. */
int session_add_ram(struct session *s, int fd);
/* Only so much of the file. */
int session_add_pages(struct session *s, int fd, uint64_t npages);
/* The parts of it: what GODWIT_ADD_RAM does, and mapping all bitmaps that are not mapped. */
int session_add_unmapped(struct session *s, int fd, uint64_t npages);
/* Private memory of this process, the VMM, as RAM. The index or -errno. */
int session_add_private(struct session *s, const void *addr, uint64_t bytes);
int session_add_private_unmapped(struct session *s, const void *addr, uint64_t bytes);
int session_map(struct session *s);
void session_unmap(struct session *s);
int session_start(struct session *s);
/* h may be NULL. */
int session_harvest(struct session *s, struct godwit_harvest *h);
int session_clear(struct session *s, unsigned int ram, uint64_t first, uint64_t npages);
/* The first run of what is there. */
int session_next_data(struct session *s, unsigned int ram, uint64_t first, uint64_t npages,
		      uint64_t *at, uint64_t *len);
/* A harvest, and a CLEAR of all that is marked: the caller is about to take it. h may be NULL. */
int session_sync(struct session *s, struct godwit_harvest *h);
/*
 * How many flushes there are (flushes()) in so many harvests, if before(arg) comes ahead of each;
 * before may be NULL.
 */
unsigned long session_flushes(struct session *s, unsigned int harvests, void (*before)(void *arg),
			      void *arg);
void session_close(struct session *s);
/* open, attach, add_ram for each, start; all of it must work. */
void session_begin(struct session *s, int vm_fd, const int *ram_fds, unsigned int nr);
/* Takes over all that is marked so far: the bitmaps are empty then, and the logs armed. */
void session_settle(struct session *s);

bool bit_set(const struct bitmap *b, uint64_t page);
bool bit_take(struct bitmap *b, uint64_t page);
uint64_t bits_count(const struct bitmap *b);
void bits_forget(struct bitmap *b);

#endif /* RIG_SESSION_H */
