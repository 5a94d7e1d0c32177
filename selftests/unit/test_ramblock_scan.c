// SPDX-License-Identifier: GPL-2.0-only
/* RAM blocks in a heap that we have made: what is believed, and what is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "vmm/ramblock_scan.h"

#define MIB	(1ull << 20)
#define NAME_AT	36u	/* as in QEMU 7.2 */
#define HEAP	16384u

static struct {
	_Alignas(8) uint8_t heap[HEAP];
	struct ramblocks all;
	struct scan_found found[RAMBLOCKS_MAX];
	struct proc_map map[4];
} t;

/* The name of the block that was not believed; "": all were. */
static const char *refused_for(const char *what)
{
	static char name[WIRE_NAME_MAX + 1];
	const struct proc_maps maps = { t.map, 4 };
	struct ramblocks all = t.all;

	memset(t.found, 0, sizeof(t.found));
	ramblock_scan(t.heap, HEAP, &maps, &all, t.found);
	*name = '\0';
	if (ramblock_scan_judge(&all, t.found)) {
		t.all = all;
		return name;
	}
	for (unsigned int i = 0; i < all.n; i++)
		assert_int_equal(all.b[i].hva, t.all.b[i].hva);
	if (!strstr(all.why, what))
		print_message("not \"%s\": %s\n", what, all.why);
	assert_non_null(strstr(all.why, what));
	if (sscanf(all.why, "RAM block \"%255[^\"]", name) != 1)
		strcpy(name, "?");
	return name;
}

static void put(size_t at, const struct ramblock *b, uint64_t hva, unsigned int name_at)
{
	const uint64_t words[] = { hva, 0, b->offset, b->bytes, b->max };

	memcpy(t.heap + at, words, sizeof(words));
	memcpy(t.heap + at + 16 + name_at, b->name, strlen(b->name) + 1);
}

/* As it is: the guest's RAM, a display's, a file that may grow, of which the monitor tells the first. */
static int setup(void **state)
{
	static const struct ramblock blocks[] = {
		{ "pc.ram", 0, 64 * MIB, 64 * MIB, 0x7f0000000000 },
		{ "0000:00:01.0/vga.vram", 0x4080000, 16 * MIB, 16 * MIB, 0 },
		{ "/rom@etc/acpi/tables", 0x50c0000, 0x20000, 2 * MIB, 0 },
	};
	static const struct proc_map maps[] = {
		{ .start = 0x7e0000000000, .end = 0x7e0000000000 + 3 * MIB, .writable = true },
		/* One after the other, with other attributes. */
		{ .start = 0x7f0000000000, .end = 0x7f0000000000 + MIB, .writable = true },
		{ .start = 0x7f0000000000 + MIB, .end = 0x7f0000000000 + 80 * MIB, .writable = true },
		{ .start = 0x7f0000000000 + 80 * MIB, .end = 0x7f0000000000 + 90 * MIB },
	};

	(void)state;
	memset(&t, 0, sizeof(t));
	memcpy(t.all.b, blocks, sizeof(blocks));
	t.all.n = 3;
	memcpy(t.map, maps, sizeof(maps));
	put(1000, &t.all.b[0], 0x7f0000000000, NAME_AT);
	put(4096, &t.all.b[1], 0x7f0000000000 + 64 * MIB, NAME_AT);
	put(9008, &t.all.b[2], 0x7e0000000000, NAME_AT);
	return 0;
}

static void test_found(void **state)
{
	(void)state;
	assert_string_equal(refused_for(""), "");
	assert_int_equal(t.all.b[0].hva, 0x7f0000000000);
	assert_int_equal(t.all.b[1].hva, 0x7f0000000000 + 64 * MIB);
	assert_int_equal(t.all.b[2].hva, 0x7e0000000000);
	/* Found twice, the same: a copy, or parts of the heap that overlap. */
	put(12000, &t.all.b[2], 0x7e0000000000, NAME_AT);
	assert_string_equal(refused_for(""), "");
	t.all.b[0].hva = 0;
	t.all.b[1].hva = t.all.b[2].hva = 0;
	assert_string_equal(refused_for("proves"), "?");
}

static void test_two_candidates(void **state)
{
	(void)state;
	/* The guest, or what was left behind; the last one is not the true one by being last. */
	put(12000, &t.all.b[1], 0x7f0000000000, NAME_AT);
	assert_string_equal(refused_for("in two places"), t.all.b[1].name);
	setup(NULL);
	put(104, &t.all.b[2], 0x7e0000000000 + MIB, NAME_AT);
	assert_string_equal(refused_for("in two places"), t.all.b[2].name);
	/* One address, but one of both is no such struct. */
	setup(NULL);
	put(12000, &t.all.b[2], 0x7e0000000000, 80);
	assert_string_equal(refused_for("in two places"), t.all.b[2].name);
	/* Another block's, as QEMU has moved one. */
	setup(NULL);
	put(12000, &t.all.b[0], 0x7e0000000000 + 4096, NAME_AT);
	assert_string_equal(refused_for(""), "");	/* which is not writable: see test_outside */
}

static void test_outside_of_mappings(void **state)
{
	static const uint64_t wrong[] = {
		0, 8, 4096, 0x7e0000000000 - 4096, 0x7e0000000000 + MIB + 4096, 0x7e0000000008,
		0x7f0000000000 + 78 * MIB + 4096, 0x7f0000000000 + 80 * MIB, UINT64_MAX - 4095,
		UINT64_MAX,
	};

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		setup(NULL);
		put(9008, &t.all.b[2], wrong[i], NAME_AT);
		assert_string_equal(refused_for("not found"), t.all.b[2].name);
		/* It is no candidate beside the true one. */
		put(12000, &t.all.b[2], 0x7e0000000000 + MIB, NAME_AT);
		assert_string_equal(refused_for(""), "");
		assert_int_equal(t.all.b[2].hva, 0x7e0000000000 + MIB);
	}
	/* What is in use would fit, what it may grow to does not. */
	setup(NULL);
	t.map[0].end = t.map[0].start + MIB;
	assert_string_equal(refused_for("not found"), t.all.b[2].name);
}

