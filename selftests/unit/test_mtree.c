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
	/* A line that is too long is nobody's, and the next one is found. */
	memset(line, 'a', sizeof(line));
	strcpy(line + sizeof(line) - 60, "\n 0000000000001000-0000000000001fff (prio 0, ram): ram0");
	assert_true(mtree_address(line, "ram0", &address));
	assert_int_equal(address, 4096);
}

static void ask(const char *answer, struct vm *vm, int want)
{
	const struct peer_answer qemu[] = { { "human-monitor-command", "info mtree", answer }, { NULL, NULL, NULL } };
	struct err e = { 0 };
	struct peer p;
	struct qmp *q = peer_qemu(&p, qemu, &e);

	assert_non_null(q);
	assert_int_equal(mtree_query(q, vm, &e), want);
	peer_qemu_end(&p, q);
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

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_found),
	cmocka_unit_test(test_not_found),
	cmocka_unit_test(test_asked),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
