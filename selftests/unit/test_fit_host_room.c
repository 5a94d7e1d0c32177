// SPDX-License-Identifier: GPL-2.0-only
/* Is there room for a guest's RAM? Each answer, and what comes close to it and is another one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "host_pair.h"

static void test_tmpfs(void **state)
{
	static const struct pair pairs[] = {
		{ "{}", HOLDS_100, "{" RAM("0", "0:5") ", " TMPFS("99M") "}", FIT_ROOM, FIT_FATAL,
		  "no room at the destination for RAM \"ram0\": it holds 100 MiB, and 99 MiB are free for it on the tmpfs /mnt: "
		  "make room there, or mount -o remount,size=1201M /mnt" },
		{ "{}", HOLDS_100, "{" RAM("0", "0:5") ", " TMPFS("100M") "}", FIT_ROOM, FIT_WARNING,
		  "RAM \"ram0\" holds 100 of 400 MiB, and 100 MiB are free" },
		{ "{}", HOLDS_100, "{" RAM("0", "0:5") ", " TMPFS("400M") "}", .finds = NULL },
		/* What its file holds is free when the receiver has emptied it. */
		{ "{}", HOLDS_100, "{" RAM("1M", "0:5") ", " TMPFS("99M") "}", FIT_ROOM, FIT_WARNING, "100 MiB are free" },
		{ "{}", HOLDS_100, "{" RAM("300M", "0:5") ", " TMPFS("100M") "}", .finds = NULL },
		/* Preallocated. */
		{ "{}", HOLDS_100, "{" RAM("400M", "0:5") ", " TMPFS("0") "}", .finds = NULL },
		{ "{}", HOLDS_100, "{" RAM("399M", "0:5") ", " TMPFS("0") "}", FIT_ROOM, FIT_WARNING, "399 MiB are free" },
		/* There is no limit, or that is another file system. */
		{ "{}", HOLDS_100, "{" RAM("0", "0:5") ", 'fs': {'0:5': {'type': 'tmpfs'}}}", .finds = NULL },
		{ "{}", HOLDS_100, "{" RAM("0", "0:6") ", " TMPFS("0") "}", .finds = NULL },
		/* Numbers may be reals. */
		{ "{}", HOLDS_100, "{" RAM("0", "0:5") ", " TMPFS("1e8") "}", FIT_ROOM, FIT_FATAL, "95 MiB are free" },
		/* What is none is not known, be it of the source. */
		{ "{}", "{'ram': {'ram0': {'allocated': -1}}}", "{" RAM("0", "0:5") ", " TMPFS("400M") "}", .finds = NULL },
		{ "{}", "{'ram': {'ram0': {'allocated': -1.5}}}", "{" RAM("0", "0:5") ", " TMPFS("400M") "}", .finds = NULL },
		{ "{}", "{'ram': {'ram0': {'allocated': 1e300}}}", "{" RAM("0", "0:5") ", " TMPFS("400M") "}", .finds = NULL },
		/* A source that does not say what it holds. */
		{ "{}", "{}", "{" RAM("0", "0:5") ", " TMPFS("0") "}", FIT_ROOM, FIT_WARNING, "holds 0 of 400 MiB" },
	};

	(void)state;
	CHECK_ALL(pairs);
}

