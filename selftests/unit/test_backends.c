// SPDX-License-Identifier: GPL-2.0-only
/* What QEMU says of its memory backends: what will not do, with the way out, and what makes no sense. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "qmp_peer.h"
#include "vmm/ram.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

#define RAM0	"[{\"id\": \"ram0\", \"size\": 2097152}]"
#define FILE_TYPE "\"memory-backend-file\""
#define MEMFD_TYPE "\"memory-backend-memfd\""
#define RAM_TYPE "\"memory-backend-ram\""

/* list: what x-query-ramblock says; NULL: QEMU has no such command. */
static int query_with_list(const char *memdevs, const char *type, const char *share, const char *path, const char *list,
			   struct backends *all, struct err *e)
{
	const struct peer_answer qemu[] = {
		{ "query-memdev", "", memdevs },
		{ "qom-get", "\"property\":\"type\"", type },
		{ "qom-get", "\"property\":\"share\"", share },
		{ "qom-get", "\"property\":\"mem-path\"", path },
		{ "x-query-ramblock", "", list },
		{ NULL, NULL, NULL },
	};
	struct qmp *q;
	struct peer p;
	int r;

	memset(e, 0, sizeof(*e));
	all->n = 0;
	q = peer_qemu(&p, qemu, e);
	assert_non_null(q);
	r = backends_query(q, getpid(), all, e);
	peer_qemu_end(&p, q);
	return r;
}

static int query(const char *memdevs, const char *type, const char *share, const char *path, struct backends *all,
		 struct err *e)
{
	return query_with_list(memdevs, type, share, path, NULL, all, e);
}

#define HVA	0x7f256a3ff000ull
#define LIST(name) "{\"human-readable-text\": \"Block Name PSize Offset Used Total HVA RO\\n" \
		   name " 4 KiB 0x0000000000000000 0x0000000000200000 0x0000000000200000 0x00007f256a3ff000 rw\\n\"}"

/* By type and share, and where QEMU says that each is: it is not asked about files, which are found by their names. */
static void test_kinds(void **state)
{
	static const struct {
		const char *type, *share, *list;
		enum backend_kind kind;
		uint64_t hva;
	} cases[] = {
		{ FILE_TYPE, "true", LIST("ram0"), BACKEND_FILE, 0 },
		{ FILE_TYPE, "false", LIST("ram0"), BACKEND_PRIVATE, HVA },
		{ FILE_TYPE, "\"true\"", LIST("ram0"), BACKEND_PRIVATE, HVA },
		{ MEMFD_TYPE, "true", LIST("ram0"), BACKEND_MEMFD, HVA },
		{ MEMFD_TYPE, "false", LIST("ram0"), BACKEND_PRIVATE, HVA },
		{ RAM_TYPE, "true", LIST("ram0"), BACKEND_SHARED, HVA },
		{ RAM_TYPE, "false", LIST("ram0"), BACKEND_PRIVATE, HVA },
		{ RAM_TYPE, "false", LIST("/objects/ram0"), BACKEND_PRIVATE, HVA },
		/* QEMU does not say. */
		{ RAM_TYPE, "false", LIST("other"), BACKEND_PRIVATE, 0 },
		{ RAM_TYPE, "false", NULL, BACKEND_PRIVATE, 0 },
		{ MEMFD_TYPE, "true", NULL, BACKEND_MEMFD, 0 },
		{ RAM_TYPE, "false", "{\"human-readable-text\": \"Block Name PSize Offset Used Total\\n\"}", BACKEND_PRIVATE, 0 },
	};
	struct backends all;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bool file = !strcmp(cases[i].type, FILE_TYPE);

		assert_int_equal(query_with_list(RAM0, cases[i].type, cases[i].share, file ? "\"/x\"" : NULL, cases[i].list,
						 &all, &e), 0);
		assert_int_equal(all.n, 1);
		assert_int_equal(all.b[0].kind, cases[i].kind);
		assert_int_equal(all.b[0].hva, cases[i].hva);
		assert_int_equal(all.b[0].bytes, 2 << 20);
		assert_int_equal(!all.b[0].mem_path, cases[i].kind != BACKEND_FILE);
		backends_free(&all);
	}
	assert_true(query_with_list(RAM0, RAM_TYPE, "false", NULL, "{\"human-readable-text\": \"hello\"}", &all, &e) < 0);
	backends_free(&all);
	assert_int_equal(e.exit, GW_NOT_QEMU);
}

