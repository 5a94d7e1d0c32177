// SPDX-License-Identifier: GPL-2.0-only
/* The body of a BLOCKS frame: the RAM blocks by QEMU's names. Also bodies of 64 bits. */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/types.h>

#include "page/page.h"
#include "wire/blocks.h"
#include "wire/wire.h"

struct block_le {
	uint64_t pages;
	uint64_t address;
	uint32_t page_size;
	uint16_t name_len;
	uint16_t reserved;
} __attribute__((packed));
static_assert(sizeof(struct block_le) == 24, "the block record's layout is the protocol");

/* A larger block could not be mapped, and an off_t could not hold its size. */
#define BLOCK_PAGES_MAX	((uint64_t)INT64_MAX / PAGE_BYTES)

static size_t block_name_len(const struct wire_block *b)
{
	return strnlen(b->name, WIRE_NAME_MAX);
}

size_t wire_blocks_size(const struct wire_block *b, unsigned int n)
{
	size_t size = 0;

	while (n--)
		size += sizeof(struct block_le) + block_name_len(b++);
	return size;
}

void wire_put_blocks(uint8_t *p, const struct wire_block *b, unsigned int n)
{
	for (; n--; b++) {
		struct block_le le = {
			.pages = htole64(b->pages),
			.address = htole64(b->address),
			.page_size = htole32(b->page_size),
			.name_len = htole16(block_name_len(b)),
		};

		memcpy(p, &le, sizeof(le));
		memcpy(p + sizeof(le), b->name, block_name_len(b));
		p += sizeof(le) + block_name_len(b);
	}
}

/* ASCII in any locale: the name ends up in a log and in QMP commands. */
static bool block_name_printable(const uint8_t *p, size_t len)
{
	while (len--) {
		if (*p < 0x20 || *p > 0x7e)
			return false;
		p++;
	}
	return true;
}

static bool block_name_taken(const struct wire_block *b, unsigned int n, const char *name)
{
	while (n--) {
		if (!strcmp(b++->name, name))
			return true;
	}
	return false;
}

/* Decodes one record from at most len bytes. Returns how many bytes the record has, or -errno. */
static ssize_t block_get(const uint8_t *p, size_t len, struct wire_block *b)
{
	struct block_le le;
	size_t name;

	if (len < sizeof(le))
		return -EPROTO;
	memcpy(&le, p, sizeof(le));
	p += sizeof(le);
	len -= sizeof(le);

	name = le16toh(le.name_len);
	if (name > WIRE_NAME_MAX)
		return -EMSGSIZE;
	if (le.reserved || name == 0 || name > len || !block_name_printable(p, name))
		return -EPROTO;
	memset(b, 0, sizeof(*b));
	memcpy(b->name, p, name);
	b->pages = le64toh(le.pages);
	b->address = le64toh(le.address);
	b->page_size = le32toh(le.page_size);
	if (b->pages == 0)
		return -EPROTO;
	if (b->pages > BLOCK_PAGES_MAX)
		return -EMSGSIZE;
	return sizeof(le) + name;
}

int wire_get_blocks(const uint8_t *p, size_t len, struct wire_block *b, unsigned int n)
{
	unsigned int i;
	ssize_t took;

	if (n > WIRE_BLOCKS_MAX)
		return -EMSGSIZE;
	for (i = 0; i < n; i++) {
		took = block_get(p, len, &b[i]);
		if (took < 0)
			return took;
		if (block_name_taken(b, i, b[i].name))
			return -EPROTO;
		p += took;
		len -= took;
	}
	return len ? -EPROTO : 0;
}

void wire_put_u64(uint8_t p[8], uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
}

uint64_t wire_get_u64(const uint8_t p[8])
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}
