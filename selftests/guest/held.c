// SPDX-License-Identifier: GPL-2.0-only
/* Pages that a device fills in turn. What it left there must stand until the page is its again. */
#include "guest.h"

void held_init(struct held *h, const char *name, uint32_t pages, uint32_t offset)
{
	h->name = name;
	h->pages = pages;
	h->offset = offset;
	h->area = mem_alloc(pages * PAGE_SIZE);
}

uint8_t *held_page(const struct held *h, uint32_t page)
{
	return h->area + page * PAGE_SIZE;
}

uint32_t held_take(struct held *h)
{
	uint32_t page = h->next;

	h->next = (page + 1) % h->pages;
	h->hold[page].len = 0;
	return page;
}

void held_note(struct held *h, uint32_t page, uint32_t len)
{
	h->hold[page].len = len;
	h->hold[page].sum = checksum(held_page(h, page) + h->offset, len);
}

void held_verify(struct held *h, uint32_t n)
{
	uint32_t page, sum;

	if (!h->area)
		return;
	for (n = n > h->pages ? h->pages : n; n; n--) {
		page = h->cursor;
		h->cursor = (page + 1) % h->pages;
		sum = checksum(held_page(h, page) + h->offset, h->hold[page].len);
		if (h->hold[page].len && sum != h->hold[page].sum)
			report("%s page at %x: checksum %x, not %x", h->name,
			       (uintptr_t)held_page(h, page), sum, h->hold[page].sum);
	}
}