static void test_refusals(void **state)
{
	static const char way_out[] = "\"-object memory-backend-file,id=ram0,mem-path=/dev/shm/FILE,size=2M,share=on\" and "
				      "\"-machine ...,memory-backend=ram0\" (with NUMA \"-numa node,memdev=ram0\")";
	const struct {
		const char *type, *part;
	} cases[] = {
		{ "\"some\\nthing\"", "RAM \"ram0\" is a some thing, which godwit does not know" },
		{ "\"memory-backend-shm\"", "RAM \"ram0\" is a memory-backend-shm, which godwit does not move" },
	};
	struct backends all;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(query(RAM0, cases[i].type, "true", "\"/x\"", &all, &e), -EINVAL);
		backends_free(&all);
		assert_int_equal(e.exit, GW_RAM_PRIVATE);
		assert_non_null(strstr(e.text, cases[i].part));
		assert_non_null(strstr(e.text, way_out));
		assert_null(strchr(e.text, '\n'));
	}
	/* No other backend would be what the guest has there. */
	assert_int_equal(query(RAM0, "\"memory-backend-epc\"", "true", "\"/x\"", &all, &e), -EINVAL);
	backends_free(&all);
	assert_int_equal(e.exit, GW_RAM_PRIVATE);
	assert_non_null(strstr(e.text, "RAM \"ram0\" is SGX memory (memory-backend-epc)"));
	assert_non_null(strstr(e.text, "start QEMU without it (-machine sgx-epc.0.memdev=ram0)"));
	assert_true(query("[]", FILE_TYPE, "true", "\"/x\"", &all, &e) < 0);
	assert_int_equal(e.exit, GW_RAM_PRIVATE);
	assert_true(query("[{\"id\": \"r\", \"size\": 4097}]", FILE_TYPE, "true", "\"/x\"", &all, &e) < 0);
	backends_free(&all);
	assert_int_equal(e.exit, GW_RAM_PRIVATE);
	assert_non_null(strstr(e.text, "size=4097,"));
	assert_true(query("[{\"id\": \"r\", \"size\": 3221225472}]", "\"x\"", "false", "\"/x\"", &all, &e) < 0);
	backends_free(&all);
	assert_non_null(strstr(e.text, "size=3G,"));
}

/* 63 more backends than one, or 64. */
static void test_how_many(void **state)
{
	struct backends all;
	struct err e;

	(void)state;
	for (int n = WIRE_BLOCKS_MAX; n <= WIRE_BLOCKS_MAX + 1; n++) {
		json_t *list = json_array();
		char id[16], *text;
		int r;

		for (int i = 0; i < n; i++) {
			snprintf(id, sizeof(id), "dimm%02d", (i * 37) % n);
			json_array_append_new(list, json_pack("{s:s, s:i}", "id", id, "size", 4096 * (i + 1)));
		}
		text = json_dumps(list, 0);
		r = query(text, FILE_TYPE, "true", "\"/x\"", &all, &e);
		assert_int_equal(r, n > WIRE_BLOCKS_MAX ? -E2BIG : 0);
		for (unsigned int i = 1; i < all.n; i++)
			assert_true(strcmp(all.b[i - 1].id, all.b[i].id) < 0);
		assert_int_equal(all.n, n > WIRE_BLOCKS_MAX ? 0 : n);
		if (!r) {
			assert_int_equal(all.b[0].bytes, 4096);
			assert_string_equal(all.b[63].mem_path, "/x");
		}
		backends_free(&all);
		free(text);
		json_decref(list);
	}
}

static void test_nonsense(void **state)
{
	static char long_id[400];
	const struct {
		const char *memdevs, *type, *path;
		enum gw_exit exit;
	} cases[] = {
		{ NULL, FILE_TYPE, "\"/x\"", GW_QMP }, { RAM0, NULL, "\"/x\"", GW_QMP }, { RAM0, FILE_TYPE, NULL, GW_QMP },
		{ "{}", FILE_TYPE, "\"/x\"", GW_RAM_PRIVATE }, { "[5]", FILE_TYPE, "\"/x\"", GW_NOT_QEMU },
		{ "[{\"size\": 4096}]", FILE_TYPE, "\"/x\"", GW_NOT_QEMU },
		{ "[{\"id\": 5, \"size\": 4096}]", FILE_TYPE, "\"/x\"", GW_NOT_QEMU },
		{ "[{\"id\": \"\", \"size\": 4096}]", FILE_TYPE, "\"/x\"", GW_NOT_QEMU },
		{ "[{\"id\": \"a b\", \"size\": 4096}]", FILE_TYPE, "\"/x\"", GW_NOT_QEMU },
		{ "[{\"id\": \"a\\u00e9\", \"size\": 4096}]", FILE_TYPE, "\"/x\"", GW_NOT_QEMU },
		{ "[{\"id\": \"a\\n\", \"size\": 4096}]", FILE_TYPE, "\"/x\"", GW_NOT_QEMU },
		{ long_id, FILE_TYPE, "\"/x\"", GW_NOT_QEMU },
		{ "[{\"id\": \"a\"}]", FILE_TYPE, "\"/x\"", GW_NOT_QEMU },
		{ "[{\"id\": \"a\", \"size\": 0}]", FILE_TYPE, "\"/x\"", GW_NOT_QEMU },
		{ "[{\"id\": \"a\", \"size\": -4096}]", FILE_TYPE, "\"/x\"", GW_NOT_QEMU },
		{ "[{\"id\": \"a\", \"size\": \"4096\"}]", FILE_TYPE, "\"/x\"", GW_NOT_QEMU },
		{ "[{\"id\": \"a\", \"size\": 18446744073709551615}]", FILE_TYPE, "\"/x\"", GW_NOT_QEMU },
		{ "[{\"id\": \"a\", \"size\": 4096}, {\"id\": \"a\", \"size\": 4096}]", FILE_TYPE, "\"/x\"", GW_NOT_QEMU },
		{ RAM0, "5", "\"/x\"", GW_NOT_QEMU }, { RAM0, FILE_TYPE, "5", GW_NOT_QEMU },
	};
	struct backends all;
	struct err e;

	(void)state;
	snprintf(long_id, sizeof(long_id), "[{\"size\": 4096, \"id\": \"%0256d\"}]", 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_true(query(cases[i].memdevs, cases[i].type, "true", cases[i].path, &all, &e) < 0);
		backends_free(&all);
		if (e.exit != cases[i].exit)
			print_message("case %zu: %s\n", i, e.text);
		assert_int_equal(e.exit, cases[i].exit);
	}
	long_id[sizeof("[{\"size\": 4096, \"id\": \"") - 1] = '\0';
	strcat(long_id, "12\"}]");
	assert_int_equal(query(long_id, FILE_TYPE, "true", "\"/x\"", &all, &e), 0);
	backends_free(&all);
}

