// SPDX-License-Identifier: GPL-2.0-only
/* The list of what is looked at before a guest leaves: send ends at the first refusal, check tells of all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "check/check_internal.h"
#include "qmp_peer.h"
#include "send/preflight.h"

#define CAPS	"[{\"capability\": \"x-ignore-shared\", \"state\": false}]"
#define PRIVATE	"[{\"id\": \"ram0\", \"size\": 1048576}]"
#define BLOCKED	"{\"blocked-reasons\": [\"0000:00:02.0/nvme: non-migratable\\ndevice\", \"another\"]}"

/* What it says to xen-event-list; NULL: an error. */
static const char *xen;

/* A QEMU before 6.2 with private RAM: it does not say where that is. It is served by this very process. */
static void begin(struct peer *p, struct peer_answer *qemu, const char *status, const char *migrate)
{
	const struct peer_answer all[] = {
		{ "query-status", "", status },
		{ "query-migrate-capabilities", "", CAPS },
		{ "query-migrate-parameters", "", "{\"max-bandwidth\": 1, \"downtime-limit\": 300}" },
		{ "query-migrate", "", migrate },
		{ "query-jobs", "", "[]" },
		{ "query-dump", "", "{\"status\": \"none\"}" },
		{ "query-memdev", "", PRIVATE },
		{ "qom-get", "\"property\":\"type\"", "\"memory-backend-ram\"" },
		{ "qom-get", "\"property\":\"share\"", "false" },
		{ "qom-list", "", "[]" },
		{ xen ? "xen-event-list" : NULL, "", xen },
		{ NULL, NULL, NULL },
	};

	memcpy(qemu, all, sizeof(all));
	assert_int_equal(peer_start(p, peer_serve, qemu, 4), 0);
}

static const struct check_row *row(const struct check *c, const char *name)
{
	for (unsigned int i = 0; i < c->n; i++)
		if (!strcmp(c->rows[i].name, name))
			return &c->rows[i];
	fail_msg("no row %s", name);
	return NULL;
}

static void run_check(const char *status, const char *migrate, struct check *c)
{
	struct check_options o = { .timeout_ms = 2000, .downtime_limit_ms = 300, .pause = true, .addr = "127.0.0.1:1" };
	struct peer_answer qemu[12];
	struct peer p;

	begin(&p, qemu, status, migrate);
	o.qmp_path = p.path;
	check_run(&o, c);
	peer_stop(&p);
	assert_string_equal(p.missed, "");
}

/* The first refusal, as send would say it. */
static enum gw_exit look(const char *status, const char *migrate, struct err *e)
{
	struct migration migration = { .stream = -1 };
	struct vm vm = { .pidfd = -1, .vm_fd = -1 };
	struct peer_answer qemu[12];
	struct qmp *q = NULL;
	struct peer p;
	struct preflight l = {
		.timeout_ms = 2000, .downtime_limit_ms = 300, .pause = true, .qmp = &q, .vm = &vm, .migration = &migration,
	};

	memset(e, 0, sizeof(*e));
	begin(&p, qemu, status, migrate);
	l.qmp_path = p.path;
	preflight_all(&l, e);
	migration_free(&migration);
	vm_close(&vm);
	qmp_close(q);
	peer_stop(&p);
	return e->exit;
}

static void test_every_reason_is_told(void **state)
{
	struct check c;
	struct err e;

	(void)state;
	run_check("{\"status\": \"io-error\"}", BLOCKED, &c);
	assert_int_equal(row(&c, "QMP")->result, CHECK_OK);
	assert_non_null(strstr(row(&c, "QMP")->text, "QEMU 7.2.22"));
	assert_int_equal(row(&c, "state")->result, CHECK_NO);
	assert_int_equal(row(&c, "blockers")->result, CHECK_NO);
	assert_non_null(strstr(row(&c, "blockers")->text, "\"0000:00:02.0/nvme: non-migratable device\": unplug"));
	assert_int_equal(row(&c, "RAM")->result, CHECK_NO);
	assert_int_equal(row(&c, "RAM")->exit, GW_RAM_PRIVATE);
	assert_non_null(strstr(row(&c, "RAM")->text, "before version 6.2"));
	assert_int_equal(row(&c, "devices")->result, CHECK_OK);
	assert_int_equal(row(&c, "cache modes")->result, CHECK_OK);
	assert_int_equal(row(&c, "destination")->result, CHECK_UNKNOWN);
	assert_int_equal(check_verdict(&c), GW_VM_STATE);

	assert_int_equal(look("{\"status\": \"io-error\"}", BLOCKED, &e), GW_VM_STATE);
	assert_non_null(strstr(e.text, "io-error"));
	assert_string_equal(e.text, row(&c, "state")->text);
	assert_int_equal(look("{\"status\": \"running\"}", BLOCKED, &e), GW_VM_STATE);
	assert_string_equal(e.text, row(&c, "blockers")->text);
	assert_int_equal(look("{\"status\": \"running\"}", "{}", &e), GW_RAM_PRIVATE);
	assert_string_equal(e.text, row(&c, "RAM")->text);
	xen = "[]";
	assert_int_equal(look("{\"status\": \"running\"}", "{}", &e), GW_VM_STATE);
	assert_non_null(strstr(e.text, "emulates Xen"));
	xen = NULL;
}

