// SPDX-License-Identifier: GPL-2.0-only
/* A client of a port that is served while the guest stands still is seen by the ring, and nothing else is. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "qmp_peer.h"
#include "vmm/serial_rings.h"

#define DEVICE	"/machine/peripheral/ser/virtio-backend"
#define OTHER	"/machine/peripheral/other/virtio-backend"
#define SAYS(text) "\"" text "\\r\\n\""

/* The used rings of QEMU, which is this process: flags, index. */
static volatile uint16_t ring[4][2];

struct qemu {
	struct peer_answer answers[16];
	char at[4][96];
};

/* Two serial devices, of 3 queues for output (the last is not set up) and of 1, and another device. */
static void script(struct qemu *m)
{
	static const struct peer_answer answers[] = {
		{ "\"x-query-virtio\"", "", "[{\"name\": \"virtio-blk\", \"path\": \"/machine/peripheral/disk\"},"
			" {\"name\": \"virtio-serial\", \"path\": \"" DEVICE "\"},"
			" {\"name\": \"virtio-serial\", \"path\": \"" OTHER "\"}]" },
		{ "\"x-query-virtio-queue-status\"", DEVICE "\",\"queue\":1}", "{\"vring-used\": 4096}" },
		{ "\"x-query-virtio-queue-status\"", DEVICE "\",\"queue\":3}", "{\"vring-used\": 8192}" },
		{ "\"x-query-virtio-queue-status\"", DEVICE "\",\"queue\":5}", "{\"vring-used\": 0}" },
		{ "\"x-query-virtio-queue-status\"", OTHER "\",\"queue\":1}", "{\"vring-used\": 12288}" },
		{ "gpa2hva 0x1002", "", NULL },
		{ "gpa2hva 0x2002", "", NULL },
		{ "gpa2hva 0x3002", "", SAYS("No memory is mapped at address 0x3002") },
		{ NULL, NULL, NULL },
	};

	memcpy(m->answers, answers, sizeof(answers));
	for (unsigned int i = 0; i < 2; i++) {
		snprintf(m->at[i], sizeof(m->at[i]), SAYS("Host virtual address for 0x%x (pc.ram) is %p"),
			 0x1002 + 0x1000 * i, (void *)(uintptr_t)&ring[i][1]);
		m->answers[5 + i].ret = m->at[i];
	}
}

static int find(const struct peer_answer *answers, struct serial_rings *r)
{
	struct err e = { 0 };
	struct peer p;
	struct qmp *q = peer_qemu(&p, answers, &e);
	int ret;

	assert_non_null(q);
	ret = serial_rings_find(q, getpid(), r, &e);
	peer_qemu_end(&p, q);
	return ret;
}

static void a_client_that_is_served_is_seen(void **state)
{
	struct serial_rings r = { 0 };
	struct err e = { 0 };
	struct qemu m;

	(void)state;
	script(&m);
	for (unsigned int i = 0; i < 2; i++) {
		ring[i][1] = 0xffff;
		assert_int_equal(find(m.answers, &r), 0);
		assert_int_equal(r.n, 2);
		/* What it took while the guest ran is the guest's. */
		ring[i][1] = 0;
		serial_rings_note(&r);
		ring[i][0]++;
		assert_int_equal(serial_rings_check(&r, &e), 0);
		ring[i][1]++;
		assert_int_equal(serial_rings_check(&r, &e), -EBUSY);
		assert_int_equal(e.exit, GW_VM_STATE);
		assert_non_null(strstr(e.text, DEVICE));
	}
	serial_rings_free(&r);
}

/* Of a QEMU that does not know the question, has no such device, or one that is not set up. */
static void where_there_is_none_nothing_is_said(void **state)
{
	static const struct peer_answer old[] = { { NULL, NULL, NULL } }, none[] = {
		{ "\"x-query-virtio\"", "", "[]" }, { NULL, NULL, NULL }
	}, gone[] = {
		{ "\"x-query-virtio\"", "", "[{\"name\": \"virtio-serial\", \"path\": \"" DEVICE "\"}]" },
		{ NULL, NULL, NULL }
	}, hostile[] = {
		{ "\"x-query-virtio\"", "", "[{\"name\": \"virtio-serial\", \"path\": \"" DEVICE "\"}, {\"name\": 3}, 5]" },
		{ "\"x-query-virtio-queue-status\"", "", "{\"vring-used\": -2}" },
		{ "gpa2hva", "", SAYS("Host virtual address for 0x0 (pc.ram) is 0x0") },
		{ NULL, NULL, NULL }
	};
	const struct peer_answer * const all[] = { old, none, gone, hostile };
	struct serial_rings r = { 0 };
	struct err e = { 0 };

	(void)state;
	for (unsigned int i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		assert_int_equal(find(all[i], &r), 0);
		serial_rings_note(&r);
		assert_int_equal(r.n, 0);
		assert_int_equal(serial_rings_check(&r, &e), 0);
	}
	serial_rings_free(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_client_that_is_served_is_seen),
		cmocka_unit_test(where_there_is_none_nothing_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
