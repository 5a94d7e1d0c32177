// SPDX-License-Identifier: GPL-2.0-only
/* By which way the device state may go: what is wished, what QEMU can do, and what the VM is like. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "devstate/mode.h"
#include "page/page.h"
#include "qmp/qmp_internal.h"
#include "qmp_peer.h"

#define SMALL	256ull
#define LARGE	((128ull << 30) / PAGE_BYTES)
#define BOTH	"    0000000000000000-00000000000fffff (prio 0, ram): ram0\\r\\n" \
		"    0000000000100000-00000000001fffff (prio 0, ram): ram1\\r\\n"
#define ONE	"    0000000000000000-00000000000fffff (prio 0, ram): ram0\\r\\n"

/**
 * struct machine - a VM, and its QEMU
 * @list: it says where its RAM is
 * @tree: what it says of the guest
 * @private: its RAM is memory of QEMU's own
 * @must_save: the destination's RAM is, or has other names
 */
struct machine {
	unsigned int version, blocks;
	uint64_t pages;
	bool memfd, paused, list, private, must_save;
	const char *tree;
};

/* The way, or minus the exit status. */
static int choose(enum mode_wish wish, const struct machine *m, struct err *e)
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
	enum devstate_mode way;
	struct peer p;
	struct qmp *q;
	int r;

	for (unsigned int i = 0; i < m->blocks; i++) {
		vm.blocks[i].pages = m->pages / m->blocks;
		vm.blocks[i].memfd = m->memfd;
		vm.blocks[i].hva = m->private ? 4096 : 0;
		vm.blocks[i].address = WIRE_NO_ADDRESS;
	}
	snprintf(list, sizeof(list), "{\"human-readable-text\": \"Block Name PSize Offset Used Total HVA RO\\n"
		 "rom 4 KiB 0x%016x 0x%016x 0x%016x 0x%016lx ro\\n\"}", 0, 4096, 4096, (unsigned long)rom);
	snprintf(tree, sizeof(tree), "\"%s\"", m->tree ? m->tree : "");
	memset(e, 0, sizeof(*e));
	q = peer_qemu(&p, qemu, e);
	assert_non_null(q);
	q->version = m->version;
	r = mode_choose(wish, m->must_save, q, &vm, !m->paused, &way, &ram, e);
	if (!r)
		assert_int_equal(ram.n, way == MODE_MIGRATE ? 0 : 1);
	private_ram_free(&ram);
	peer_qemu_end(&p, q);
	munmap(rom, 4096);
	return r ? -(int)e->exit : (int)way;
}

static const struct machine small = { 110100, 1, SMALL, .list = true, .tree = ONE };
static const struct machine large = { 110100, 2, LARGE, .list = true, .tree = BOTH };
static const struct machine memfd = { 110100, 2, SMALL, .memfd = true, .list = true, .tree = BOTH };
static const struct machine private = { 110100, 2, SMALL, .private = true, .list = true, .tree = BOTH };
static const struct machine into_private = { 110100, 2, SMALL, .must_save = true, .list = true, .tree = BOTH };

static void test_wishes(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(choose(WISH_AUTO, &small, &e), MODE_MIGRATE);
	assert_int_equal(choose(WISH_MIGRATE, &small, &e), MODE_MIGRATE);
	assert_int_equal(choose(WISH_SAVE, &small, &e), MODE_SAVE);
	assert_int_equal(choose(WISH_AUTO, &large, &e), MODE_EITHER);
	assert_int_equal(choose(WISH_MIGRATE, &large, &e), MODE_MIGRATE);
	assert_int_equal(choose(WISH_SAVE, &large, &e), MODE_SAVE);
	assert_int_equal(choose(WISH_AUTO, &memfd, &e), MODE_SAVE);
	assert_int_equal(choose(WISH_SAVE, &memfd, &e), MODE_SAVE);
	assert_int_equal(choose(WISH_MIGRATE, &memfd, &e), -GW_RAM_PRIVATE);
	assert_non_null(strstr(e.text, "forbids"));
}

static void test_paused(void **state)
{
	struct machine m = large;
	struct err e;

	(void)state;
	m.paused = true;
	/* Save mode would shorten the blackout, which a paused guest does not notice. */
	assert_int_equal(choose(WISH_AUTO, &m, &e), MODE_MIGRATE);
	assert_int_equal(choose(WISH_SAVE, &m, &e), MODE_SAVE);
	m.version = 90200;
	assert_int_equal(choose(WISH_SAVE, &m, &e), -GW_VM_STATE);
	m = memfd;
	m.paused = true;
	assert_int_equal(choose(WISH_AUTO, &m, &e), MODE_SAVE);
	m.version = 80200;
	assert_int_equal(choose(WISH_AUTO, &m, &e), -GW_VM_STATE);
	assert_non_null(strstr(e.text, "cont"));
}

