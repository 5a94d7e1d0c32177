// SPDX-License-Identifier: GPL-2.0-only
/* A session of /dev/godwit on a VM of our own. */
#include <fcntl.h>
#include <glob.h>
#include <linux/godwit.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench.h"

void session_open(struct session *s, struct vm *vm)
{
	struct godwit_attach attach = { .vm_fd = vm->fd };
	struct godwit_add_ram ram = { .fd = vm->ram_fd, .npages = vm->pages };
	struct godwit_start start = { 0 };

	s->fd = open("/dev/godwit", O_RDWR | O_CLOEXEC);
	if (s->fd < 0)
		die("/dev/godwit: %m");
	if (ioctl(s->fd, GODWIT_ATTACH, &attach) || ioctl(s->fd, GODWIT_ADD_RAM, &ram) ||
	    ioctl(s->fd, GODWIT_START, &start))
		die("a session does not start: %m");
	s->bytes = ram.map_bytes;
	s->pages = ram.npages;
	s->map = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, (off_t)ram.map_offset);
	if (s->map == MAP_FAILED)
		die("mmap of a session: %m");
}

void session_harvest(struct session *s)
{
	struct godwit_harvest h = { 0 };

	if (ioctl(s->fd, GODWIT_HARVEST, &h))
		die("GODWIT_HARVEST: %m");
}

void session_clear(struct session *s)
{
	struct godwit_range all = { .npages = s->pages };

	if (ioctl(s->fd, GODWIT_CLEAR, &all))
		die("GODWIT_CLEAR: %m");
}

void session_forget(struct session *s)
{
	memset(s->map, 0, s->bytes);
}

uint64_t session_take(struct session *s)
{
	uint64_t n = 0;

	for (uint64_t k = 0; k < s->bytes / 8; k++)
		n += (uint64_t)__builtin_popcountll(s->map[k]);
	session_forget(s);
	return n;
}

uint64_t session_stat(const char *name)
{
	unsigned long long value;
	char pattern[128];
	glob_t found;
	FILE *f;

	snprintf(pattern, sizeof(pattern), "/sys/class/misc/godwit/sessions/*/%s", name);
	if (glob(pattern, 0, NULL, &found) || found.gl_pathc != 1)
		die("%s is not there once", pattern);
	f = fopen(found.gl_pathv[0], "re");
	if (!f || fscanf(f, "%llu", &value) != 1)
		die("%s: %m", pattern);
	fclose(f);
	globfree(&found);
	return value;
}

static bool any_left(void)
{
	glob_t found;
	bool any = !glob("/sys/class/misc/godwit/sessions/*", 0, NULL, &found);

	globfree(&found);
	return any;
}

void session_close(struct session *s)
{
	munmap(s->map, s->bytes);
	close(s->fd);
}

void session_wait_retired(void)
{
	for (unsigned int i = 0; any_left(); i++) {
		if (i == 3000)
			die("a session has not retired after 30 s");
		sleep_ms(10);
	}
}
