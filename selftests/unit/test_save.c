// SPDX-License-Identifier: GPL-2.0-only
/* A device state that QEMU has saved becomes a stream for -incoming; and how QEMU is asked for it. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "devstate/save.h"
#include "qmp_peer.h"

#define HEADER	"QEVM\0\0\0\3"
/* QEMU_VM_SECTION_FULL, section 7, name, instance 0, version 1, length of the text, 100 bytes of it, end of section. */
#define GLOBAL	"\4\0\0\0\7\x0bglobalstate\0\0\0\0\0\0\0\1\0\0\0\x08"
#define END	"\0"

static size_t make(uint8_t *p, const char *text)
{
	uint8_t *start = p;

	memcpy(p, HEADER, 8);
	p += 8;
	memcpy(p, "\4some device", 12);
	p += 12;
	memcpy(p, GLOBAL, sizeof(GLOBAL) - 1);
	p += sizeof(GLOBAL) - 1;
	memset(p, 0x5a, 100);	/* newer QEMUs have more in there than the text */
	strcpy((char *)p, text);
	p += 100;
	memcpy(p, "\x7e\0\0\0\7" END, 6);
	return (size_t)(p + 6 - start);
}

static void test_stream(void **state)
{
	uint8_t in[512], out[512 + SAVE_MORE];
	static const uint8_t config[] = "\7\0\0\0\7pc-q35x";
	size_t len = make(in, "running"), more = sizeof(config) - 1;
	long n;

	(void)state;
	n = save_to_stream(in, len, "pc-q35x", true, out);
	assert_int_equal(n, len + more + 7);
	assert_memory_equal(out, in, 8);
	assert_memory_equal(out + 8, config, more);
	assert_memory_equal(out + 8 + more, in + 8, len - 8);
	assert_memory_equal(out + n - 7, "\6\0\0\0\2{}", 7);
	/* A paused guest: the same, but for the text and its length. */
	n = save_to_stream(in, len, "pc-q35x", false, out);
	assert_int_equal(n, len + more + 7);
	for (size_t i = 8; i < len; i++) {
		size_t text = 8 + 12 + sizeof(GLOBAL) - 1;

		if (i == text - 1)
			assert_int_equal(out[i + more], 7);
		else if (i >= text && i < text + 8)
			assert_int_equal(out[i + more], "paused\0"[i - text]);
		else
			assert_int_equal(out[i + more], in[i]);
	}
}

static void test_nonsense(void **state)
{
	uint8_t in[512], out[512 + SAVE_MORE];
	size_t len = make(in, "running"), other;

	(void)state;
	for (size_t n = 0; n < 9; n++)
		assert_int_equal(save_to_stream(in, n, "m", true, out), -EPROTO);
	for (size_t i = 0; i < 8; i++) {
		in[i] ^= 1;
		assert_int_equal(save_to_stream(in, len, "m", true, out), -EPROTO);
		in[i] ^= 1;
	}
	/* It has a configuration already; it does not end. */
	in[8] = 7;
	assert_int_equal(save_to_stream(in, len, "m", true, out), -EPROTO);
	in[8] = 4;
	in[len - 1] = 1;
	assert_int_equal(save_to_stream(in, len, "m", true, out), -EPROTO);
	in[len - 1] = 0;
	assert_true(save_to_stream(in, len, "m", true, out) > 0);
	/* It does not say "running": then there is no text to turn into "paused". */
	other = make(in, "paused");
	assert_int_equal(other, len);
	assert_true(save_to_stream(in, len, "m", true, out) > 0);
	assert_int_equal(save_to_stream(in, len, "m", false, out), -EPROTO);
	make(in, "running");
	/* The section is cut off, anywhere. */
	for (size_t n = 9; n < len - 6; n++) {
		uint8_t *cut = malloc(n);

		memcpy(cut, in, n);
		cut[n - 1] = 0;
		assert_int_equal(save_to_stream(cut, n, "m", false, out), -EPROTO);
		free(cut);
	}
}

/* A guest can write such a section into what a device keeps: which of both is QEMU's own is not known. */
static void test_second_section(void **state)
{
	uint8_t in[1024], out[1024 + SAVE_MORE];
	size_t len = make(in, "running"), at = 8 + 12;

	(void)state;
	for (unsigned int i = 0; i < 2; i++) {
		/* Before, or behind; whole, or not. */
		memmove(in + at + 200, in + at, len - at);
		memcpy(in + at, GLOBAL, sizeof(GLOBAL) - 1);
		strcpy((char *)in + at + sizeof(GLOBAL) - 1, i ? "paused" : "running");
		assert_int_equal(save_to_stream(in, len + 200, "m", false, out), -ENOTUNIQ);
		assert_true(save_to_stream(in, len + 200, "m", true, out) > 0);
		len = make(in, "running");
	}
	memcpy(in + len - 1, "\x0bglobalstate", 13);
	assert_int_equal(save_to_stream(in, len + 12, "m", false, out), -ENOTUNIQ);
}

