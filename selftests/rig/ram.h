/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * RAM files, and the proof: a copy that takes only what a session reports must end equal to the
 * file.
 */
#ifndef RIG_RAM_H
#define RIG_RAM_H

#include <stdint.h>

#include "session.h"

enum ram_kind {
	RAM_TMPFS,	/* 4 KiB pages */
	RAM_THP,	/* tmpfs with huge pages */
	RAM_2M,		/* hugetlbfs */
	RAM_1G,
};

/**
 * struct ram - a RAM file, and a mapping of all of it
 * @page: bytes of its native page
 */
struct ram {
	int fd;
	uint64_t bytes;
	uint64_t page;
	uint8_t *map;
};

/* A file of so many bytes, all holes; flags: of memfd_create(). */
int sized_memfd(uint64_t bytes, unsigned int flags);
/* Address space for so many bytes, PROT_NONE, that begins at a multiple of align. */
uint8_t *aligned_room(uint64_t bytes, uint64_t align);
/* How many pages of a copy differ from what the file has from at on. */
uint64_t pages_differ(int fd, uint64_t at, const uint8_t *copy, uint64_t bytes);

/* 0 or -errno: -ENOMEM where the host has no huge pages to spare. */
int ram_create(struct ram *r, enum ram_kind kind, uint64_t bytes);
void ram_destroy(struct ram *r);
/* One more mapping of the file, aligned to 1 GiB if it is that long, else to 2 MiB. */
uint8_t *ram_map(const struct ram *r);

/**
 * struct shadow - a copy of a RAM file, as a destination has it
 * @bytes: how much of the file, from its start
 */
struct shadow {
	uint8_t *copy;
	const struct ram *ram;
	uint64_t bytes;
};

void shadow_init(struct shadow *sh, const struct ram *r, uint64_t bytes);
void shadow_free(struct shadow *sh);
/*
 * Takes every page that the bitmap names, and all bits. Reads through the file: no mapping of ours
 * is touched.
 */
void shadow_take(struct shadow *sh, struct bitmap *b);
/* The same in a part of it. */
void shadow_take_range(struct shadow *sh, struct bitmap *b, uint64_t first, uint64_t npages);
/* Takes the holes of the file, which no bitmap names. */
void shadow_take_holes(struct shadow *sh);
/* How many pages differ: 0 is the proof. */
uint64_t shadow_differs(const struct shadow *sh);

#endif /* RIG_RAM_H */