/* One before 8.0, whose private RAM was found all the same: that is for what migrate mode cannot do. */
static void test_old_and_found(void **state)
{
	struct machine m = memfd;
	struct err e;

	(void)state;
	m.version = 70222;
	assert_int_equal(choose(WISH_AUTO, &m, &e), MODE_MIGRATE);
	assert_int_equal(choose(WISH_MIGRATE, &m, &e), MODE_MIGRATE);
	assert_int_equal(choose(WISH_SAVE, &m, &e), MODE_SAVE);
	m.must_save = true;
	assert_int_equal(choose(WISH_AUTO, &m, &e), MODE_SAVE);
	m = large;
	m.version = 70222;
	assert_int_equal(choose(WISH_AUTO, &m, &e), MODE_MIGRATE);
	assert_int_equal(choose(WISH_SAVE, &m, &e), MODE_SAVE);
	m = private;
	m.version = 70222;
	assert_int_equal(choose(WISH_AUTO, &m, &e), MODE_SAVE);
	m.paused = true;
	assert_int_equal(choose(WISH_AUTO, &m, &e), -GW_VM_STATE);
}

/* It is not known where its own RAM is. */
static void test_old(void **state)
{
	struct machine m = memfd;
	struct err e;

	(void)state;
	m.list = false;
	m.version = 70222;
	assert_int_equal(choose(WISH_AUTO, &m, &e), MODE_MIGRATE);
	assert_int_equal(choose(WISH_SAVE, &m, &e), -GW_QMP);
	m.version = 80100;
	assert_int_equal(choose(WISH_AUTO, &m, &e), -GW_RAM_PRIVATE);
	assert_non_null(strstr(e.text, "x-query-ramblock"));
	m = large;
	m.list = false;
	assert_int_equal(choose(WISH_AUTO, &m, &e), MODE_MIGRATE);
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
		assert_int_equal(choose(WISH_AUTO, &m, &e), MODE_MIGRATE);
		m = small;
		m.tree = vague[i];
		assert_int_equal(choose(WISH_SAVE, &m, &e), MODE_SAVE);
	}
}

/* QEMU sends private RAM itself, at either end: only save mode keeps it out. */
static void test_private(void **state)
{
	const struct machine *const both[] = { &private, &into_private };
	static const enum gw_exit refused[] = { GW_RAM_PRIVATE, GW_RAM_DIFFERS };
	static const char *const is[] = { "RAM \"ram0\" is private, which", "the destination's RAM is private to its QEMU" };
	struct machine m;
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(both) / sizeof(both[0]); i++) {
		assert_int_equal(choose(WISH_AUTO, both[i], &e), MODE_SAVE);
		assert_int_equal(choose(WISH_SAVE, both[i], &e), MODE_SAVE);
		assert_int_equal(choose(WISH_MIGRATE, both[i], &e), -(int)refused[i]);
		assert_non_null(strstr(e.text, is[i]));
		assert_non_null(strstr(e.text, "forbids"));
		m = *both[i];
		m.pages = LARGE;
		assert_int_equal(choose(WISH_AUTO, &m, &e), MODE_SAVE);
		m = *both[i];
		m.paused = true;
		assert_int_equal(choose(WISH_AUTO, &m, &e), MODE_SAVE);
		m.version = 90200;
		assert_int_equal(choose(WISH_AUTO, &m, &e), -GW_VM_STATE);
		m = *both[i];
		m.tree = "";
		assert_int_equal(choose(WISH_AUTO, &m, &e), -GW_QMP);
		m.blocks = 1;
		assert_int_equal(choose(WISH_AUTO, &m, &e), MODE_SAVE);
		/* Also one that leaves a memfd out of its migration. */
		m = *both[i];
		m.list = false;
		m.version = 70222;
		assert_int_equal(choose(WISH_AUTO, &m, &e), -(int)refused[i]);
		assert_non_null(strstr(e.text, is[i]));
		assert_non_null(strstr(e.text, "x-query-ramblock"));
		assert_int_equal(choose(WISH_SAVE, &m, &e), -GW_QMP);
	}
}

static void test_words(void **state)
{
	enum mode_wish wish = WISH_AUTO;
	struct err e = { 0 };

	(void)state;
	assert_int_equal(mode_parse("save", &wish, &e), 0);
	assert_int_equal(wish, WISH_SAVE);
	assert_int_equal(mode_parse("migrate", &wish, &e), 0);
	assert_int_equal(wish, WISH_MIGRATE);
	assert_true(mode_parse("Save", &wish, &e) < 0);
	assert_int_equal(e.exit, GW_USAGE);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_wishes),
	cmocka_unit_test(test_paused),
	cmocka_unit_test(test_old_and_found),
	cmocka_unit_test(test_old),
	cmocka_unit_test(test_swappable),
	cmocka_unit_test(test_private),
	cmocka_unit_test(test_words),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
