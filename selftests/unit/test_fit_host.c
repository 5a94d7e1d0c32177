// SPDX-License-Identifier: GPL-2.0-only
/* What of two hosts does not fit: each finding, and what comes close to it and is none. For room see test_fit_host_room.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "host_pair.h"

static void test_nested(void **state)
{
	static const char kvm[] = "{'kvm': true}";
	static const struct pair pairs[] = {
		{ "{'vmx': true}", kvm, "{'kvm': true, 'nested': {'vmx': false}}", FIT_HOST, FIT_FATAL, "modprobe kvm_intel nested=1" },
		{ "{'svm': true}", kvm, "{'kvm': true, 'nested': {'svm': false}}", FIT_HOST, FIT_FATAL, "the guest's CPU has svm" },
		{ "{'vmx': true}", kvm, "{'kvm': true, 'nested': {'vmx': true}}", .finds = NULL },
		{ "{'vmx': false}", kvm, "{'kvm': true, 'nested': {'vmx': false}}", .finds = NULL },
		{ "{}", kvm, "{'kvm': true, 'nested': {'vmx': false}}", .finds = NULL },
		/* Of another vendor: what the CPU lacks there says its own comparison. */
		{ "{'svm': true}", kvm, "{'kvm': true, 'nested': {'vmx': false}}", .finds = NULL },
		{ "{'vmx': true}", kvm, "{'kvm': true}", .finds = NULL },
		{ "{'svm': true}", "{'kvm': false}", "{'kvm': true, 'nested': {'svm': false}}", .finds = NULL },
		{ "{'svm': true}", kvm, "{'kvm': false, 'nested': {'svm': false}}", .finds = NULL },
	};

	(void)state;
	CHECK_ALL(pairs);
}

static void test_tsc(void **state)
{
#define THERE(hz, more)	"{'kvm': true, 'tsc-hz': " hz more "}"
#define FIXED	", 'tsc-scaling': false"
	static const char kvm[] = "{'kvm': true, 'tsc-set': false}", set[] = "{'kvm': true, 'tsc-set': true}";
	static const char at_2[] = "{'invtsc': false, 'tsc-frequency': 2000000000}";
	static const struct pair pairs[] = {
		{ at_2, kvm, THERE("2100000000", FIXED), FIT_HOST, FIT_WARNING, "runs at 2000.000 MHz, the destination's at 2100.000 MHz" },
		{ at_2, set, THERE("2100000000", FIXED), FIT_HOST, FIT_FATAL, "the guest would count time wrongly" },
		{ "{'invtsc': true, 'tsc-frequency': 2000000000}", kvm, THERE("1999000000", FIXED), FIT_HOST, FIT_FATAL, "wrongly" },
		/* 250 ppm. */
		{ at_2, set, THERE("2000490000", FIXED), .finds = NULL },
		{ at_2, set, THERE("1999510000", FIXED), .finds = NULL },
		{ at_2, set, THERE("2000510000", FIXED), FIT_HOST, FIT_FATAL, "2000.510 MHz" },
		{ at_2, set, THERE("2100000000", ", 'tsc-scaling': true"), .finds = NULL },
		{ at_2, set, THERE("2100000000", ""), .finds = NULL },
		{ at_2, "{'kvm': false}", THERE("2100000000", FIXED), .finds = NULL },
		{ "{'invtsc': true}", kvm, THERE("2100000000", FIXED), .finds = NULL },
		{ at_2, set, "{'kvm': true" FIXED "}", .finds = NULL },
		/* One that was set is QEMU's to refuse, with KVM and without. */
		{ at_2, set, THERE("2000001000", ", 'tsc-set': true"), FIT_HOST, FIT_IMPOSSIBLE, "start it with -cpu ...,tsc-frequency=2000000000" },
		{ at_2, "{'kvm': false}", "{'kvm': false, 'tsc-hz': 2000001000, 'tsc-set': true}", FIT_HOST, FIT_IMPOSSIBLE, "2000001000" },
		{ at_2, kvm, THERE("2000000000", FIXED ", 'tsc-set': true"), .finds = NULL },
		/* No TSC is like that. */
		{ "{'tsc-frequency': 0}", set, THERE("2100000000", FIXED), .finds = NULL },
		{ "{'tsc-frequency': 1e300}", set, THERE("2100000000", FIXED), .finds = NULL },
	};

	(void)state;
	CHECK_ALL(pairs);
}

static void test_backends(void **state)
{
	static const struct pair pairs[] = {
		{ "{}", "{}", "{'backends': {'hn0': {'type': 'tap', 'interface': 'tap0', 'up': false}}}", FIT_BACKEND, FIT_WARNING,
		  "network backend \"hn0\" at the destination: tap0 is down" },
		{ "{}", "{}", "{'backends': {'hn0': {'type': 'tap', 'interface': 'tap0', 'up': true}}}", .finds = NULL },
		{ "{}", "{}", "{'backends': {'hn0': {'type': 'tap', 'interface': 'tap0'}}}", .finds = NULL },
		{ "{}", "{}", "{'backends': {'d0': {'type': 'vhost-user-blk-pci', 'chardev': 'vu0', 'connected': false}}}", FIT_BACKEND, FIT_FATAL,
		  "nothing is connected to chardev \"vu0\" at the destination, and the guest would lose \"d0\" (vhost-user-blk-pci)" },
		{ "{}", "{}", "{'backends': {'d0': {'type': 'vhost-user', 'chardev': 'vu0', 'connected': true}}}", .finds = NULL },
	};

	(void)state;
	CHECK_ALL(pairs);
}

