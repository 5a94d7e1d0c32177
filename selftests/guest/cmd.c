// SPDX-License-Identifier: GPL-2.0-only
/*
 * Options, the same words on the multiboot command line and on the serial
 * port: key=value, or a verb. The table below is their documentation.
 */
#include "guest.h"

struct options opt = {
	.start = 16,
	.smp = 1,
	.ticks = 4,
	.fill_bytes = PAGE_SIZE,
	.diskio = 1,
	.verify.rate = 1000,
};

static const struct key {
	const char *name;
	uint32_t *value;
	uint32_t least, most;
	enum { LIVE, AT_BOOT } when;
} keys[] = {
	/* MiB: the pattern's region (size 0: up to the end of what is below 4 GiB; so much above it) */
	{ "start",	&opt.start,		2, 3071, AT_BOOT },
	{ "size",	&opt.size,		0, 3071, AT_BOOT },
	{ "high",	&opt.high,		0, HIGH_MAX, AT_BOOT },
	/* MiB: prefilled part, working set (0: all), from the beginning of the region */
	{ "touch",	&opt.touch,		0, 3071, AT_BOOT },
	{ "ws",		&opt.ws,		0, 3071, LIVE },
	/* vCPUs that write, each to its share of region, prefilled part and working set */
	{ "smp",	&opt.smp,		1, CPUS_MAX, AT_BOOT },
	/* page writes per second, pages verified per second, of each vCPU */
	{ "rate",	&opt.rate,		0, RATE_MAX, LIVE },
	{ "verify",	&opt.verify.rate,	0, RATE_MAX, LIVE },
	/* 1: pseudo-random order */
	{ "random",	&opt.random,		0, 1, LIVE },
	/* bytes written of each page */
	{ "fill",	&opt.fill_bytes,	16, PAGE_SIZE, AT_BOOT },
	/* every n-th write clears its page, 0: none does */
	{ "zeros",	&opt.zeros,		0, RATE_MAX, LIVE },
	/* reads per second, pages per read */
	{ "disk",	&opt.disk.rate,		0, RATE_MAX, LIVE },
	{ "diskio",	&opt.diskio,		1, 16, AT_BOOT },
	{ "rng",	&opt.rng.rate,		0, RATE_MAX, LIVE },
	/* counts a second on the display, where there is one */
	{ "vga",	&opt.vga.rate,		0, RATE_MAX, LIVE },
	/* tick lines per second; 4 is what e2e/lab.py counts on (TICKS) */
	{ "ticks",	&opt.ticks,		1, 100, LIVE },
	/* 1: receive frames */
	{ "net",	&opt.net,		0, 1, AT_BOOT },
	/* forward frames between two cards of so many queue pairs */
	{ "fwd",	&opt.fwd,		0, FWD_PAIRS, AT_BOOT },
};

static const struct verb {
	const char *name;
	void (*run)(void);
} verbs[] = {
	{ "status",	print_status },
	{ "reboot",	reboot },
	{ "verify",	verify_all },
	{ "unwritten",	check_unwritten },
};

static bool running;

static bool parse_number(const char *s, uint32_t *v)
{
	uint64_t n = 0;

	if (streq(s, "max")) {
		*v = RATE_MAX;
		return true;
	}
	if (!*s)
		return false;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return false;
		n = n * 10 + (*s - '0');
		if (n > UINT32_MAX)
			return false;
	}
	*v = n;
	return true;
}

static bool set(const char *name, const char *value)
{
	const struct key *k;
	uint32_t v;

	for (k = keys; k < keys + ARRAY_SIZE(keys); k++) {
		if (!streq(k->name, name))
			continue;
		if (k->when == AT_BOOT && running)
			return false;
		if (!parse_number(value, &v) || v < k->least || v > k->most)
			return false;
		*k->value = v;
		return true;
	}
	return false;
}

static bool do_word(const char *word)
{
	char name[64];
	const struct verb *v;
	size_t n;

	for (n = 0; word[n]; n++) {
		if (word[n] != '=')
			continue;
		memcpy(name, word, n);
		name[n] = '\0';
		return set(name, word + n + 1);
	}
	for (v = verbs; running && v < verbs + ARRAY_SIZE(verbs); v++) {
		if (!streq(v->name, word))
			continue;
		v->run();
		return true;
	}
	return false;
}

void cmd_line(const char *line)
{
	char word[64];
	size_t n;

	while (*line) {
		for (n = 0; *line && *line != ' '; line++)
			if (n < sizeof(word) - 1)
				word[n++] = *line;
		word[n] = '\0';
		while (*line == ' ')
			line++;
		if (!n)
			continue;
		if (!do_word(word))
			print("refused: %s", word);
		else if (running)
			print("done: %s", word);
	}
}

void cmd_poll(void)
{
	char line[SERIAL_LINE];

	running = true;
	while (serial_read_line(line))
		cmd_line(line);
}
