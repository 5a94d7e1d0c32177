// SPDX-License-Identifier: GPL-2.0-only
/* Where QEMU says that RAM lies in the guest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "qmp_peer.h"
#include "vmm/mtree.h"

#define TREE \
	"address-space: memory\r\n" \
	"  0000000000000000-ffffffffffffffff (prio 0, i/o): system\r\n" \
	"    0000000000000000-0000000007ffffff (prio 0, ram): alias ram-below-4g @pc.ram 0000000000000000-0000000007ffffff\r\n" \
	"    00000000fffc0000-00000000ffffffff (prio 0, rom): pc.bios\r\n" \
	"      0000000100000000-0000000107ffffff (prio 0, ram): dimm\r\n" \
	"\r\n" \
	"memory-region: pc.ram\r\n" \
	"  0000000000000000-000000000fffffff (prio 0, ram): pc.ram\r\n" \
	"    0000000000000000-0000000007ffffff (prio 0, ram): ram0\r\n" \
	"    0000000008000000-000000000fffffff (prio -1, ram): /objects/ram1\r\n" \
	"    0000000030000000-000000003fffffff (prio 0, i/o): ram2\r\n"

static void test_found(void **state)
{
	static const struct {
		const char *name;
		uint64_t address;
	} there[] = { { "dimm", 0x100000000 }, { "ram0", 0 }, { "ram1", 0x8000000 }, { "pc.ram", 0 } };
	uint64_t address;

	(void)state;
	for (size_t i = 0; i < sizeof(there) / sizeof(there[0]); i++) {
		address = 1;
		assert_true(mtree_address(TREE, there[i].name, &address));
		assert_int_equal(address, there[i].address);
	}
	/* It ends where the text does. */
	assert_true(mtree_address(" 0000000000001000-0000000000001fff (prio 0, ram): x", "x", &address));
	assert_int_equal(address, 4096);
}

static void test_not_found(void **state)
{
	static const char *const no[] = { "ram2", "pc.bios", "ram", "am0", "system", "", "alias", "dimm\r" };
	char line[2 * WIRE_NAME_MAX + 600];
	uint64_t address;

	(void)state;
	for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
		assert_false(mtree_address(TREE, no[i], &address));
	assert_false(mtree_address("", "ram0", &address));
	assert_false(mtree_address("\r\n\r\n", "ram0", &address));
	assert_false(mtree_address("(prio 0, ram): ram0", "ram0", &address));
	assert_false(mtree_address("0000000000000000-x (prio 0, ram): ram0", "ram0", &address));
	/* A line that is too long names no region, and the next one is found. */
	memset(line, 'a', sizeof(line));
	strcpy(line + sizeof(line) - 60, "\n 0000000000001000-0000000000001fff (prio 0, ram): ram0");
	assert_true(mtree_address(line, "ram0", &address));
	assert_int_equal(address, 4096);
}

static void ask_one(const struct peer_answer *qemu, struct vm *vm, int want)
{
	struct err e = { 0 };
	struct peer p;
	struct qmp *q = peer_qemu(&p, qemu, &e);

	assert_non_null(q);
	assert_int_equal(mtree_query(q, vm, &e), want);
	peer_qemu_end(&p, q);
	assert_string_equal(p.missed, "");
}

static void ask(const char *answer, struct vm *vm, int want)
{
	const struct peer_answer qemu[] = { { "human-monitor-command", "info mtree", answer }, { NULL, NULL, NULL } };

	ask_one(qemu, vm, want);
}

static void test_asked(void **state)
{
	struct vm vm = { .nblocks = 2, .blocks = { { .name = "ram0", .address = 7 }, { .name = "ram9" } } };

	(void)state;
	ask("\"    0000000000010000-0000000007ffffff (prio 0, ram): ram0\\r\\n\"", &vm, 0);
	assert_int_equal(vm.blocks[0].address, 65536);
	assert_true(vm.blocks[1].address == WIRE_NO_ADDRESS);
	/* What does not answer so knows no address, and that is no error. */
	ask("{}", &vm, 0);
	assert_true(vm.blocks[0].address == WIRE_NO_ADDRESS);
}