/* The blocks on one file system share its room. */
static void test_several_blocks(void **state)
{
	static const char src[] =
		"{'ram': {'a': {'allocated': 50M}, 'b': {'allocated': 60M}, 'c': {'allocated': 70M}}}";
#define A(more)	"'a': {'bytes': 60M, 'fs': '1'" more "}"
	static const struct pair pairs[] = {
		{ "{}", src, "{'ram': {" A("") ", 'b': {'bytes': 60M, 'fs': '1'}}, 'fs': {'1': {'free': 109M}}}",
		  FIT_ROOM, FIT_FATAL, "for RAM \"a\" and 1 more: it holds 110 MiB" },
		{ "{}", src, "{'ram': {" A("") ", 'b': {'bytes': 60M, 'fs': '1'}}, 'fs': {'1': {'free': 120M}}}", .finds = NULL },
		{ "{}", src, "{'ram': {" A("") ", 'b': {'bytes': 60M, 'fs': '2'}}, 'fs': {'1': {'free': 60M}, '2': {'free': 59M}}}",
		  FIT_ROOM, FIT_FATAL, "for RAM \"b\"" },
		{ "{}", src, "{'ram': {" A("") ", 'b': {'bytes': 60M, 'fs': '2'}}, 'fs': {'1': {'free': 60M}, '2': {'free': 60M}}}",
		  .finds = NULL },
		/* A preallocated one does not give its room away. */
		{ "{}", src, "{'ram': {" A(", 'allocated': 60M") ", 'c': {'bytes': 70M, 'fs': '1'}}, 'fs': {'1': {'free': 69M}}}",
		  FIT_ROOM, FIT_FATAL, "for RAM \"c\": it holds 70 MiB" },
	};

	(void)state;
	CHECK_ALL(pairs);
}

/* Four pages of 2 MiB. */
#define HUGE(held, reserved, fs, more)							\
	"{'ram': {'ram0': {'bytes': 8M, 'allocated': " held ", 'reserved': " reserved ", 'fs': '0:7'}},"	\
	" 'fs': {'0:7': {'type': 'hugetlbfs', 'mount': '/huge', 'page': 2M" fs "}}" more "}"

static void test_huge_pages(void **state)
{
	static const char src[] = "{'ram': {'ram0': {'bytes': 8M, 'allocated': 2M}}}";
	static const struct pair pairs[] = {
		/* All of it is needed, whatever the source holds. */
		{ "{}", src, HUGE("0", "0", "", ", 'pool': {'2097152': 6M}"), FIT_ROOM, FIT_IMPOSSIBLE,
		  "it takes 4 huge pages of 2048 KiB, of which 3 are free and not reserved: "
		  "add 1 to /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages" },
		{ "{}", src, HUGE("0", "0", "", ", 'pool': {'2097152': 8M}"), .finds = NULL },
		{ "{}", src, HUGE("2M", "0", "", ", 'pool': {'2097152': 6M}"), .finds = NULL },
		/* QEMU has reserved the rest, so it does not matter what else is free. */
		{ "{}", src, HUGE("2M", "6M", "", ", 'pool': {'2097152': 0}"), .finds = NULL },
		{ "{}", src, HUGE("0", "0", "", ", 'pool': {'1048576': 0}"), .finds = NULL },
		/* The mount's own limit. */
		{ "{}", src, HUGE("0", "0", ", 'free': 6M", ""), FIT_ROOM, FIT_IMPOSSIBLE, "6 MiB are free for it on the hugetlbfs /huge" },
		{ "{}", src, HUGE("0", "0", ", 'free': 8M", ""), .finds = NULL },
		{ "{}", src, HUGE("2M", "0", ", 'free': 6M", ""), .finds = NULL },
		{ "{}", src, HUGE("0", "0", "", ""), .finds = NULL },
		/* Huge pages do not come from what is available, nor are they charged to the memory cgroup. */
		{ "{}", src, HUGE("0", "0", "", ", 'memory': {'available': 0}, 'cgroups': [{'path': '/a', 'room': 0}]"), .finds = NULL },
	};

	(void)state;
	CHECK_ALL(pairs);
}

/* Two mounts take from one pool. */
static void test_one_pool(void **state)
{
#define TWO(pool) "{'ram': {'a': {'bytes': 4M, 'fs': '1'}, 'b': {'bytes': 6M, 'fs': '2'}},"	\
		  " 'fs': {'1': {'type': 'hugetlbfs', 'page': 2M}, '2': {'type': 'hugetlbfs', 'page': 2M}}, 'pool': {'2097152': " pool "}}"
	static const struct pair pairs[] = {
		{ "{}", "{}", TWO("9M"), FIT_ROOM, FIT_IMPOSSIBLE, "RAM \"a\" and 1 more: it takes 5 huge pages" },
		{ "{}", "{}", TWO("10M"), .finds = NULL },
	};

	(void)state;
	CHECK_ALL(pairs);
}

