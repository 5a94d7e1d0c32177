// SPDX-License-Identifier: GPL-2.0-only
/* The rows for how the RAM is read and written, and for its pages at both ends. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "check/check_internal.h"
#include "page/page.h"

void check_ram_access(const struct vm *vm, struct check *c)
{
	static const char name[] = "RAM access";
	unsigned int private = 0, memfds = 0;

	for (unsigned int i = 0; i < vm->nblocks; i++) {
		private += !!vm->blocks[i].hva;
		memfds += !vm->blocks[i].hva && vm->blocks[i].memfd;
	}
	if (!vm->nblocks)
		check_add(c, name, CHECK_UNKNOWN, "not checked: see above");
	else if (private)
		check_add(c, name, CHECK_OK,
			  "private: godwit copies from QEMU's process, and the device state takes save mode; memory-backend-file with share=on is faster where much of the RAM was never touched, and lets vhost-user map it");
	else if (memfds)
		check_add(c, name, CHECK_OK,
			  "memfd: godwit reads it as a file, and the device state takes save mode from QEMU 8.1 on; memory-backend-file with share=on is as fast, and migrate mode moves it as well");
	else
		check_add(c, name, CHECK_OK,
			  "shared file: godwit reads the file; no other kind of RAM is faster");
}

/* Of a number in an object; 0: it has none. */
static uint64_t number_of(const json_t *object, const char *name)
{
	json_int_t v = json_integer_value(json_object_get(object, name));

	return v > 0 ? (uint64_t)v : 0;
}

/* The destination's block of this size at this place, else of this name, as in save mode. */
static const json_t *find_there(const json_t *there, const struct ram_block *b)
{
	const json_t *host = json_object_get(json_object_get(there, "host"), "ram"), *address;
	json_t *block;
	const char *name;

	json_object_foreach((json_t *)host, name, block) {
		address = json_object_get(json_object_get(json_object_get(there, "ram"), name),
					  "address");
		if (json_is_integer(address) &&
		    (uint64_t)json_integer_value(address) == b->address &&
		    number_of(block, "bytes") == b->pages * PAGE_BYTES)
			return block;
	}
	return json_object_get(host, b->name);
}

static const char *page_text(uint64_t bytes, char *text, size_t size)
{
	if (bytes >= 1u << 30)
		snprintf(text, size, "%llu GiB", (unsigned long long)bytes >> 30);
	else if (bytes >= 1u << 20)
		snprintf(text, size, "%llu MiB", (unsigned long long)bytes >> 20);
	else
		snprintf(text, size, "%llu KiB", (unsigned long long)bytes >> 10);
	return text;
}

static void check_page_size(const struct ram_block *b, uint64_t there, struct check *c)
{
	char here_text[32], there_text[32];

	check_add(c, "page size", CHECK_WARNING,
		  "RAM \"%.100s\" has pages of %s here and of %s at the destination: %s", b->name,
		  page_text(b->page_size, here_text, sizeof(here_text)),
		  page_text(there, there_text, sizeof(there_text)),
		  b->page_size > there ?
			  "unless they become transparent huge pages, the kernel makes them one by one, which costs the receiver about twice the CPU time, and the guest misses its huge pages: give the destination QEMU huge pages (hugetlbfs) as well" :
			  "a touched page takes all of a huge page there, so the guest needs more memory, up to all of its RAM, and a later move back sends all of a huge page that a device has written to: give both QEMUs the same pages, or have enough huge pages free there");
}

void check_page_sizes(const struct vm *vm, const json_t *there, struct check *c)
{
	unsigned int known = 0;

	for (unsigned int i = 0; i < vm->nblocks; i++) {
		const struct ram_block *b = &vm->blocks[i];
		uint64_t size = number_of(find_there(there, b), "page-size");

		known += !!size;
		if (size && size != b->page_size) {
			check_page_size(b, size, c);
			return;
		}
	}
	/* An older receiver does not say. */
	if (known)
		check_add(c, "page size", CHECK_OK, "the same at both ends");
}