/* Two blocks; the order in which QEMU names them is that of a hash table. */
static int same(const char *memdevs, struct err *e)
{
	const struct peer_answer qemu[] = {
		{ "query-memdev", "", memdevs },
		{ NULL, NULL, NULL },
	};
	static const struct vm vm = {
		.nblocks = 2, .blocks = { { .name = "ram0", .pages = 512 }, { .name = "ram1", .pages = 256 } },
	};
	struct qmp *q;
	struct peer p;
	int r;

	memset(e, 0, sizeof(*e));
	q = peer_qemu(&p, qemu, e);
	assert_non_null(q);
	r = backends_same(q, &vm, e);
	peer_qemu_end(&p, q);
	return r;
}

#define RAM(id, size)	"{\"id\": \"" id "\", \"size\": " size "}"

static void test_plugged_or_unplugged(void **state)
{
	static const char * const others[] = {
		"[]",
		"[" RAM("ram0", "2097152") "]",
		"[" RAM("ram0", "2097152") "," RAM("ram1", "1048576") "," RAM("more", "4096") "]",
		"[" RAM("ram0", "2097152") "," RAM("more", "1048576") "]",
		"[" RAM("ram0", "2097152") "," RAM("ram1", "2097152") "]",
		"[" RAM("ram0", "2097152") ", {\"size\": 1048576}]",
	};
	struct err e;

	(void)state;
	assert_int_equal(same("[" RAM("ram1", "1048576") "," RAM("ram0", "2097152") "]", &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		assert_int_equal(same(others[i], &e), -EAGAIN);
		assert_int_equal(e.exit, GW_VM_STATE);
		assert_non_null(strstr(e.text, "plugged or unplugged meanwhile"));
	}
}

/* One whose memory is a backend's is marked; one whose memory a server shares, which no backend is, is refused. */
static void test_ivshmem(void **state)
{
	static const char *const folders[] = { "/machine/peripheral\"", "/machine/peripheral-anon\"" },
		plain[] = "[{\"name\": \"type\", \"type\": \"string\"}, {\"name\": \"pipe\", \"type\": \"child<ivshmem-plain>\"}]",
		doorbell[] = "[{\"name\": \"pipe\", \"type\": \"child<ivshmem-plain>\"}, {\"name\": \"bell\", \"type\": \"child<ivshmem-doorbell>\"}]";

	(void)state;
	for (int i = 0; i < 4; i++) {
		const struct peer_answer qemu[] = {
			{ "qom-list", folders[i % 2], i < 2 ? plain : doorbell },
			{ "qom-list", folders[!(i % 2)], "[]" },
			{ "qom-get", "\"property\":\"memdev\"", "\"/objects/ram1\"" },
			{ NULL, NULL, NULL },
		};
		struct vm vm = { .nblocks = 2, .blocks = { { .name = "ram0" }, { .name = "ram1" } } };
		struct err e = { 0 };
		struct peer p;
		struct qmp *q = peer_qemu(&p, qemu, &e);

		assert_non_null(q);
		assert_int_equal(ram_find_ivshmem(q, &vm, &e), i < 2 ? 0 : -EINVAL);
		assert_true(!vm.blocks[0].ivshmem && vm.blocks[1].ivshmem);
		assert_int_equal(e.exit, i < 2 ? GW_OK : GW_RAM_PRIVATE);
		assert_true(i < 2 || strstr(e.text, "the device \"bell\" (ivshmem-doorbell) shows"));
		peer_qemu_end(&p, q);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_kinds),
	cmocka_unit_test(test_refusals),
	cmocka_unit_test(test_how_many),
	cmocka_unit_test(test_nonsense),
	cmocka_unit_test(test_plugged_or_unplugged),
	cmocka_unit_test(test_ivshmem),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