static void test_memory(void **state)
{
#define HAS(held, available, swap) "{" RAM(held, "0:5") ", 'memory': {'available': " available ", 'swap': " swap "}}"
	static const struct pair pairs[] = {
		{ "{}", HOLDS_100, HAS("0", "60M", "39M"), FIT_ROOM, FIT_FATAL,
		  "needs 100 MiB, and the destination has 60 MiB of memory available, and 39 MiB of swap" },
		{ "{}", HOLDS_100, HAS("0", "60M", "340M"), FIT_ROOM, FIT_WARNING, "would be swapped out" },
		{ "{}", HOLDS_100, HAS("0", "100M", "299M"), FIT_ROOM, FIT_WARNING, "400 MiB when the guest uses all of it" },
		{ "{}", HOLDS_100, HAS("0", "100M", "300M"), .finds = NULL },
		/* What the file holds is given back first; what is preallocated is there. */
		{ "{}", HOLDS_100, HAS("41M", "60M", "299M"), .finds = NULL },
		{ "{}", HOLDS_100, HAS("400M", "0", "0"), .finds = NULL },
		{ "{}", HOLDS_100, "{" RAM("0", "0:5") ", 'memory': {'available': 99M}}", FIT_ROOM, FIT_FATAL, "0 MiB of swap" },
		{ "{}", HOLDS_100, "{" RAM("0", "0:5") ", 'memory': {}}", .finds = NULL },
		/* On two file systems. */
		{ "{}", "{'ram': {'a': {'allocated': 50M}, 'b': {'allocated': 60M}}}",
		  "{'ram': {'a': {'bytes': 60M, 'fs': '1'}, 'b': {'bytes': 60M, 'fs': '2'}}, 'memory': {'available': 109M}}",
		  FIT_ROOM, FIT_FATAL, "RAM \"a\" and 1 more: it needs 110 MiB" },
	};

	(void)state;
	CHECK_ALL(pairs);
}

static void test_cgroups(void **state)
{
#define IN(held, swap, groups) "{" RAM(held, "0:5") ", 'memory': {'swap': " swap "}, 'cgroups': [" groups "]}"
	static const struct pair pairs[] = {
		{ "{}", HOLDS_100, IN("0", "0", "{'path': '/cg/b', 'limit': 500M, 'room': 99M}"), FIT_ROOM, FIT_FATAL,
		  "/cg/b, has 99 of 500 MiB left, and the guest's RAM, which is charged to it, needs 100 MiB" },
		{ "{}", HOLDS_100, IN("0", "0", "{'path': '/cg/b', 'limit': 500M, 'room': 100M}"), .finds = NULL },
		{ "{}", HOLDS_100, IN("0", "0", "{'path': '/cg/b', 'room': 100M}, {'path': '/cg', 'limit': 90M, 'room': 9M}"),
		  FIT_ROOM, FIT_FATAL, "/cg, has 9 of 90 MiB left" },
		/* Swap helps, as far as both the host has it and the cgroup may use it. */
		{ "{}", HOLDS_100, IN("0", "1M", "{'path': '/a', 'limit': 99M, 'room': 99M}"), FIT_ROOM, FIT_WARNING, "would be swapped out" },
		{ "{}", HOLDS_100, IN("0", "9M", "{'path': '/a', 'room': 99M, 'swap': 1M}"), FIT_ROOM, FIT_WARNING, "/a" },
		{ "{}", HOLDS_100, IN("0", "9M", "{'path': '/a', 'room': 99M, 'swap': 0}"), FIT_ROOM, FIT_FATAL, "/a" },
		{ "{}", HOLDS_100, IN("0", "0", "{'path': '/a', 'high': 200M, 'high-room': 99M}"), FIT_ROOM, FIT_WARNING, "memory.high, 200 MiB" },
		{ "{}", HOLDS_100, IN("0", "0", "{'path': '/a', 'high': 200M, 'high-room': 100M}"), .finds = NULL },
		{ "{}", HOLDS_100, IN("1M", "0", "{'path': '/a', 'room': 99M}"), .finds = NULL },
		{ "{}", HOLDS_100, IN("400M", "0", "{'path': '/a', 'room': 0}"), .finds = NULL },
	};

	(void)state;
	CHECK_ALL(pairs);
}