/* Nothing is known, or is what it should not be: no finding, and no fault. */
static void test_hostile(void **state)
{
	static const char *const odd[] = {
		"null", "true", "-1", "1e308", "9223372036854775807", "'x'", "[]", "[{}, null, 1]", "{}", "{'ram0': 1}", "{'ram0': {}}",
		"{'0:5': []}", "{'vmx': 0}",
	};
	static const char *const facts[] = {
		"kvm", "tsc-set", "ram", "fs", "pool", "memory", "cgroups", "tsc-hz", "tsc-scaling", "nested", "backends",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		struct pair whole = { odd[i], odd[i], odd[i], .finds = NULL };

		check(&whole);
		for (size_t j = 0; j < sizeof(facts) / sizeof(facts[0]); j++) {
			char dst[512];

			snprintf(dst, sizeof(dst), "{" RAM("0", "0:5") ", 'kvm': true, '%s': %s}", facts[j], odd[i]);
			check(&(struct pair) { "{'vmx': true, 'tsc-frequency': 2e9}", "{'kvm': true}", dst, .finds = NULL });
		}
	}
}

/* More than a VM has; text that is too long, and would be more than one line. */
static void test_large_views(void **state)
{
	json_auto_t *src = view("{}", "{}", NULL), *dst = view("{'ram': {}, 'fs': {}, 'backends': {}}", "{}", NULL);
	json_t *host = json_object_get(dst, "host"), *ram = json_object_get(host, "ram");
	struct findings f = { .rows = NULL };
	char name[2048];

	(void)state;
	memset(name, '\n', sizeof(name));
	for (unsigned int i = 0; i < 3000; i++) {
		sprintf(name + sizeof(name) - 5, "%04u", i);
		json_object_set_new(ram, name, json_pack("{s:i, s:s}", "bytes", 1, "fs", name));
		json_object_set_new(json_object_get(host, "fs"), name, json_pack("{s:i, s:s}", "free", 0, "mount", name));
		json_object_set_new(json_object_get(host, "backends"), name,
				    json_pack("{s:s, s:s, s:b}", "type", name, "chardev", name, "connected", 0));
	}
	host_compare(src, dst, &f);
	assert_int_equal(f.n, 64 + 3000);
	for (unsigned int i = 0; i < findings_kept(&f); i++)
		assert_null(strchr(f.rows[i].text, '\n'));
	findings_free(&f);
}

static void clocks(int64_t offset_ns, uint64_t rtt_ns, const char *finds)
{
	struct findings f = { .rows = NULL };

	host_compare_clocks(offset_ns, rtt_ns, &f);
	assert_int_equal(f.n, finds != NULL);
	assert_int_equal(f.nfatal, 0);
	if (finds && !strstr(f.rows[0].text, finds))
		fail_msg("\"%s\" is not in \"%s\"", finds, f.rows[0].text);
	findings_free(&f);
}

static void test_clocks(void **state)
{
	(void)state;
	clocks(0, 0, NULL);
	clocks(50000000, 0, NULL);
	clocks(-50000000, 0, NULL);
	clocks(50000001, 0, "50 ms ahead of");
	clocks(-1234000000, 0, "1234 ms behind");
	/* A slow link tells less. */
	clocks(149000000, 200000000, NULL);
	clocks(151000000, 200000000, "to within 100 ms");
	clocks(INT64_MIN, 0, "behind");
	clocks(INT64_MAX, UINT64_MAX, NULL);
}

static void window(const char *there, unsigned int streams, uint64_t rtt_ns, const char *finds)
{
	struct window w = { .send = 1, .receive = 1, .streams = streams, .rtt_ns = rtt_ns, .goal = WINDOW_GIGABIT };
	json_auto_t *src = view("{'tcp-wmem': 4M}", "{}", NULL), *dst = view(there, "{}", NULL);
	struct findings f = { .rows = NULL };

	host_compare_window(src, dst, &w, &f);
	assert_int_equal(f.n, finds != NULL);
	assert_int_equal(f.nfatal, 0);
	if (finds && !strstr(f.rows[0].text, finds))
		fail_msg("\"%s\" is not in \"%s\"", finds, f.rows[0].text);
	findings_free(&f);
}

/* Also where the peer says what makes no sense, or is too old to say. */
static void test_window(void **state)
{
	(void)state;
	window("{'tcp-rmem': 6M}", 16, 200000000, NULL);
	window("{'tcp-rmem': 1M}", 16, 200000000, "tcp_rmem on the destination's host to 3125002 or more");
	window("{'tcp-rmem': 1M}", 16, 1000000, NULL);
	window("{'tcp-rmem': 0}", 16, 200000000, NULL);
	window("{'tcp-rmem': 1e300}", 16, 200000000, NULL);
	window("{'tcp-rmem': -1}", 16, 200000000, NULL);
	window("{'tcp-rmem': 9223372036854775807}", 16, 200000000, NULL);
	window("{}", 16, 200000000, NULL);
	window("{}", 2, 200000000, "net.ipv4.tcp_wmem on the source's host, and of net.ipv4.tcp_rmem on the destination's");
}

static void test_accepted(void **state)
{
	json_auto_t *src = view("{'kvm': true, " RAM("100M", "x") "}", "{'vmx': true}", NULL);
	json_auto_t *dst = view("{'kvm': true, 'nested': {'vmx': false}, " RAM("0", "0:5") ", " TMPFS("0") "}", "{}", NULL);
	struct findings f = { .accepted = 1u << FIT_ROOM };

	(void)state;
	host_compare(src, dst, &f);
	assert_int_equal(f.n, 2);
	assert_int_equal(f.nfatal, 1);
	findings_free(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nested), cmocka_unit_test(test_tsc), cmocka_unit_test(test_backends),
		cmocka_unit_test(test_hostile), cmocka_unit_test(test_large_views), cmocka_unit_test(test_clocks), cmocka_unit_test(test_window),
		cmocka_unit_test(test_accepted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