/* Parts of it are shown, by aliases; its own region, which nothing shows as a whole, begins at 0. */
static void test_shown_in_parts(void **state)
{
	static const struct peer_answer qemu[] = {
		{ "human-monitor-command", "info mtree",
		  "\"    0000000100000000-000000017fffffff (prio 0, i/o): virtio-mem\\r\\n"
		  "      0000000100000000-000000013fffffff (prio 0, ram): alias virtio-mem-memslot @ram1 0000000000000000-000000003fffffff\\r\\n"
		  "memory-region: ram1\\r\\n  0000000000000000-000000007fffffff (prio 0, ram): ram1\\r\\n"
		  "memory-region: ram0\\r\\n  0000000000000000-000000007fffffff (prio 0, ram): ram0\\r\\n\"" },
		{ "query-memory-devices", "",
		  "[{\"type\": \"dimm\", \"data\": {\"addr\": 1, \"memdev\": \"/objects/ram0\"}},"
		  " {\"type\": \"virtio-mem\", \"data\": {\"memaddr\": 4294967296, \"memdev\": \"/objects/ram1\"}},"
		  " {\"type\": \"virtio-mem\", \"data\": {\"memaddr\": 8589934592, \"memdev\": \"/objects/ram2\"}}]" },
		{ NULL, NULL, NULL }
	};
	struct vm vm = { .nblocks = 3, .blocks = { { .name = "ram0" }, { .name = "ram1" }, { .name = "ram2" } } };

	(void)state;
	ask_one(qemu, &vm, 0);
	assert_int_equal(vm.blocks[0].address, 0);
	assert_int_equal(vm.blocks[1].address, 1ull << 32);
	assert_int_equal(vm.blocks[2].address, 2ull << 32);	/* of which nothing is shown yet */
}

/* All that the guest sees of them are aliases; the labels of the second are none of it. */
static void test_nvdimm(void **state)
{
	static const struct peer_answer qemu[] = {
		{ "human-monitor-command", "info mtree",
		  "\"      0000000100000000-0000000107ffffff (prio 0, nv-ram): alias nvdimm-memory @nv0 0000000000000000-0000000007ffffff\\r\\n"
		  "      0000000108000000-000000010fdfffff (prio 0, nv-ram): alias nvdimm-memory @nv1 0000000000000000-0000000007dfffff\\r\\n"
		  "memory-region: nv0\\r\\n  0000000000000000-0000000007ffffff (prio 0, ram): nv0\\r\\n"
		  "memory-region: nv1\\r\\n  0000000000000000-0000000007ffffff (prio 0, ram): nv1\\r\\n\"" },
		{ "query-memory-devices", "",
		  "[{\"type\": \"nvdimm\", \"data\": {\"addr\": 4294967296, \"memdev\": \"/objects/nv0\"}},"
		  " {\"type\": \"nvdimm\", \"data\": {\"addr\": 4429185024, \"memdev\": \"/objects/nv1\"}}]" },
		{ NULL, NULL, NULL }
	};
	struct vm vm = { .nblocks = 2, .blocks = { { .name = "nv0", .pages = 32768 }, { .name = "nv1", .pages = 32768 } } };

	(void)state;
	ask_one(qemu, &vm, 0);
	assert_int_equal(vm.blocks[0].address, 0x100000000);
	assert_int_equal(vm.blocks[1].address, 0x108000000);
}

/* Of which each is shown by an alias of some other kind: if their sizes differ nothing takes one for the other. */
static void test_two_at_one_place(void **state)
{
	static const char text[] = "\"memory-region: ram0\\r\\n  0000000000000000-000000007fffffff (prio 0, ram): ram0\\r\\n"
		"memory-region: ram1\\r\\n  0000000000000000-000000007fffffff (prio 0, ram): ram1\\r\\n\"";
	struct vm vm = { .nblocks = 2, .blocks = { { .name = "ram0", .pages = 7 }, { .name = "ram1", .pages = 7 } } };

	(void)state;
	ask(text, &vm, 0);
	assert_true(vm.blocks[0].address == WIRE_NO_ADDRESS && vm.blocks[1].address == WIRE_NO_ADDRESS);
	vm.blocks[1].pages = 8;
	ask(text, &vm, 0);
	assert_true(vm.blocks[0].address == 0 && vm.blocks[1].address == 0);
}