/* Memory of QEMU's own: in no file system, so only the host's memory and QEMU's cgroup have to have room for it. */
static void test_private(void **state)
{
#define PRIVATE(held, more) "{'ram': {'ram0': {'bytes': 400M, 'allocated': " held ", 'private': true, 'fs': 'memory'}},"	\
			    " 'fs': {'memory': {'type': 'memory'}}" more "}"
	static const struct pair pairs[] = {
		{ "{}", HOLDS_100, PRIVATE("0", ""), .finds = NULL },
		{ "{}", HOLDS_100, PRIVATE("0", ", 'memory': {'available': 60M, 'swap': 39M}"), FIT_ROOM, FIT_FATAL,
		  "RAM \"ram0\": it needs 100 MiB, and the destination has 60 MiB" },
		{ "{}", HOLDS_100, PRIVATE("0", ", 'memory': {'available': 400M, 'swap': 0}"), .finds = NULL },
		{ "{}", HOLDS_100, PRIVATE("0", ", 'qemu-cgroups': [{'path': '/vm', 'limit': 500M, 'room': 99M}]"), FIT_ROOM, FIT_FATAL,
		  "the memory cgroup of the destination QEMU, /vm, has 99 of 500 MiB left, and the guest's RAM, which is charged to it, "
		  "needs 100 MiB: raise its limit, run QEMU in another" },
		{ "{}", HOLDS_100, PRIVATE("0", ", 'qemu-cgroups': [{'path': '/vm', 'limit': 500M, 'room': 100M}]"), .finds = NULL },
		/* The receiver's is charged nothing. */
		{ "{}", HOLDS_100, PRIVATE("0", ", 'cgroups': [{'path': '/vm', 'limit': 500M, 'room': 0}]"), .finds = NULL },
		/* Preallocated. */
		{ "{}", HOLDS_100, PRIVATE("400M", ", 'qemu-cgroups': [{'path': '/vm', 'room': 0}], 'memory': {'available': 0}"),
		  .finds = NULL },
	};

	(void)state;
	CHECK_ALL(pairs);
}

/* One block in QEMU's memory, one in a file: each is charged to its own, and both to what both are in. */
static void test_private_beside_a_file(void **state)
{
	static const char src[] = "{'ram': {'a': {'allocated': 100M}, 'b': {'allocated': 50M}}}";
#define BOTH(receiver, qemu) "{'ram': {'a': {'bytes': 100M, 'private': true, 'fs': 'memory'}, 'b': {'bytes': 50M, 'fs': '1'}},"	\
			     " 'fs': {'memory': {'type': 'memory'}, '1': {'type': 'tmpfs'}},"				\
			     " 'cgroups': [" receiver "], 'qemu-cgroups': [" qemu "]}"
#define CG(path, room)	"{'path': '" path "', 'limit': 500M, 'room': " room "}"
	static const struct pair pairs[] = {
		{ "{}", src, BOTH(CG("/r", "50M"), CG("/q", "100M")), .finds = NULL },
		{ "{}", src, BOTH(CG("/r", "50M"), CG("/q", "99M")), FIT_ROOM, FIT_FATAL,
		  "of the destination QEMU, /q, has 99 of 500 MiB left, and the guest's RAM, which is charged to it, needs 100 MiB" },
		{ "{}", src, BOTH(CG("/r", "49M"), CG("/q", "100M")), FIT_ROOM, FIT_FATAL,
		  "of the receiver, /r, has 49 of 500 MiB left, and the guest's RAM, which is charged to it, needs 50 MiB" },
		{ "{}", src, BOTH(CG("/r", "50M") ", " CG("/", "149M"), CG("/q", "100M") ", " CG("/", "149M")), FIT_ROOM, FIT_FATAL,
		  "of the destination QEMU, /, has 149 of 500 MiB left, and the guest's RAM, which is charged to it, needs 150 MiB" },
		{ "{}", src, BOTH(CG("/r", "50M") ", " CG("/", "150M"), CG("/q", "100M") ", " CG("/", "150M")), .finds = NULL },
		{ "{}", src, BOTH("7, {}, " CG("/r", "50M"), "{'path': 5}, " CG("/q", "100M")), .finds = NULL },
	};

	(void)state;
	CHECK_ALL(pairs);
}