/* What holds the guest's RAM, by kind. */
static void test_ram_row(void **state)
{
	/* fd: open or not; of a private block it is the file behind it. */
	static const struct ram_block file = { .pages = 512, .page_size = 4096, .fd = 3 };
	static const struct ram_block huge = { .pages = 1024, .page_size = 2 << 20, .fd = 3, .hugetlb = true };
	static const struct ram_block memfd = { .pages = 512, .page_size = 4096, .fd = 3, .memfd = true };
	static const struct ram_block memfd_huge = { .pages = 512, .page_size = 2 << 20, .fd = 3, .memfd = true, .hugetlb = true };
	static const struct ram_block anonymous = { .pages = 2097152, .page_size = 4096, .fd = -1, .hva = 4096 };
	static const struct ram_block copied = { .pages = 256, .page_size = 4096, .fd = 3, .hva = 4096 };
	static const struct ram_block gigantic = { .pages = 262144, .page_size = 1 << 30, .fd = 3, .hva = 4096, .hugetlb = true };
	static const struct {
		const struct ram_block *blocks[4];
		const char *text;
	} cases[] = {
		{ { &file }, "2 MiB in 1 shared file on tmpfs" },
		{ { &file, &file }, "4 MiB in 2 shared files on tmpfs" },
		{ { &huge }, "4 MiB in 1 shared file on hugetlbfs pages of 2 MiB" },
		{ { &memfd, &memfd }, "4 MiB in 2 memfds" },
		{ { &memfd_huge }, "2 MiB in 1 memfd on hugetlbfs pages of 2 MiB" },
		{ { &anonymous }, "8192 MiB private to QEMU (anonymous)" },
		{ { &anonymous, &anonymous }, "16384 MiB private to QEMU (anonymous)" },
		{ { &copied }, "1 MiB private to QEMU, from a file on tmpfs" },
		{ { &gigantic }, "1024 MiB private to QEMU, on hugetlbfs pages of 1 GiB" },
		{ { &file, &anonymous, &huge, &file },
		  "4 MiB in 2 shared files on tmpfs, 8192 MiB private to QEMU (anonymous), "
		  "4 MiB in 1 shared file on hugetlbfs pages of 2 MiB" },
		{ { &copied, &gigantic, &file, &memfd },
		  "1 MiB private to QEMU, from a file on tmpfs, 1024 MiB private to QEMU, on hugetlbfs pages of 1 GiB, "
		  "2 MiB in 1 shared file on tmpfs, 2 MiB in 1 memfd" },
	};
	unsigned int step = 0;

	(void)state;
	while (strcmp(preflight_steps[step].name, "RAM"))
		step++;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct vm vm = { .nblocks = 0 };
		const struct preflight l = { .vm = &vm };
		char text[256], small[40];

		while (vm.nblocks < 4 && cases[i].blocks[vm.nblocks]) {
			vm.blocks[vm.nblocks] = *cases[i].blocks[vm.nblocks];
			vm.nblocks++;
		}
		preflight_steps[step].found(&l, text, sizeof(text));
		assert_string_equal(text, cases[i].text);
		preflight_steps[step].found(&l, small, sizeof(small));
		assert_memory_equal(small, text, strlen(small));
		assert_true(strlen(small) == sizeof(small) - 1 || strlen(small) == strlen(text));
	}
}

/* How it is read, by the kind that needs most: what would be faster, where something is. */
static void test_ram_access(void **state)
{
	static const struct {
		struct ram_block blocks[2];
		const char *says;
	} cases[] = {
		{ { { .fd = 3 }, { .fd = 4 } }, "shared file: godwit reads the file; no other" },
		{ { { .fd = 3 }, { .fd = 4, .memfd = true } }, "memfd: godwit reads it as a file" },
		{ { { .fd = 3, .memfd = true }, { .fd = -1, .hva = 4096 } }, "private: godwit copies from QEMU's process" },
		{ { { .fd = 3, .hva = 4096 }, { .fd = 3 } }, "memory-backend-file with share=on is faster where" },
	};
	struct vm none = { .nblocks = 0 };
	struct check c = { 0 };

	(void)state;
	check_ram_access(&none, &c);
	assert_int_equal(row(&c, "RAM access")->result, CHECK_UNKNOWN);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct vm vm = { .nblocks = 2, .blocks = { cases[i].blocks[0], cases[i].blocks[1] } };

		c.n = 0;
		check_ram_access(&vm, &c);
		assert_int_equal(row(&c, "RAM access")->result, CHECK_OK);
		assert_non_null(strstr(row(&c, "RAM access")->text, cases[i].says));
	}
}