static void test_says(void **state)
{
	const unsigned int both = SAVE_SAYS_RUNS | SAVE_SAYS_STANDS;
	uint8_t in[1024];
	size_t len;

	(void)state;
	len = make(in, "running");
	assert_int_equal(save_says(in, len), SAVE_SAYS_RUNS);
	assert_int_equal(save_says(in, len - 7), 0);
	assert_int_equal(save_says(in, 0), 0);
	make(in + len, "paused");
	assert_int_equal(save_says(in, 2 * len), both);
	make(in, "prelaunch");
	assert_int_equal(save_says(in, 2 * len), SAVE_SAYS_STANDS);
	make(in + len, "running");
	assert_int_equal(save_says(in, 2 * len), both);
	make(in, "running");
	assert_int_equal(save_says(in, 2 * len), SAVE_SAYS_RUNS);
	/* It ran, and the only note says whether an operator has paused it since. */
	assert_true(save_ran(SAVE_SAYS_RUNS, true, true));
	assert_false(save_ran(SAVE_SAYS_STANDS, true, true));
	/* It did not, but for who has continued it. */
	assert_true(save_ran(SAVE_SAYS_RUNS, false, true));
	assert_false(save_ran(SAVE_SAYS_RUNS, false, false));
	assert_false(save_ran(SAVE_SAYS_STANDS, false, false));
	/* QEMU has no such section for an old machine type. */
	assert_true(save_ran(0, true, true));
	assert_false(save_ran(0, false, false));
	for (unsigned int i = 0; i < 4; i++)
		assert_false(save_ran(both, i & 1, i & 2));
}

static void test_asked(void **state)
{
	static const struct peer_answer qemu[] = {
		{ "qom-get", "\"path\":\"/machine\"", "\"pc-q35-11.1-machine\"" },
		{ "add-fd", "\"opaque\":\"godwit\"", "{\"fdset-id\": 5, \"fd\": 17}" },
		{ "xen-save-devices-state", "\"filename\":\"/dev/fdset/5\"", "{}" },
		{ "query-fdsets", "", "[{\"fdset-id\": 1, \"fds\": [{\"fd\": 3}]}, {\"fdset-id\": 5, \"fds\": [{\"fd\": 17, \"opaque\": \"godwit\"}]}]" },
		{ "remove-fd", "\"fdset-id\":5", "{}" },
		{ NULL, NULL, NULL }
	};
	struct save_state s = SAVE_NONE;
	struct qmp_event ev;
	struct err e = { 0 };
	uint8_t state_bytes[512];
	size_t len = make(state_bytes, "running");
	int fds = open_fds();
	struct qmp *q;
	struct peer p;

	(void)state;
	q = peer_qemu(&p, qemu, &e);
	assert_non_null(q);
	assert_int_equal(save_open(&s, q, &e), 0);
	assert_string_equal(s.machine, "pc-q35-11.1");
	assert_int_equal(s.fdset, 5);
	assert_int_equal(save_begin(&s, q, &e), 0);
	while (!qmp_answered(q))
		assert_true(qmp_event(q, deadline_ms(100), &ev, &e) >= 0);
	/* What the peer got is written to as QEMU would. */
	assert_int_equal(fcntl(p.passed_fd, F_GETFL) & O_ACCMODE, O_WRONLY);
	assert_int_equal(save_finish(&s, true, &e), -EFBIG);
	assert_int_equal(e.exit, GW_QMP);
	assert_int_equal(write(p.passed_fd, state_bytes, len), len);
	assert_int_equal(save_finish(&s, true, &e), 0);
	assert_int_equal(s.len, len + 1 + 4 + strlen("pc-q35-11.1") + 7);
	assert_int_equal(pwrite(p.passed_fd, state_bytes, len, (off_t)len), len);
	free(s.state);
	e = (struct err) { 0 };
	assert_int_equal(save_finish(&s, false, &e), -ENOTUNIQ);
	assert_int_equal(e.exit, GW_VM_STATE);
	assert_non_null(strstr(e.text, "--device-state migrate"));
	assert_true(save_has_fdset(q));
	save_remove_fdset(q);
	save_close(&s);
	peer_qemu_end(&p, q);
	assert_string_equal(p.missed, "");
	assert_int_equal(open_fds(), fds);
}

static void test_strange_machine(void **state)
{
	static const char *const types[] = { "5", "\"\"", "\"-machine\"", "\"container\"", "\"pc-q35\"" };

	(void)state;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		const struct peer_answer qemu[] = { { "qom-get", "", types[i] }, { NULL, NULL, NULL } };
		struct save_state s = SAVE_NONE;
		struct err e = { 0 };
		struct qmp *q;
		struct peer p;

		q = peer_qemu(&p, qemu, &e);
		assert_non_null(q);
		assert_true(save_open(&s, q, &e) < 0);
		assert_int_equal(e.exit, GW_NOT_QEMU);
		save_close(&s);
		peer_qemu_end(&p, q);
	}
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_stream),
	cmocka_unit_test(test_nonsense),
	cmocka_unit_test(test_second_section),
	cmocka_unit_test(test_says),
	cmocka_unit_test(test_asked),
	cmocka_unit_test(test_strange_machine),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
