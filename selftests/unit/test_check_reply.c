// SPDX-License-Identifier: GPL-2.0-only
/* A receiver that is only asked: what it answers, and that it touches nothing, whatever is said. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "channel_rig.h"
#include "net/sock.h"
#include "qmp/qmp_internal.h"
#include "receive/receiver_internal.h"

/* Says all of it to a receiver with 1 MiB of RAM "ram0", and hangs up. Returns how many bytes it answered. */
static size_t ask(const struct wire_block *block, const void *said, size_t len, uint8_t *answer, size_t size)
{
	struct receiver_options o = { .timeout_ms = TIMEOUT_MS, .streams = 5 };
	struct qmp q = { .version = 70222 };
	struct receiver r = { .o = &o, .qmp = &q, .lfd = -1, .vm = { .nblocks = 1 } };
	struct wire_header h = { .type = WIRE_CHECK, .arg = 1, .length = (uint32_t)wire_blocks_size(block, 1) };
	struct wire_header got;
	uint8_t head[WIRE_HEADER], body[512];
	struct err e = { 0 };
	size_t n = 0;
	ssize_t more;
	int pair[2];

	strcpy(r.vm.blocks[0].name, "ram0");
	r.vm.blocks[0].pages = 256;
	r.vm.blocks[0].fd = -1;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(channel_new(pair[0], engine, TIMEOUT_MS, &r.ch, &e), 0);
	wire_put_header(head, &h);
	wire_put_blocks(body, block, 1);
	assert_int_equal(sock_send(pair[1], head, sizeof(head), deadline_ms(1000)), 0);
	assert_int_equal(sock_send(pair[1], body, h.length, deadline_ms(1000)), 0);
	assert_int_equal(sock_send(pair[1], said, len, deadline_ms(1000)), 0);
	shutdown(pair[1], SHUT_WR);
	assert_int_equal(channel_recv(r.ch, &got, false, &e), 0);
	check_reply(&r, &got);
	assert_null(r.ch);
	assert_null(r.streams);
	assert_null(r.migration.caps);
	while (n < size && (more = read(pair[1], answer + n, size - n)) > 0)
		n += (size_t)more;
	close(pair[1]);
	return n;
}

static void expect_header(const uint8_t *p, enum wire_type type, uint32_t arg)
{
	struct wire_header h;

	assert_int_equal(wire_get_header(p, &h), 0);
	assert_int_equal(h.type, type);
	assert_int_equal(h.arg, arg);
}

static void test_answered(void **state)
{
	static const struct wire_block same = { .pages = 256, .page_size = 4096, .name = "ram0" };
	struct wire_header probe = { .type = WIRE_PROBE, .length = 1000 }, ping = { .type = WIRE_PING, .arg = 7, .length = 8 };
	uint8_t said[2 * WIRE_HEADER + 1008] = { 0 }, answer[256];

	(void)state;
	wire_put_header(said, &probe);
	wire_put_header(said + WIRE_HEADER + 1000, &ping);
	assert_int_equal(ask(&same, said, sizeof(said), answer, sizeof(answer)), 2 * (WIRE_HEADER + 8));
	expect_header(answer, WIRE_CHECKED, 5);
	assert_int_equal(wire_get_u64(answer + WIRE_HEADER), 70222);
	expect_header(answer + WIRE_HEADER + 8, WIRE_PONG, 7);
	/* Nothing more than the question. */
	assert_int_equal(ask(&same, said, 0, answer, sizeof(answer)), WIRE_HEADER + 8);
}

static void test_refused(void **state)
{
	static const struct wire_block larger = { .pages = 512, .page_size = 4096, .name = "ram0" };
	static const struct wire_block other = { .pages = 256, .page_size = 4096, .name = "mem" };
	uint8_t answer[2048] = { 0 };
	size_t n;

	(void)state;
	n = ask(&larger, "", 0, answer, sizeof(answer) - 1);
	assert_true(n > WIRE_HEADER);
	expect_header(answer, WIRE_ABORT, GW_RAM_DIFFERS);
	assert_non_null(strstr((char *)answer + WIRE_HEADER, "2 MiB at the source and 1 MiB at the destination"));
	ask(&other, "", 0, answer, sizeof(answer) - 1);
	expect_header(answer, WIRE_ABORT, GW_RAM_DIFFERS);
}

/* What belongs to a migration is out of place, and garbage ends it. */
static void test_out_of_place(void **state)
{
	static const struct wire_block same = { .pages = 256, .page_size = 4096, .name = "ram0" };
	static const struct wire_header wrong[] = {
		{ .type = WIRE_COMMIT }, { .type = WIRE_ROUND, .arg = 1 }, { .type = WIRE_STREAMS, .arg = 1 }, { .type = WIRE_DEVICE_END },
		{ .type = WIRE_HELLO, .arg = WIRE_VERSION },
	};
	uint8_t said[WIRE_HEADER], answer[2048];

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		wire_put_header(said, &wrong[i]);
		assert_true(ask(&same, said, sizeof(said), answer, sizeof(answer)) > 2 * WIRE_HEADER + 8);
		expect_header(answer, WIRE_CHECKED, 5);
		expect_header(answer + WIRE_HEADER + 8, WIRE_ABORT, GW_BAD_PEER);
	}
	memset(said, 0xff, sizeof(said));
	assert_true(ask(&same, said, sizeof(said), answer, sizeof(answer)) > 2 * WIRE_HEADER + 8);
	expect_header(answer + WIRE_HEADER + 8, WIRE_ABORT, GW_VERSION);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_answered),
	cmocka_unit_test(test_refused),
	cmocka_unit_test(test_out_of_place),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