static void test_wrong_name(void **state)
{
	static const char *const names[] = {
		"/rom@etc/acpi/table", "/rom@etc/acpi/tablesX", "rom@etc/acpi/tables", "", "0000:00:01.0/vga.vram",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		setup(NULL);
		memset(t.heap + 9008, 0, 512);
		put(9008, &t.all.b[2], 0x7e0000000000, NAME_AT);
		memset(t.heap + 9008 + 16 + NAME_AT, 0, 64);
		strcpy((char *)t.heap + 9008 + 16 + NAME_AT, names[i]);
		assert_string_equal(refused_for("not found"), t.all.b[2].name);
	}
	/* Too far away, and not where the others have it. */
	setup(NULL);
	memset(t.heap + 9008, 0, 512);
	put(9008, &t.all.b[2], 0x7e0000000000, 512 - (unsigned int)strlen(t.all.b[2].name));
	assert_string_equal(refused_for("not found"), t.all.b[2].name);
	setup(NULL);
	memset(t.heap + 9008, 0, 512);
	put(9008, &t.all.b[2], 0x7e0000000000, NAME_AT + 4);
	assert_string_equal(refused_for("does not fit"), t.all.b[2].name);
	/* The wrong numbers: another block of that name was there. */
	for (int i = 0; i < 3; i++) {
		uint64_t *word;

		setup(NULL);
		word = (void *)(t.heap + 9008 + 16 + 8 * i);
		*word += 4096;
		assert_string_equal(refused_for("not found"), t.all.b[2].name);
	}
}

/* All that the heap has of the block ends before the end of its name, or of its numbers. */
static void test_cut_off(void **state)
{
	const struct proc_maps maps = { t.map, 4 };
	size_t name_end;
	uint8_t *cut;

	(void)state;
	name_end = 9008 + 16 + NAME_AT + strlen(t.all.b[2].name) + 1;
	for (size_t len = 9008; len <= name_end; len++) {
		cut = malloc(len);	/* so that ASan sees a step too far */
		memcpy(cut, t.heap, len);
		memset(t.found, 0, sizeof(t.found));
		ramblock_scan(cut, len, &maps, &t.all, t.found);
		assert_int_equal(t.found[1].hva, 0x7f0000000000 + 64 * MIB);
		assert_int_equal(t.found[2].hva, len == name_end ? 0x7e0000000000 : 0);
		free(cut);
	}
	for (size_t len = 0; len < 64; len++) {
		memset(t.found, 0, sizeof(t.found));
		ramblock_scan(t.heap, len, &maps, &t.all, t.found);
		assert_int_equal(t.found[0].hva, 0);
	}
	/* In two parts that overlap one of both has it whole, wherever the cut is. */
	for (size_t len = SCAN_OVERLAP; len < HEAP - SCAN_OVERLAP; len += 8) {
		size_t next = len - SCAN_OVERLAP;

		memset(t.found, 0, sizeof(t.found));
		ramblock_scan(t.heap, len, &maps, &t.all, t.found);
		ramblock_scan(t.heap + next, HEAP - next, &maps, &t.all, t.found);
		for (int i = 0; i < 3; i++)
			assert_true(t.found[i].hva && !t.found[i].twice && t.found[i].name_at == NAME_AT);
	}
}

/* Contents that the guest may choose. */
static void test_hostile(void **state)
{
	const struct proc_maps maps = { t.map, 4 };

	(void)state;
	/* It contradicts the monitor, where nothing else is known. */
	memset(t.heap + 1000, 0, 512);
	put(1000, &t.all.b[0], 0x7f0000000000 + 8 * MIB, NAME_AT);
	assert_string_equal(refused_for("another address"), t.all.b[0].name);
	/* In the midst of another block. */
	setup(NULL);
	memset(t.heap + 9008, 0, 512);
	put(9008, &t.all.b[2], 0x7f0000000000 + 63 * MIB, NAME_AT);
	assert_string_equal(refused_for("does not fit"), t.all.b[2].name);
	/* Places without end. */
	setup(NULL);
	for (size_t at = 0; at + 64 < HEAP; at += 64)
		put(at, &t.all.b[at / 64 % 3], 0x7f0000000000 + (at / 64 & 1) * MIB, 24);
	assert_string_equal(refused_for("in two places"), "pc.ram");
	memset(t.heap, 0xff, HEAP);
	assert_string_equal(refused_for("not found"), "pc.ram");
	srand(1);
	for (int i = 0; i < 200; i++) {
		for (size_t at = 0; at < HEAP; at += 8)
			memcpy(t.heap + at, &(uint64_t) { (uint64_t)(rand() % 64) << 20 }, 8);
		memset(t.found, 0, sizeof(t.found));
		ramblock_scan(t.heap, HEAP, &maps, &t.all, t.found);
		for (int k = 0; k < 3; k++)
			assert_int_equal(t.found[k].hva, 0);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup(test_found, setup),
	cmocka_unit_test_setup(test_two_candidates, setup),
	cmocka_unit_test_setup(test_outside_of_mappings, setup),
	cmocka_unit_test_setup(test_wrong_name, setup),
	cmocka_unit_test_setup(test_cut_off, setup),
	cmocka_unit_test_setup(test_hostile, setup),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