/* As many as a destination can say in a view: what is looked at is no more than any host has. */
static void test_many_cgroups(void **state)
{
	json_auto_t *src = view("{'ram': {'a': {'allocated': 50M}}}", "{}", NULL);
	json_auto_t *dst = view("{'ram': {'a': {'bytes': 50M, 'fs': '1'}}, 'fs': {'1': {'type': 'tmpfs'}}}", "{}", NULL);
	json_t *host = json_object_get(dst, "host"), *ours = json_array(), *its = json_array();
	struct findings f = { .rows = NULL };
	uint64_t began = now_ns();
	char path[32];

	(void)state;
	for (unsigned int i = 0; i < 20000; i++) {
		snprintf(path, sizeof(path), "/ours/%u", i);
		json_array_append_new(ours, json_pack("{s:s, s:i}", "path", path, "room", i == 63 || i == 64 ? 0 : 1 << 30));
		snprintf(path, sizeof(path), "/qemu/%u", i);
		json_array_append_new(its, json_pack("{s:s}", "path", path));
	}
	json_object_set_new(host, "cgroups", ours);
	json_object_set_new(host, "qemu-cgroups", its);
	host_compare(src, dst, &f);
	assert_int_equal(f.n, 1);
	assert_non_null(strstr(f.rows[0].text, "/ours/63"));
	assert_true(now_ns() - began < 5000000000ull);
	findings_free(&f);
}

/* Of a block whose place is not known the counterpart has its name; else its size, and no namesake here. */
static void test_other_names(void **state)
{
#define ROOM(name, bytes, left) "{'ram': {'" name "': {'bytes': " bytes ", 'fs': '0:5'}}, 'fs': {'0:5': {'type': 'tmpfs', 'free': " left "}}}"
	static const char two[] = "{'ram': {'pc.ram': {'bytes': 400M, 'allocated': 100M}, 'dimm': {'bytes': 60M, 'allocated': 50M}}}";
	static const char same[] = "{'ram': {'a': {'bytes': 400M, 'allocated': 50M}, 'b': {'bytes': 400M, 'allocated': 100M}}}";
	static const struct pair pairs[] = {
		{ "{}", two, ROOM("ram0", "400M", "99M"), FIT_ROOM, FIT_FATAL, "it holds 100 MiB" },
		{ "{}", two, ROOM("ram0", "60M", "49M"), FIT_ROOM, FIT_FATAL, "it holds 50 MiB" },
		{ "{}", two, ROOM("ram0", "60M", "60M"), .finds = NULL },
		/* Its name counts, whatever its size. */
		{ "{}", two, ROOM("dimm", "400M", "49M"), FIT_ROOM, FIT_FATAL, "it holds 50 MiB" },
		/* One that has its namesake here is not another's counterpart. */
		{ "{}", same, "{'ram': {'a': {'bytes': 400M, 'fs': '1'}, 'ram0': {'bytes': 400M, 'fs': '2'}}, 'fs': {'1': {'free': 400M}, '2': {'free': 99M}}}",
		  FIT_ROOM, FIT_FATAL, "RAM \"ram0\": it holds 100 MiB" },
		/* Nor does one of the source's stand for two. */
		{ "{}", same, "{'ram': {'p': {'bytes': 400M, 'fs': '1'}, 'q': {'bytes': 400M, 'fs': '2'}}, 'fs': {'1': {'free': 400M}, '2': {'free': 99M}}}",
		  FIT_ROOM, FIT_FATAL, "RAM \"q\": it holds 100 MiB" },
		/* None of its size: the source does not say what it holds. */
		{ "{}", two, ROOM("ram0", "500M", "400M"), FIT_ROOM, FIT_WARNING, "holds 0 of 500 MiB" },
	};

	(void)state;
	CHECK_ALL(pairs);
}

