// SPDX-License-Identifier: GPL-2.0-only
/* By which way the device state may go: what is wished, what QEMU can do, and what the VM is like. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "qmp_peer.h"
#include "vmm/qmp_internal.h"
#include "vmm/way.h"

#define SMALL	256ull
#define LARGE	((128ull << 30) / WIRE_PAGE)
#define BOTH	"    0000000000000000-00000000000fffff (prio 0, ram): ram0\\r\\n" \
		"    0000000000100000-00000000001fffff (prio 0, ram): ram1\\r\\n"
#define ONE	"    0000000000000000-00000000000fffff (prio 0, ram): ram0\\r\\n"

/**
 * struct machine - a VM, and its QEMU
 * @list: it says where its RAM is
 * @tree: what it says of the guest
 */
struct machine {
	unsigned int version, blocks;
	uint64_t pages;
	bool memfd, paused, list;
	const char *tree;
};

/* The way, or minus the exit status. */
static int choose(enum way_wish wish, const struct machine *m, struct err *e)
{
	void *rom = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct vm vm = { .pid = getpid(), .nblocks = m->blocks, .blocks = { { .name = "ram0" }, { .name = "ram1" } } };
	char list[1024], tree[1024];
	const struct peer_answer qemu[] = {
		{ "x-query-ramblock", "", m->list ? list : NULL },
		{ "human-monitor-command", "info mtree", m->tree ? tree : NULL },
		{ NULL, NULL, NULL },
	};
	struct private_ram ram;
	enum way way;
	struct peer p;
	struct qmp *q;
	int r;

	for (unsigned int i = 0; i < m->blocks; i++) {
		vm.blocks[i].pages = m->pages / m->blocks;
		vm.blocks[i].memfd = m->memfd;
		vm.blocks[i].address = WIRE_NO_ADDRESS;
	}
	snprintf(list, sizeof(list), "{\"human-readable-text\": \"Block Name PSize Offset Used Total HVA RO\\n"
		 "rom 4 KiB 0x%016x 0x%016x 0x%016x 0x%016lx ro\\n\"}", 0, 4096, 4096, (unsigned long)rom);
	snprintf(tree, sizeof(tree), "\"%s\"", m->tree ? m->tree : "");
	memset(e, 0, sizeof(*e));
	q = peer_qemu(&p, qemu, e);
	assert_non_null(q);
	q->version = m->version;
	r = way_choose(wish, q, &vm, !m->paused, &way, &ram, e);
	if (!r)
		assert_int_equal(ram.n, way == WAY_MIGRATE ? 0 : 1);
	private_free(&ram);
	peer_qemu_end(&p, q);
	munmap(rom, 4096);
	return r ? -(int)e->exit : (int)way;
}

static const struct machine small = { 110100, 1, SMALL, .list = true, .tree = ONE };
static const struct machine large = { 110100, 2, LARGE, .list = true, .tree = BOTH };
static const struct machine memfd = { 110100, 2, SMALL, .memfd = true, .list = true, .tree = BOTH };

static void test_wishes(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(choose(WISH_AUTO, &small, &e), WAY_MIGRATE);
	assert_int_equal(choose(WISH_MIGRATE, &small, &e), WAY_MIGRATE);
	assert_int_equal(choose(WISH_SAVE, &small, &e), WAY_SAVE);
	assert_int_equal(choose(WISH_AUTO, &large, &e), WAY_EITHER);
	assert_int_equal(choose(WISH_MIGRATE, &large, &e), WAY_MIGRATE);
	assert_int_equal(choose(WISH_SAVE, &large, &e), WAY_SAVE);
	assert_int_equal(choose(WISH_AUTO, &memfd, &e), WAY_SAVE);
	assert_int_equal(choose(WISH_SAVE, &memfd, &e), WAY_SAVE);
	assert_int_equal(choose(WISH_MIGRATE, &memfd, &e), -GW_RAM_PRIVATE);
	assert_non_null(strstr(e.text, "forbids"));
}

static void test_paused(void **state)
{
	struct machine m = large;
	struct err e;

	(void)state;
	m.paused = true;
	/* Nobody waits for it. */
	assert_int_equal(choose(WISH_AUTO, &m, &e), WAY_MIGRATE);
	assert_int_equal(choose(WISH_SAVE, &m, &e), WAY_SAVE);
	m.version = 90200;
	assert_int_equal(choose(WISH_SAVE, &m, &e), -GW_VM_STATE);
	m = memfd;
	m.paused = true;
	assert_int_equal(choose(WISH_AUTO, &m, &e), WAY_SAVE);
	m.version = 80200;
	assert_int_equal(choose(WISH_AUTO, &m, &e), -GW_VM_STATE);
	assert_non_null(strstr(e.text, "cont"));
}

/* It does not say where its own RAM is. */
static void test_old(void **state)
{
	struct machine m = memfd;
	struct err e;

	(void)state;
	m.list = false;
	m.version = 70222;
	assert_int_equal(choose(WISH_AUTO, &m, &e), WAY_MIGRATE);
	assert_int_equal(choose(WISH_SAVE, &m, &e), -GW_QMP);
	m.version = 80100;
	assert_int_equal(choose(WISH_AUTO, &m, &e), -GW_RAM_PRIVATE);
	assert_non_null(strstr(e.text, "x-query-ramblock"));
	m = large;
	m.list = false;
	assert_int_equal(choose(WISH_AUTO, &m, &e), WAY_MIGRATE);
}

/* Two blocks of one size, and it does not say which is where. */
static void test_swappable(void **state)
{
	static const char *const vague[] = { NULL, "", ONE };
	struct machine m;
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(vague) / sizeof(vague[0]); i++) {
		m = memfd;
		m.tree = vague[i];
		assert_int_equal(choose(WISH_AUTO, &m, &e), -GW_QMP);
		assert_non_null(strstr(e.text, "info mtree"));
		m = large;
		m.tree = vague[i];
		assert_int_equal(choose(WISH_AUTO, &m, &e), WAY_MIGRATE);
		m = small;
		m.tree = vague[i];
		assert_int_equal(choose(WISH_SAVE, &m, &e), WAY_SAVE);
	}
}

static void test_words(void **state)
{
	enum way_wish wish = WISH_AUTO;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(way_parse("save", &wish, &e), 0);
	assert_int_equal(wish, WISH_SAVE);
	assert_int_equal(way_parse("migrate", &wish, &e), 0);
	assert_int_equal(wish, WISH_MIGRATE);
	assert_true(way_parse("Save", &wish, &e) < 0);
	assert_int_equal(e.exit, GW_USAGE);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_wishes),
	cmocka_unit_test(test_paused),
	cmocka_unit_test(test_old),
	cmocka_unit_test(test_swappable),
	cmocka_unit_test(test_words),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
