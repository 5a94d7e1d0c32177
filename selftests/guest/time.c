// SPDX-License-Identifier: GPL-2.0-only
/* The TSC, calibrated once with the PIT; rates; naps. */
#include "guest.h"
#include "io.h"

enum {
	PIT_HZ		= 1193182,
	PIT_0		= 0x40,
	PIT_2		= 0x42,
	PIT_MODE	= 0x43,
	PIT_GATE	= 0x61,
	CALIBRATE_MS	= 20,
	CALIBRATE_TRIES	= 25,
	CALIBRATE_PARTS	= 200,		/* to half a percent, on a host that lets it */
	NAP_HZ		= 100,
	PIC_1		= 0x20,
	PIC_2		= 0xa0,
};

static uint32_t khz;

uint64_t tsc(void)
{
	uint64_t t;

	__asm__ volatile("rdtsc" : "=A"(t));
	return t;
}

uint32_t tsc_khz(void)
{
	return khz;
}

uint32_t tsc_to_us(uint64_t cycles)
{
	return div64(cycles * 1000, khz);
}

/* Of 32 bits: 49 days. */
uint32_t tsc_to_ms(uint64_t cycles)
{
	return div64(cycles, khz);
}

/*
 * The count begins between @loaded[0] and @loaded[1] and is seen to have ended between two reads of the gate. So each try
 * says what the TSC does at least and at most in that time, however long the host held the guest up, and where.
 */
static void calibrate(uint32_t *least, uint32_t *most)
{
	uint32_t count = PIT_HZ / 1000 * CALIBRATE_MS, low, high;
	uint64_t loaded[2], running, ended;

	outb(PIT_GATE, (inb(PIT_GATE) & ~0x02) | 0x01);
	outb(PIT_MODE, 0xb0);		/* channel 2, mode 0: OUT rises at the end */
	outb(PIT_2, count & 0xff);
	loaded[0] = tsc();
	outb(PIT_2, count >> 8);
	loaded[1] = ended = tsc();
	do {
		running = ended;
		ended = tsc();
	} while (!(inb(PIT_GATE) & 0x20));
	ended = tsc();
	low = div64(running - loaded[1], CALIBRATE_MS);
	high = div64(ended - loaded[0], CALIBRATE_MS);
	if (low > *least)
		*least = low;
	if (high < *most)
		*most = high;
}

/* IRQ 0 goes to vector 0x20, all else is masked. */
static void timer_init(void)
{
	outb(PIC_1, 0x11);
	outb(PIC_2, 0x11);
	outb(PIC_1 + 1, 0x20);
	outb(PIC_2 + 1, 0x28);
	outb(PIC_1 + 1, 4);
	outb(PIC_2 + 1, 2);
	outb(PIC_1 + 1, 1);
	outb(PIC_2 + 1, 1);
	outb(PIC_1 + 1, 0xfe);
	outb(PIC_2 + 1, 0xff);
	outb(PIT_MODE, 0x34);
	outb(PIT_0, (PIT_HZ / NAP_HZ) & 0xff);
	outb(PIT_0, (PIT_HZ / NAP_HZ) >> 8);
}

void time_init(void)
{
	uint32_t i, least = 0, most = UINT32_MAX;

	for (i = 0; i < CALIBRATE_TRIES && most > least + least / CALIBRATE_PARTS; i++)
		calibrate(&least, &most);
	khz = least / 2 + most / 2;
	timer_init();
}

/* How many events are due by now; what was missed in a long pause is not made up. */
uint32_t pace_due(struct pace *p, uint32_t most)
{
	uint32_t unit_hz = (khz >> 4) * 1000;	/* 16 cycles: fits 32 bits */
	uint64_t now = tsc(), units = (now - p->last) >> 4;
	uint32_t due;

	if (p->rate == RATE_MAX)
		return most;
	p->last += units << 4;
	if (units > unit_hz / 8)
		units = unit_hz / 8;
	p->credit += units * p->rate;
	if (p->credit < unit_hz)
		return 0;
	due = div64(p->credit, unit_hz);
	p->credit -= (uint64_t)due * unit_hz;
	if (due <= most)
		return due;
	/* keep the rest for the next call, a second's worth at most */
	p->credit += (uint64_t)(due - most) * unit_hz;
	if (p->credit > (uint64_t)p->rate * unit_hz)
		p->credit = (uint64_t)p->rate * unit_hz;
	return most;
}

/* Sleep until the next timer interrupt: an idle guest must not cost a CPU. */
void nap(void)
{
	__asm__ volatile("sti; hlt; cli" ::: "memory");
}