/* It has its place in the guest, whatever its name. */
static void test_places(void **state)
{
	static const char src[] = "{'ram': {'a': {'bytes': 400M, 'allocated': 50M}, 'b': {'bytes': 400M, 'allocated': 100M}}}";
	static const char at[] = "{'a': {'address': 0}, 'b': {'address': 400M}}";
#define SIDES "{'ram': {'a': {'bytes': 400M, 'fs': '1'}, 'c': {'bytes': 400M, 'fs': '2'}},"	\
	      " 'fs': {'1': {'free': 400M}, '2': {'free': 99M}}}"
	static const struct pair by_name = { "{}", src, SIDES, FIT_ROOM, FIT_FATAL, "RAM \"c\": it holds 100 MiB" };
	static const struct pair by_place = { "{}", src, SIDES, FIT_ROOM, FIT_WARNING, "RAM \"c\" holds 50 of 400 MiB" };

	(void)state;
	check(&by_name);
	check_places(&by_place, at, "{'c': {'address': 0}, 'a': {'address': 400M}}");
	check_places(&by_place, at, "{'c': {'address': 0.0}, 'a': {'address': 419430400.0}}");
	/* One of the two ends does not say. */
	check_places(&by_name, at, NULL);
	check_places(&by_name, NULL, at);
}

/* Numbers at their limits: sums do not wrap around. */
static void test_huge_numbers(void **state)
{
#define MOST	"9223372036854775807"
	static const char src[] = "{'ram': {'a': {'allocated': " MOST "}, 'b': {'allocated': " MOST "}, 'c': {'allocated': " MOST "}}}";
#define BLOCKS	"'ram': {'a': {'bytes': " MOST ", 'fs': '1'}, 'b': {'bytes': " MOST ", 'fs': '1'}, 'c': {'bytes': " MOST ", 'fs': '1'}}"
	static const struct pair pairs[] = {
		{ "{}", src, "{" BLOCKS ", 'fs': {'1': {'free': " MOST ", 'size': " MOST "}}}", FIT_ROOM, FIT_FATAL, "and 2 more" },
		{ "{}", src, "{" BLOCKS ", 'memory': {'available': " MOST ", 'swap': " MOST "}}", FIT_ROOM, FIT_FATAL, "and 2 more" },
		{ "{}", src, "{" BLOCKS ", 'fs': {'1': {'type': 'hugetlbfs', 'page': 4096}}, 'pool': {'4096': " MOST "}}",
		  FIT_ROOM, FIT_IMPOSSIBLE, "and 2 more" },
		{ "{}", src, "{" BLOCKS ", 'fs': {'1': {'type': 'hugetlbfs', 'page': 0}}, 'pool': {'0': 0, 'x': 0, '-1': 0}}", .finds = NULL },
	};

	(void)state;
	CHECK_ALL(pairs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tmpfs), cmocka_unit_test(test_several_blocks), cmocka_unit_test(test_huge_pages),
		cmocka_unit_test(test_one_pool), cmocka_unit_test(test_memory), cmocka_unit_test(test_cgroups),
		cmocka_unit_test(test_private), cmocka_unit_test(test_private_beside_a_file), cmocka_unit_test(test_many_cgroups),
		cmocka_unit_test(test_other_names), cmocka_unit_test(test_places), cmocka_unit_test(test_huge_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