/* Two blocks here, of 8 MiB at 0 and of 4 MiB at 8 MiB, with these pages. "": no row. */
static void test_page_sizes(void **state)
{
#define THERE(a, b) "{\"ram\": {\"x\": {\"address\": 0}}, \"host\": {\"ram\": {" \
		    "\"x\": {\"bytes\": 8388608" a "}, \"r1\": {\"bytes\": 4194304" b "}}}}"
#define PAGES(n) ", \"page-size\": " n
	static const struct {
		uint32_t here[2];
		const char *there, *says;
		enum check_result result;
	} cases[] = {
		{ { 4096, 4096 }, THERE(PAGES("4096"), PAGES("4096")), "the same at both ends", CHECK_OK },
		{ { 2 << 20, 4096 }, THERE(PAGES("2097152"), PAGES("4096")), "the same at both ends", CHECK_OK },
		{ { 4096, 4096 }, THERE("", PAGES("4096")), "the same at both ends", CHECK_OK },
		{ { 4096, 4096 }, THERE("", ""), "", CHECK_OK },
		{ { 4096, 4096 }, "{}", "", CHECK_OK },
		{ { 4096, 4096 }, THERE(PAGES("-1"), PAGES("\"x\"")), "", CHECK_OK },
		{ { 4096, 4096 }, THERE(PAGES("4096"), PAGES("2097152")),
		  "RAM \"r1\" has pages of 4 KiB here and of 2 MiB at the destination: a touched page takes all of a huge page", CHECK_WARNING },
		{ { 1 << 30, 4096 }, THERE(PAGES("4096"), PAGES("4096")),
		  "RAM \"r0\" has pages of 1 GiB here and of 4 KiB at the destination: unless they become transparent huge pages",
		  CHECK_WARNING },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct vm vm = { .nblocks = 2, .blocks = {
			{ .name = "r0", .pages = 2048, .address = 0, .page_size = cases[i].here[0] },
			{ .name = "r1", .pages = 1024, .address = 8 << 20, .page_size = cases[i].here[1] },
		} };
		json_t *there = json_loads(cases[i].there, 0, NULL);
		struct check c = { 0 };

		assert_non_null(there);
		check_page_sizes(&vm, there, &c);
		json_decref(there);
		assert_int_equal(c.n, *cases[i].says ? 1 : 0);
		if (c.n) {
			assert_int_equal(row(&c, "page size")->result, cases[i].result);
			assert_non_null(strstr(row(&c, "page size")->text, cases[i].says));
		}
	}
}

static void test_no_qemu(void **state)
{
	struct check_options o = { .qmp_path = "/nowhere/qmp", .timeout_ms = 2000, .downtime_limit_ms = 300, .pause = true };
	struct check c;

	(void)state;
	check_run(&o, &c);
	assert_int_equal(check_verdict(&c), GW_NO_SOCKET);
	for (unsigned int i = 1; i < preflight_steps_count - 1; i++)
		assert_int_equal(c.rows[i].result, CHECK_UNKNOWN);
}

static enum check_result kernel(const char *release)
{
	struct check c = { 0 };

	check_kernel(release, &c);
	assert_int_equal(c.n, 1);
	return c.rows[0].result;
}

static void test_kernels(void **state)
{
	(void)state;
	assert_int_equal(kernel("6.1.0-56-amd64"), CHECK_OK);
	assert_int_equal(kernel("6.12.48+deb13-amd64"), CHECK_OK);
	assert_int_equal(kernel("7.3.13"), CHECK_OK);
	assert_int_equal(kernel("6.0.9"), CHECK_WARNING);
	assert_int_equal(kernel("5.10.0-8"), CHECK_WARNING);
	assert_int_equal(kernel("7.4.0"), CHECK_WARNING);
	assert_int_equal(kernel("11.0"), CHECK_WARNING);
	assert_int_equal(kernel("next"), CHECK_WARNING);
}