#define VIEWS \
	"FlatView #0\r\n AS \"cpu-smm-0\", root: memory\r\n Root memory region: memory\r\n" \
	"  0000000000000000-00000000000bffff (prio 0, ram): smram\r\n\r\n" \
	"FlatView #1\r\n AS \"memory\", root: system\r\n AS \"cpu-memory-0\", root: system\r\n" \
	" Root memory region: system\r\n" \
	"  0000000000000000-000000000009ffff (prio 0, ram): pc.ram KVM\r\n" \
	"  00000000000c0000-00000000000c9fff (prio 0, rom): pc.ram @00000000000c0000\r\n" \
	"  00000000000f0000-00000000000fffff (prio -1, romd): pc.ram @00000000000f0000 KVM\r\n" \
	"  0000000100000000-000000017fffffff (prio 0, ram): /objects/ram1\r\n" \
	"  00000000febf0400-00000000febf041f (prio 0, i/o): vga ioports remapped\r\n" \
	"  00000000febf0400-00000000febf041f (prio 0, ram): pc.ram @x\r\n" \
	"  00000000febf041f-00000000febf0400 (prio 0, ram): backwards\r\n" \
	"  No rendered FlatView\r\n\r\n" \
	"FlatView #2\r\n AS \"I/O\", root: io\r\n" \
	"  0000000000000000-0000000000000007 (prio 0, i/o): dma-chan\r\n"

/* Of what the guest sees, and of nothing else. */
static void test_ranges(void **state)
{
	static const struct mtree_range want[] = {
		{ 0, 0x9ffff, 0, "pc.ram" },
		{ 0xc0000, 0xc9fff, 0xc0000, "pc.ram" },
		{ 0xf0000, 0xfffff, 0xf0000, "pc.ram" },
		{ 0x100000000, 0x17fffffff, 0, "/objects/ram1" },
	};
	const char *at = mtree_memory(VIEWS);
	struct mtree_range range;
	char line[2 * WIRE_NAME_MAX + 600];

	(void)state;
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		assert_true(mtree_next(&at, &range));
		assert_int_equal(range.first, want[i].first);
		assert_int_equal(range.last, want[i].last);
		assert_int_equal(range.offset, want[i].offset);
		assert_string_equal(range.name, want[i].name);
	}
	assert_false(mtree_next(&at, &range));
	assert_false(mtree_next(&at, &range));
	assert_null(mtree_memory(""));
	assert_null(mtree_memory("FlatView #0\r\n AS \"I/O\", root: io\r\n"));
	at = mtree_memory("\n AS \"memory\", root: system");
	assert_false(mtree_next(&at, &range));
	/* A name that is too long is no block's. */
	strcpy(line, " 0000000000001000-0000000000001fff (prio 0, ram): ");
	memset(line + strlen(line), 'a', WIRE_NAME_MAX + 1);
	line[50 + WIRE_NAME_MAX + 1] = '\0';
	at = line;
	assert_false(mtree_next(&at, &range));
	line[50 + WIRE_NAME_MAX] = '\0';
	at = line;
	assert_true(mtree_next(&at, &range));
	memset(line, ' ', sizeof(line));
	strcpy(line + sizeof(line) - 60, "\n 0000000000001000-0000000000001fff (prio 0, ram): ram0");
	at = line;
	assert_true(mtree_next(&at, &range));
	assert_string_equal(range.name, "ram0");
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_found),
	cmocka_unit_test(test_not_found),
	cmocka_unit_test(test_asked),
	cmocka_unit_test(test_shown_in_parts),
	cmocka_unit_test(test_nvdimm),
	cmocka_unit_test(test_two_at_one_place),
	cmocka_unit_test(test_ranges),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
