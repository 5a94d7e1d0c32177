// SPDX-License-Identifier: GPL-2.0-only
/* Which block of the receiver's is which of the sender's: in save mode by its place in the guest, else by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/clock.h"
#include "channel_rig.h"
#include "net/sock.h"
#include "receive/receiver_internal.h"

#define MAX	3u

/* Blocks at either end: "ram0 8 @0", 8 pages at guest address 0; "@?": it is not known; "!": memory of QEMU's own. */
struct ends {
	const char *src, *dst;
	bool save_mode;
};

static bool takes_over, numbered;	/* --recover; by a note */

static unsigned int parse(const char *text, struct ram_block *blocks)
{
	unsigned int n = 0;
	int len;

	for (; *text; text += len + strspn(text + len, ", "), n++) {
		char address[32];

		blocks[n] = (struct ram_block) { .address = WIRE_NO_ADDRESS, .fd = -1 };
		assert_int_equal(sscanf(text, "%15s %" SCNu64 " @%31[0-9a-fx?]%n", blocks[n].name, &blocks[n].pages, address, &len), 3);
		if (*address != '?')
			blocks[n].address = strtoull(address, NULL, 0);
		blocks[n].hva = text[len] == '!';
		len += text[len] == '!';
	}
	return n;
}

/* In the order of the sender, the names at the receiver: "ram1 ram0 ". */
static enum gw_exit agree(const struct ends *ends, char *order, struct err *e)
{
	struct receiver_options o = { .timeout_ms = TIMEOUT_MS, .recover = takes_over };
	struct receiver r = { .o = &o, .lfd = -1, .save_mode = ends->save_mode, .numbered = numbered };
	struct wire_header h = { .type = WIRE_BLOCKS };
	struct ram_block src[MAX];
	struct wire_block theirs[MAX];
	uint8_t body[1024];
	int pair[2], ret;

	h.arg = parse(ends->src, src);
	for (unsigned int i = 0; i < h.arg; i++) {
		theirs[i] = (struct wire_block) { .pages = src[i].pages, .address = src[i].address, .page_size = 4096 };
		strcpy(theirs[i].name, src[i].name);
	}
	r.vm.nblocks = parse(ends->dst, r.vm.blocks);
	h.length = (uint32_t)wire_blocks_size(theirs, h.arg);
	wire_put_blocks(body, theirs, h.arg);
	memset(e, 0, sizeof(*e));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(channel_new(pair[0], engine, TIMEOUT_MS, &r.ch, e), 0);
	assert_int_equal(sock_send(pair[1], body, h.length, deadline_ms(1000)), 0);
	ret = agree_ram(&r, &h, e);
	assert_int_equal(ret < 0, e->exit != GW_OK);
	*order = '\0';
	for (unsigned int i = 0; i < r.vm.nblocks; i++)
		strcat(strcat(order, r.vm.blocks[i].name), " ");
	channel_free(r.ch);
	close(pair[1]);
	return e->exit;
}

static void test_same(void **state)
{
	static const struct {
		struct ends ends;
		const char *order;
	} cases[] = {
		/* By name, as they are sorted by id at either end. */
		{ { "ram0 8 @?, ram1 9 @?", "ram0 8 @?, ram1 9 @?", false }, "ram0 ram1 " },
		{ { "b 8 @?, a 9 @?", "a 9 @?, b 8 @?", false }, "b a " },
		/* An older sender does not say where they are, nor need it. */
		{ { "b 8 @?, a 8 @?", "a 8 @0, b 8 @0x8000", true }, "b a " },
		/* Names are a matter of the command line: by size and place. */
		{ { "pc.ram 8 @0", "ram0 8 @0", true }, "ram0 " },
		{ { "pc.ram 8 @0", "ram0 8 @0!", true }, "ram0 " },
		{ { "n0 8 @0, n1 8 @0x8000", "a 8 @0x8000, b 8 @0", true }, "b a " },
		{ { "x 8 @0, same 8 @0x8000, y 9 @0x10000", "p 9 @0x10000, q 8 @0, same 8 @0x8000", true }, "q same p " },
		/* A name that stands elsewhere is another block's, if there is one in its place. */
		{ { "a 8 @0, b 8 @0x8000", "a 8 @0x8000, b 8 @0", true }, "b a " },
		{ { "x 8 @0, ram0 8 @0x8000", "ram0 8 @0, y 8 @0x8000", true }, "ram0 y " },
		/* A name is worth more than nothing where the place is not known, whichever comes first. */
		{ { "a 9 @?, b 8 @0", "a 9 @0x8000, c 8 @0", true }, "a c " },
		{ { "b 8 @0, a 9 @?", "a 9 @0x8000, c 8 @0", true }, "c a " },
		/* What the guest gives its place has none at the receiver yet. */
		{ { "pipe 7 @0xfe000000, ram0 8 @0", "ram0 8 @0, tube 7 @?", true }, "tube ram0 " },
		/* QEMU's own migration goes by names, and compares places itself. */
		{ { "a 8 @0, b 8 @0x8000", "a 8 @0x8000, b 8 @0", false }, "a b " },
	};
	char order[64];
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (agree(&cases[i].ends, order, &e))
			fail_msg("case %zu: %s", i, e.text);
		assert_string_equal(order, cases[i].order);
	}
}

