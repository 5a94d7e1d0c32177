// SPDX-License-Identifier: GPL-2.0-only
/* What a freestanding program must bring itself, and the error counter. */
#include "guest.h"

enum { REPORT_LINES = 20 };

uint32_t errors;
static uint32_t serial_busy;	/* a vCPU says a line */

void *memset(void *to, int byte, size_t n)
{
	void *p = to;

	__asm__ volatile("rep stosb" : "+D"(p), "+c"(n) : "a"(byte) : "memory");
	return to;
}

void *memcpy(void *to, const void *from, size_t n)
{
	void *p = to;

	__asm__ volatile("rep movsb" : "+D"(p), "+S"(from), "+c"(n) :: "memory");
	return to;
}

int memcmp(const void *a, const void *b, size_t n)
{
	const unsigned char *p = a, *q = b;

	for (; n; n--, p++, q++)
		if (*p != *q)
			return *p - *q;
	return 0;
}

size_t strlen(const char *s)
{
	size_t n = 0;

	while (s[n])
		n++;
	return n;
}

bool streq(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

/* 32-bit libgcc is not there to link with. */
uint64_t div64(uint64_t n, uint32_t d)
{
	uint32_t high = n >> 32, low = n, qh = high / d, rem = high % d, ql;

	__asm__("divl %4" : "=a"(ql), "=d"(rem) : "0"(low), "1"(rem), "r"(d));
	return (uint64_t)qh << 32 | ql;
}

uint32_t checksum(const void *at, size_t n)
{
	const unsigned char *p = at;
	uint32_t sum = 0x811c9dc5u, w;

	for (; n >= sizeof(w); n -= sizeof(w), p += sizeof(w)) {
		__builtin_memcpy(&w, p, sizeof(w));
		sum = (sum ^ w) * 0x01000193u;
		sum ^= sum >> 15;
	}
	for (; n; n--)
		sum = (sum ^ *p++) * 0x01000193u;
	return sum;
}

static char *put_number(char *to, uint32_t v, unsigned int base)
{
	char digits[12];
	unsigned int n = 0;

	do {
		digits[n++] = "0123456789abcdef"[v % base];
		v /= base;
	} while (v);
	while (n)
		*to++ = digits[--n];
	return to;
}

static void say(const char *line, size_t n)
{
	while (__atomic_exchange_n(&serial_busy, 1, __ATOMIC_ACQUIRE))
		relax();
	serial_write(line, n);
	__atomic_store_n(&serial_busy, 0, __ATOMIC_RELEASE);
}

/* %u %x %s only. A line leaves in one piece, so lines never interleave. */
static void vprint(const char *prefix, const char *fmt, va_list args)
{
	char line[512], *to = line, *end = line + sizeof(line) - 16;
	const char *s;

	while (*prefix)
		*to++ = *prefix++;
	for (; *fmt && to < end; fmt++) {
		if (*fmt != '%') {
			*to++ = *fmt;
			continue;
		}
		switch (*++fmt) {
		case 'u':
			to = put_number(to, va_arg(args, uint32_t), 10);
			break;
		case 'x':
			to = put_number(to, va_arg(args, uint32_t), 16);
			break;
		case 's':
			for (s = va_arg(args, const char *); *s && to < end; s++)
				*to++ = *s;
			break;
		}
	}
	*to++ = '\n';
	say(line, to - line);
}

void print(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vprint("", fmt, args);
	va_end(args);
}

/* An error stays: the count is in every tick line, the reason is said once. */
void report(const char *fmt, ...)
{
	va_list args;

	if (__atomic_fetch_add(&errors, 1, __ATOMIC_RELAXED) >= REPORT_LINES)
		return;
	va_start(args, fmt);
	vprint("error: ", fmt, args);
	va_end(args);
}

void die(const char *why)
{
	__atomic_fetch_add(&errors, 1, __ATOMIC_RELAXED);
	print("fatal: %s", why);
	for (;;)
		__asm__ volatile("cli; hlt");
}
