// SPDX-License-Identifier: GPL-2.0-only
/* The list of what is looked at before a guest leaves: send ends at the first refusal, check tells of all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "check/check_internal.h"
#include "qmp_peer.h"
#include "vmm/look.h"

#define CAPS	"[{\"capability\": \"x-ignore-shared\", \"state\": false}]"
#define PRIVATE	"[{\"id\": \"ram0\", \"size\": 1048576}]"
#define BLOCKED	"{\"blocked-reasons\": [\"0000:00:02.0/nvme: non-migratable\\ndevice\", \"another\"]}"

/* A QEMU with private RAM, which is served by this very process. */
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
		{ "qom-list", "", "[]" },
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
	struct peer_answer qemu[10];
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
	struct peer_answer qemu[10];
	struct qmp *q = NULL;
	struct peer p;
	struct look l = {
		.timeout_ms = 2000, .downtime_limit_ms = 300, .pause = true, .qmp = &q, .vm = &vm, .migration = &migration,
	};

	memset(e, 0, sizeof(*e));
	begin(&p, qemu, status, migrate);
	l.qmp_path = p.path;
	look_all(&l, e);
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
	assert_int_equal(row(&c, "QEMU's word")->result, CHECK_NO);
	assert_non_null(strstr(row(&c, "QEMU's word")->text, "\"0000:00:02.0/nvme: non-migratable device\": unplug"));
	assert_int_equal(row(&c, "RAM")->result, CHECK_NO);
	assert_int_equal(row(&c, "RAM")->exit, GW_RAM_PRIVATE);
	assert_int_equal(row(&c, "devices")->result, CHECK_OK);
	assert_int_equal(row(&c, "cache modes")->result, CHECK_OK);
	assert_int_equal(row(&c, "destination")->result, CHECK_UNKNOWN);
	assert_int_equal(check_verdict(&c), GW_VM_STATE);

	assert_int_equal(look("{\"status\": \"io-error\"}", BLOCKED, &e), GW_VM_STATE);
	assert_non_null(strstr(e.text, "io-error"));
	assert_string_equal(e.text, row(&c, "state")->text);
	assert_int_equal(look("{\"status\": \"running\"}", BLOCKED, &e), GW_VM_STATE);
	assert_string_equal(e.text, row(&c, "QEMU's word")->text);
	assert_int_equal(look("{\"status\": \"running\"}", "{}", &e), GW_RAM_PRIVATE);
	assert_string_equal(e.text, row(&c, "RAM")->text);
}

static void test_no_qemu(void **state)
{
	struct check_options o = { .qmp_path = "/nowhere/qmp", .timeout_ms = 2000, .downtime_limit_ms = 300, .pause = true };
	struct check c;

	(void)state;
	check_run(&o, &c);
	assert_int_equal(check_verdict(&c), GW_NO_SOCKET);
	for (unsigned int i = 1; i < look_steps_count - 1; i++)
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
	assert_int_equal(kernel("7.2.13"), CHECK_OK);
	assert_int_equal(kernel("6.0.9"), CHECK_WARNING);
	assert_int_equal(kernel("5.10.0-8"), CHECK_WARNING);
	assert_int_equal(kernel("7.3.0"), CHECK_WARNING);
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
		{ -ENOMEM, 65536, CHECK_WARNING, CHECK_WARNING, "64 KiB, too little" },
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

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_every_reason_is_told),
	cmocka_unit_test(test_no_qemu),
	cmocka_unit_test(test_kernels),
	cmocka_unit_test(test_io_uring),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