static void test_other(void **state)
{
	static const struct {
		struct ends ends;
		const char *part;
	} cases[] = {
		{ { "ram0 8 @0", "ram0 8 @0, ram1 8 @?", true }, "the source has 1 RAM blocks and the destination 2" },
		{ { "ram0 2048 @0", "ram0 1024 @0", true }, "8 MiB at the source and 4 MiB at the destination" },
		/* QEMU's own migration goes by names. */
		{ { "pc.ram 8 @0", "ram0 8 @0", false }, "none of that name: use the same id=" },
		{ { "ram0 8 @0", "ram0 8 @0!", false }, "private to the destination QEMU" },
		/* It is not known where it is, or it is elsewhere, or of another size. */
		{ { "pc.ram 8 @?", "ram0 8 @0", true }, "nor one of its size at its guest address" },
		{ { "pc.ram 8 @?", "ram0 8 @?", true }, "nor one of its size at its guest address" },
		{ { "pc.ram 8 @0", "ram0 8 @0x1000", true }, "nor one of its size at its guest address" },
		{ { "pc.ram 8 @0", "ram0 9 @0", true }, "nor one of its size at its guest address" },
		/* The names agree, and the guest would find its memory in another place. */
		{ { "a 8 @0", "a 8 @0x8000", true },
		  "\"a\" begins at guest address 0x0 at the source and at 0x8000 at the destination" },
		{ { "a 8 @0, b 8 @0x8000", "a 8 @0x10000, b 8 @0", true },
		  "a RAM block \"b\" and the destination has none" },
		/* Nor is one that has its place another's by name. */
		{ { "a 8 @?, b 8 @0", "a 8 @0, c 8 @0x8000", true }, "a RAM block \"a\" and the destination has none" },
		/* No block stands for two. */
		{ { "x 8 @0, y 8 @0", "ram0 8 @0, ram1 8 @0x8000", true }, "nor one of its size" },
		{ { "x 8 @0, a 8 @?", "a 8 @0, y 8 @0x8000", true }, "a RAM block \"a\" and the destination has none" },
	};
	char order[64];
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(agree(&cases[i].ends, order, &e), GW_RAM_DIFFERS);
		if (!strstr(e.text, cases[i].part))
			fail_msg("case %zu: %s", i, e.text);
	}
}

/* The guest runs here, and in which mode it has come only a note says: without one places decide as well. */
static void test_takes_over(void **state)
{
	static const struct {
		struct ends ends;
		bool noted;
		const char *order;	/* or a part of what is wrong */
	} cases[] = {
		{ { "a 8 @0, b 8 @0x8000", "a 8 @0x8000, b 8 @0", false }, false, "b a " },
		{ { "mem0 8 @0", "ram0 8 @0", false }, false, "ram0 " },
		{ { "a 8 @0, b 8 @0x8000", "b 8 @0x8000, a 8 @0", false }, false, "a b " },
		{ { "a 8 @0", "a 8 @0x8000", false }, false, "\"a\" begins at guest address 0x0 at the source and at 0x8000" },
		/* An older sender does not say where they are. */
		{ { "a 8 @?, b 8 @?", "b 8 @0x8000, a 8 @0", false }, false, "a b " },
		/* What the guest gives its place: by size only where none is another's. */
		{ { "pipe 7 @0xfe000000, ram0 8 @0", "ram0 8 @0, tube 7 @?", false }, false, "tube ram0 " },
		{ { "p 7 @0xfe000000, q 7 @0xfd000000", "q 7 @?, p 7 @?", false }, false, "p q " },
		{ { "p 7 @0xfe000000, q 7 @0xfd000000", "x 7 @?, y 7 @?", false }, false, "a RAM block \"p\" and the destination has none" },
		/* In migrate mode names decide, as in QEMU. */
		{ { "a 8 @0, b 8 @0x8000", "a 8 @0x8000, b 8 @0", false }, true, "a b " },
		{ { "a 8 @0, b 8 @0x8000", "b 8 @0, a 8 @0x8000", true }, true, "b a " },
	};
	char order[64];
	struct err e;

	(void)state;
	takes_over = true;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		numbered = cases[i].noted;
		agree(&cases[i].ends, order, &e);
		if (e.exit ? !strstr(e.text, cases[i].order) : strcmp(order, cases[i].order))
			fail_msg("case %zu: %s%s", i, order, e.text);
	}
	takes_over = numbered = false;
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_same),
	cmocka_unit_test(test_takes_over),
	cmocka_unit_test(test_other),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
