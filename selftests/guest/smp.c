// SPDX-License-Identifier: GPL-2.0-only
/*
 * More vCPUs: the first one starts them, each writes and checks a stretch of its
 * own (pattern.c), and does what the first one asks of all.
 */
#include "guest.h"

enum {
	LAPIC		= 0xfee00000,
	LAPIC_SPURIOUS	= 0x0f0,
	LAPIC_ICR	= 0x300,
	LAPIC_TIMER	= 0x320,
	LAPIC_COUNT	= 0x380,
	LAPIC_DIVIDE	= 0x3e0,

	ENABLED		= 0x100,
	BUSY		= 0x1000,
	ALL_BUT_SELF	= 0xc0000,
	INIT		= 0x4500,
	STARTUP		= 0x4600,
	PERIODIC	= 0x20000,
	BY_ONE		= 0x0b,
	VECTOR		= 0x21,		/* start.S */

	TRAMPOLINE	= 0x8000,	/* the multiboot information lies above */
	LAPIC_HZ	= 1000000000,	/* KVM's and TCG's */
	AP_NAP_HZ	= 50,
	CHECK_MS	= 250,
	PATIENCE_MS	= 30000,
};

extern const char ap_trampoline[], ap_trampoline_end[];

static uint32_t arrived = 1, asked, answered[CPUS_MAX];
static void (*job)(uint32_t cpu);

static volatile uint32_t *lapic(uint32_t reg)
{
	uintptr_t at = LAPIC + reg;

	/* A compiler thinks that nothing can lie at a constant. */
	__asm__("" : "+r"(at));
	return (volatile uint32_t *)at;
}

static void wait_ms(uint32_t ms)
{
	uint64_t begin = tsc();

	while (tsc() - begin < (uint64_t)tsc_khz() * ms)
		relax();
}

static void tell_all(uint32_t what)
{
	*lapic(LAPIC_ICR) = ALL_BUT_SELF | what;
	while (*lapic(LAPIC_ICR) & BUSY)
		relax();
}

static void timer_start(void)
{
	*lapic(LAPIC_SPURIOUS) = ENABLED | VECTOR;
	*lapic(LAPIC_DIVIDE) = BY_ONE;
	*lapic(LAPIC_TIMER) = PERIODIC | VECTOR;
	*lapic(LAPIC_COUNT) = LAPIC_HZ / AP_NAP_HZ;
}

static void do_job(uint32_t cpu)
{
	uint32_t number = READ_ONCE(asked);

	if (answered[cpu] == number)
		return;
	barrier();
	job(cpu);
	barrier();
	answered[cpu] = number;
}

void ap_main(uint32_t cpu)
{
	struct pace verify = { 0 };
	uint64_t now, checked = 0;
	bool busy;

	if (cpu >= opt.smp)
		for (;;)
			__asm__ volatile("cli; hlt");
	high_map();
	timer_start();
	pattern_start(cpu);
	__atomic_fetch_add(&arrived, 1, __ATOMIC_RELEASE);
	for (;;) {
		busy = pattern_poll(cpu);
		verify.rate = opt.verify.rate;
		pattern_verify(cpu, pace_due(&verify, 8));
		do_job(cpu);
		now = tsc();
		if (now - checked >= (uint64_t)tsc_khz() * CHECK_MS) {
			pattern_check_sum(cpu);
			checked = now;
		}
		if (!busy && verify.rate != RATE_MAX)
			nap();
	}
}

void smp_init(void)
{
	uint64_t begin;

	if (opt.smp == 1)
		return;
	memcpy((void *)TRAMPOLINE, ap_trampoline, ap_trampoline_end - ap_trampoline);
	tell_all(INIT);
	wait_ms(10);
	tell_all(STARTUP | TRAMPOLINE / PAGE_SIZE);
	wait_ms(1);
	tell_all(STARTUP | TRAMPOLINE / PAGE_SIZE);
	begin = tsc();
	while (READ_ONCE(arrived) < opt.smp) {
		relax();
		if (tsc() - begin > (uint64_t)tsc_khz() * PATIENCE_MS)
			die("there are fewer vCPUs than smp= says");
	}
}

/* On every vCPU; when it returns all have done it. */
void smp_each(void (*what)(uint32_t cpu))
{
	uint64_t begin = tsc();
	uint32_t cpu;

	job = what;
	barrier();
	asked++;
	what(0);
	for (cpu = 1; cpu < opt.smp; cpu++) {
		while (READ_ONCE(answered[cpu]) != asked) {
			nap();
			if (tsc() - begin > (uint64_t)tsc_khz() * PATIENCE_MS) {
				report("vCPU %u does not answer", cpu);
				break;
			}
		}
	}
}
