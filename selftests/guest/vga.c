// SPDX-License-Identifier: GPL-2.0-only
/*
 * A counter on the display, in text mode: each access is QEMU's, to RAM that it keeps to itself and of which nothing is in the
 * guest's. What is read back must be what was written last.
 */
#include "guest.h"

enum { TEXT = 0xb8000, CELLS = 4, WHITE = 0x0700 };

static uint32_t written;

static volatile uint16_t *cell(uint32_t n)
{
	uintptr_t at = TEXT;

	/* A compiler thinks that nothing can lie at a constant. */
	__asm__("" : "+r"(at));
	return (volatile uint16_t *)at + n;
}

void vga_verify(void)
{
	uint32_t seen = 0, n;

	if (!written)
		return;
	for (n = 0; n < CELLS; n++)
		seen |= (uint32_t)(*cell(n) & 0xff) << 8 * n;
	if (seen != written)
		report("display shows %u, not %u", seen, written);
}

bool vga_poll(void)
{
	uint32_t n;

	if (!pace_due(&opt.vga, 1))
		return false;
	vga_verify();
	written++;
	for (n = 0; n < CELLS; n++)
		*cell(n) = WHITE | (written >> 8 * n & 0xff);
	return true;
}

uint32_t vga_count(void)
{
	return written;
}
