// SPDX-License-Identifier: GPL-2.0-only
/*
 * Serial ports, polled. All is said on COM1. Commands are heard on COM1 and,
 * if there is one, on COM2: a reader of COM1 that is slow then delays no command.
 */
#include "guest.h"
#include "io.h"

enum {
	COM1		= 0x3f8,
	COM2		= 0x2f8,

	DATA		= 0,
	IER		= 1,
	FCR		= 2,
	LCR		= 3,
	MCR		= 4,
	LSR		= 5,
	SCRATCH		= 7,
	LSR_READY	= 0x01,
	LSR_EMPTY	= 0x20,
	FIFO_BYTES	= 16,
};

static struct input {
	uint16_t port;		/* 0: absent */
	uint8_t used;
	char line[SERIAL_LINE];
} inputs[2];

static uint16_t port_init(uint16_t port)
{
	outb(port + SCRATCH, 0x5a);
	if (inb(port + SCRATCH) != 0x5a)
		return 0;
	outb(port + IER, 0);
	outb(port + LCR, 0x80);
	outb(port + DATA, 1);		/* 115200 */
	outb(port + IER, 0);
	outb(port + LCR, 0x03);
	outb(port + FCR, 0x07);
	outb(port + MCR, 0x03);
	return port;
}

void serial_init(void)
{
	inputs[0].port = port_init(COM1);
	inputs[1].port = port_init(COM2);
}

void serial_write(const char *s, size_t n)
{
	size_t part;

	for (; n; n -= part, s += part) {
		part = n < FIFO_BYTES ? n : FIFO_BYTES;
		while (!(inb(COM1 + LSR) & LSR_EMPTY))
			;
		outsb(COM1 + DATA, s, part);
	}
}

static bool read_line(struct input *in, char *line)
{
	char c;

	while (inb(in->port + LSR) & LSR_READY) {
		c = inb(in->port + DATA);
		if (c != '\n' && c != '\r') {
			if (in->used < sizeof(in->line) - 1)
				in->line[in->used++] = c;
			continue;
		}
		if (!in->used)
			continue;
		memcpy(line, in->line, in->used);
		line[in->used] = '\0';
		in->used = 0;
		return true;
	}
	return false;
}

/* Collects over several calls; true when a whole line is in. */
bool serial_read_line(char line[SERIAL_LINE])
{
	uint32_t i;

	for (i = 0; i < ARRAY_SIZE(inputs); i++)
		if (inputs[i].port && read_line(&inputs[i], line))
			return true;
	return false;
}
