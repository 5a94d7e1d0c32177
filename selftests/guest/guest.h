/* SPDX-License-Identifier: GPL-2.0-only */
/* Types and prototypes of the tiny guest, by owning file. */
#ifndef GUEST_H
#define GUEST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "content.h"

#define PAGE_SIZE	4096u
#define MIB		(1u << 20)
#define RATE_MAX	UINT32_MAX
#define CPUS_MAX	8u	/* trampoline.S */
#define HIGH_MAX	512u	/* MiB */
#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

/* The compiler may not cache what a device writes. */
#define barrier()	__asm__ volatile("" ::: "memory")
#define relax()		__asm__ volatile("pause" ::: "memory")
#define READ_ONCE(x)	(*(const volatile __typeof__(x) *)&(x))

/* lib.c */
void *memset(void *to, int byte, size_t n);
void *memcpy(void *to, const void *from, size_t n);
int memcmp(const void *a, const void *b, size_t n);
size_t strlen(const char *s);
bool streq(const char *a, const char *b);
uint64_t div64(uint64_t n, uint32_t d);
uint32_t checksum(const void *at, size_t n);
void print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void report(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void die(const char *why) __attribute__((noreturn));
extern uint32_t errors;

/* serial.c */
void serial_init(void);
void serial_write(const char *s, size_t n);
enum { SERIAL_LINE = 100 };
bool serial_read_line(char line[SERIAL_LINE]);

/* time.c */
struct pace {
	uint32_t rate;		/* events per second, RATE_MAX: no limit */
	uint64_t last;
	uint64_t credit;
};
void time_init(void);
uint64_t tsc(void);
uint32_t tsc_khz(void);
uint32_t tsc_to_us(uint64_t cycles);
uint32_t tsc_to_ms(uint64_t cycles);
uint32_t pace_due(struct pace *p, uint32_t most);
void nap(void);

/* held.c */
enum { HELD_MAX = 512 };
struct held {
	const char *name;
	uint32_t pages, offset;		/* HELD_MAX at most; where in a page it holds something */
	uint32_t next, cursor;
	uint8_t *area;
	struct { uint32_t len, sum; } hold[HELD_MAX];
};
void held_init(struct held *h, const char *name, uint32_t pages, uint32_t offset);
uint8_t *held_page(const struct held *h, uint32_t page);
/* The next page, for the device to fill: it holds nothing until held_note(). */
uint32_t held_take(struct held *h);
void held_note(struct held *h, uint32_t page, uint32_t len);
void held_verify(struct held *h, uint32_t n);

/* mem.c */
struct multiboot_info;
void mem_init(const struct multiboot_info *mb);
void *mem_alloc(size_t n);
uintptr_t mem_end(void);
uint32_t mem_high_mib(void);

/* high.c */
void high_init(void);
void high_map(void);
void *high_window(void);

/* smp.c */
void smp_init(void);
void smp_each(void (*what)(uint32_t cpu));
void ap_main(uint32_t cpu) __attribute__((noreturn));

/* cmd.c */
struct options {
	uint32_t start, size, high, touch, ws;	/* MiB */
	uint32_t smp, rate, random, fill_bytes, zeros, net, fwd, diskio, ticks;
	struct pace verify, disk, rng, vga;
};
extern struct options opt;
void cmd_line(const char *line);
void cmd_poll(void);

/* pattern.c: what takes a vCPU's number runs on that vCPU */
struct pattern_counts {
	uint32_t writes, held, verified;	/* of all vCPUs */
	uint32_t least, sweeps;			/* of the one that has fewest */
};
void pattern_init(void);
void pattern_start(uint32_t cpu);
bool pattern_poll(uint32_t cpu);
void pattern_verify(uint32_t cpu, uint32_t pages);
void pattern_verify_all(uint32_t cpu);
void pattern_check_sum(uint32_t cpu);
void pattern_check_unwritten(uint32_t cpu);
void pattern_count(struct pattern_counts *c);

/* vblk.c, vrng.c, vnet.c, vser.c: a poll says whether it had anything to do */
void vblk_init(void), vrng_init(void), vnet_init(void), vser_init(void);
bool vblk_poll(void), vrng_poll(void), vnet_poll(void), vser_poll(void);
void vblk_verify(uint32_t n), vrng_verify(uint32_t n), vnet_verify(uint32_t n);
uint32_t vblk_count(void), vrng_count(void), vnet_count(void), vser_count(void);

/* vfwd.c */
enum { FWD_PAIRS = 2 };
void vfwd_init(void);
bool vfwd_poll(void);
uint32_t vfwd_count(void), vfwd_links(void);

/* vga.c */
bool vga_poll(void);
void vga_verify(void);
uint32_t vga_count(void);

/* main.c */
void main(uint32_t magic, const struct multiboot_info *mb);
void print_status(void);
void verify_all(void);
void check_unwritten(void);
void reboot(void) __attribute__((noreturn));

#endif
