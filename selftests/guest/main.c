// SPDX-License-Identifier: GPL-2.0-only
/* Boot, the loop, the tick line. */
#include "guest.h"
#include "io.h"

enum {
	MULTIBOOT_MAGIC	= 0x2badb002,
	COMMAND_POLL_MS	= 20,	/* each look at the port is a VM exit */
	RESET_PORT	= 0xcf9,
	KEYBOARD_PORT	= 0x64,
};

static uint32_t tick, longest_us;

void print_status(void)
{
	struct pattern_counts c;

	pattern_check_sum(0);
	pattern_count(&c);
	print("tick=%u pages=%u errors=%u smp=%u least=%u held=%u verified=%u sweeps=%u "
	      "disk=%u rng=%u net=%u ser=%u fwd=%u links=%u vga=%u gap_us=%u clock_ms=%u",
	      tick, c.writes, errors, opt.smp, c.least, c.held, c.verified, c.sweeps,
	      vblk_count(), vrng_count(), vnet_count(), vser_count(), vfwd_count(), vfwd_links(), vga_count(),
	      longest_us, tsc_to_ms(tsc()));
}

void check_unwritten(void)
{
	smp_each(pattern_check_unwritten);
}

void verify_all(void)
{
	smp_each(pattern_verify_all);
	vblk_verify(UINT32_MAX);
	vrng_verify(UINT32_MAX);
	vnet_verify(UINT32_MAX);
	vga_verify();
	print("verified errors=%u", errors);
}

void reboot(void)
{
	print("rebooting");
	outb(RESET_PORT, 0x02);
	outb(RESET_PORT, 0x06);
	for (;;)
		outb(KEYBOARD_PORT, 0xfe);
}

static void verify_some(void)
{
	uint32_t n = pace_due(&opt.verify, 8);

	if (!n)
		return;
	pattern_verify(0, n);
	vblk_verify(n);
	vrng_verify(n);
	vnet_verify(n);
}

static void run(void)
{
	uint64_t now = tsc(), said = now, poll = now, before = now;
	bool busy;
	uint64_t period;
	uint32_t gap;

	for (;;) {
		busy = pattern_poll(0);
		busy |= vblk_poll();
		busy |= vrng_poll();
		busy |= vnet_poll();
		busy |= vser_poll();
		busy |= vfwd_poll();
		busy |= vga_poll();
		verify_some();

		now = tsc();
		gap = tsc_to_us(now - before);
		if (gap > longest_us)
			longest_us = gap;
		before = now;
		if (now - poll >= (uint64_t)tsc_khz() * COMMAND_POLL_MS) {
			cmd_poll();
			poll = now;
			before = tsc();
		}
		period = div64((uint64_t)tsc_khz() * 1000, opt.ticks);
		if (now - said >= period) {
			said += period;
			if (now - said >= period)
				said = now;	/* stopped meanwhile: no burst */
			tick++;
			print_status();
			longest_us = 0;
			before = tsc();
		}
		if (!busy && opt.verify.rate != RATE_MAX)
			nap();
	}
}

void main(uint32_t magic, const struct multiboot_info *mb)
{
	const char *line = (const char *)(uintptr_t)((const uint32_t *)mb)[4];

	serial_init();
	if (magic != MULTIBOOT_MAGIC)
		die("not booted by multiboot");
	/* its first word is the kernel's file name */
	while (*line && *line != ' ')
		line++;
	cmd_line(line);
	mem_init(mb);
	time_init();
	print("boot tsc_khz=%u", tsc_khz());
	vblk_init();
	vrng_init();
	vnet_init();
	vser_init();
	vfwd_init();
	high_init();
	pattern_init();
	smp_init();
	pattern_start(0);
	run();
}
