/* SPDX-License-Identifier: GPL-2.0-only */
/* A session of /dev/godwit. Calls return 0 (or an index) or -errno. */
#ifndef KST_SESSION_H
#define KST_SESSION_H

#include <linux/godwit.h>
#include <stdbool.h>
#include <stdint.h>

struct bitmap {
	uint64_t *words;
	uint64_t npages;
	uint64_t bytes;
	int ram_fd;
};

struct session {
	int fd;
	unsigned int nr_rams;
	struct bitmap ram[8];
};

void session_open(struct session *s);
int session_attach(struct session *s, int vm_fd);
/* Maps the bitmap too. The descriptor stays the caller's. */
int session_add_ram(struct session *s, int fd);
/* Only so much of the file. */
int session_add_pages(struct session *s, int fd, uint64_t npages);
int session_start(struct session *s);
/* h may be NULL. */
int session_harvest(struct session *s, struct godwit_harvest *h);
int session_clear(struct session *s, unsigned int ram, uint64_t first, uint64_t npages);
/* A harvest, and a CLEAR of all that is marked: the caller is about to take it. h may be NULL. */
int session_sync(struct session *s, struct godwit_harvest *h);
void session_close(struct session *s);
/* open, attach, add_ram for each, start; all of it must work. */
void session_begin(struct session *s, int vm_fd, const int *ram_fds, unsigned int nr);
/* Takes over all that is marked so far: the bitmaps are empty then, and the logs armed. */
void session_settle(struct session *s);

bool bit_set(const struct bitmap *b, uint64_t page);
bool bit_take(struct bitmap *b, uint64_t page);
uint64_t bits_count(const struct bitmap *b);

#endif /* KST_SESSION_H */