static void test_io_uring(void **state)
{
	static const struct {
		int err;
		uint64_t limit;
		enum check_result ring, memlock;
		const char *part;
	} cases[] = {
		{ 0, UINT64_MAX, CHECK_OK, CHECK_OK, "unlimited" },
		{ 0, 65536, CHECK_OK, CHECK_OK, "64 KiB" },
		{ -EPERM, 65536, CHECK_WARNING, CHECK_OK, "64 KiB" },
		{ -ENOMEM, 65536, CHECK_WARNING, CHECK_WARNING, "64 KiB is too little" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct check c = { 0 };

		check_io_uring(cases[i].err, cases[i].limit, &c);
		assert_int_equal(row(&c, "io_uring")->result, cases[i].ring);
		assert_int_equal(row(&c, "memlock limit")->result, cases[i].memlock);
		assert_non_null(strstr(row(&c, "memlock limit")->text, cases[i].part));
		assert_int_equal(check_verdict(&c), GW_OK);
	}
}

/* A row for a long link only; the hosts' defaults are enough for it, 100 KB are not, and what to set where is told. */
static void test_window(void **state)
{
	static const struct {
		uint64_t send, receive;
		unsigned int streams;
		enum check_result result;
		const char *part, *not;
	} cases[] = {
		{ 4 << 20, 6 << 20, 16, CHECK_OK, "up to 400.0 MiB/s", "set" },
		{ 100000, 6 << 20, 16, CHECK_WARNING, "value of net.ipv4.tcp_wmem on the source's host to 1250002 or more", "rmem" },
		{ 4 << 20, 100000, 16, CHECK_WARNING, "value of net.ipv4.tcp_rmem on the destination's host to 1250002 or more", "wmem" },
		{ 100000, 200000, 16, CHECK_WARNING, "wmem on the source's host, and of net.ipv4.tcp_rmem on the destination's host to", "-" },
		{ 1250002, 1250002, 16, CHECK_OK, "up to 119.2 MiB/s", "set" },
		{ 1250002, 6 << 20, 1, CHECK_WARNING, "let 1 connections", "-" },	/* the receiver allows one */
		/* An older receiver. */
		{ 4 << 20, 0, 16, CHECK_OK, "up to 400.0 MiB/s", "set" }, { 100000, 0, 16, CHECK_WARNING, "tcp_rmem", "-" },
	};
	struct window w = { .send = 100000, .receive = 100000, .streams = 2, .rtt_ns = 100000, .goal = WINDOW_GIGABIT };
	const struct check_row *told;
	struct check c = { 0 };

	(void)state;
	check_window(&w, &c);
	w.rtt_ns = 80000000;
	w.send = w.receive = 0;
	check_window(&w, &c);
	assert_int_equal(c.n, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		w.send = cases[i].send;
		w.receive = cases[i].receive;
		w.streams = cases[i].streams;
		c.n = 0;
		check_window(&w, &c);
		told = row(&c, "link window");
		assert_int_equal(told->result, cases[i].result);
		if (!strstr(told->text, cases[i].part) || strstr(told->text, cases[i].not))
			fail_msg("%s", told->text);
	}
	/* What --bandwidth leaves is enough. */
	w = (struct window) { .send = 100000, .receive = 100000, .streams = 16, .rtt_ns = 80000000, .goal = 9 << 20 };
	assert_false(window_lacks(&w, (char[400]) { "" }, 400));
}

/* With 0.5 % a connection over 20 ms carries 1.25 MB/s: so more of them are to be used, as far as there may be more. */
static void test_loss_row(void **state)
{
	static const struct {
		double share;
		uint64_t rtt_ns;
		unsigned int streams, most;
		enum check_result result;
		const char *part;
	} cases[] = {
		{ 0, 20000000, 4, 16, CHECK_OK, "nothing" }, { 0.005, 20000000, 4, 16, CHECK_WARNING, "--streams 16" },
		{ 0.005, 20000000, 4, 8, CHECK_WARNING, "--streams 8" }, { 0.005, 20000000, 4, 4, CHECK_WARNING, "4 connections, the most" },
		{ 0.0000005, 20000000, 4, 16, CHECK_OK, "nevertheless" }, { 0.000005, 20000000, 2, 16, CHECK_WARNING, "--streams 4" },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct loss l = {
			.share = cases[i].share, .segment = 1448, .streams = cases[i].streams, .rtt_ns = cases[i].rtt_ns,
		};
		struct check c = { 0 };

		check_loss(&l, cases[i].most, &c);
		assert_int_equal(row(&c, "link loss")->result, cases[i].result);
		assert_non_null(strstr(row(&c, "link loss")->text, cases[i].part));
		/* No row for a short link, or another kind of socket. */
		c.n = 0;
		l.rtt_ns = 100000;
		check_loss(&l, cases[i].most, &c);
		l.rtt_ns = cases[i].rtt_ns;
		l.segment = 0;
		check_loss(&l, cases[i].most, &c);
		assert_int_equal(c.n, 0);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_loss_row),
	cmocka_unit_test(test_every_reason_is_told),
	cmocka_unit_test(test_ram_row),
	cmocka_unit_test(test_ram_access),
	cmocka_unit_test(test_page_sizes),
	cmocka_unit_test(test_no_qemu),
	cmocka_unit_test(test_kernels),
	cmocka_unit_test(test_io_uring),
	cmocka_unit_test(test_window),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
