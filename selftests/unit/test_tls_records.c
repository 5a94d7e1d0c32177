// SPDX-License-Identifier: GPL-2.0-only
/* Records of TLS: every byte of what is sent, or none, and a reason. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tls_ends.h"

static uint8_t pattern(size_t i)
{
	return (uint8_t)(i * 2654435761u >> 13);
}

/* Sends len bytes of the pattern from end i, in vectors of odd sizes, and reads them as oddly. */
static void carry(struct ends *s, unsigned int i, size_t len, bool rekey)
{
	uint8_t *out = malloc(len), *in = malloc(len);
	size_t sent = 0, got = 0;
	unsigned int turn = 0, flushed = 1;
	uint64_t end = deadline_ms(20000);

	for (size_t k = 0; k < len; k++)
		out[k] = pattern(k);
	while (got < len && now_ns() < end) {
		size_t part = 1 + (turn * 7919u) % 40000, half;
		ssize_t n;

		turn++;
		/* The library takes eight a second. */
		if (flushed && rekey && turn < 12 && turn % 3 == 0)
			assert_int_equal(tls_rekey(s->t[i]), 0);
		if (flushed && rekey && turn == 7)
			assert_int_equal(tls_rekey(s->t[1 - i]), 0);
		if (flushed && sent < len) {
			if (part > len - sent)
				part = len - sent;
			half = part / 3;
			n = tls_seal(s->t[i], (struct iovec[]) { { out + sent, half }, { out + sent + half, part - half } }, 2);
			assert_int_equal(n, part);
			sent += part;
		}
		flushed = (unsigned int)tls_flush(s->t[i]);
		tls_flush(s->t[1 - i]);
		pump(s);
		part = 1 + (turn * 104729u) % 30000;
		if (part > len - got)
			part = len - got;
		half = part / 2;
		n = tls_read(s->t[1 - i], (struct iovec[]) { { in + got, half }, { in + got + half, part - half } }, 2);
		if (n == -EAGAIN)
			continue;
		assert_true(n > 0);
		got += (size_t)n;
		/* What the other end says by itself. */
		n = tls_read(s->t[i], &(struct iovec) { &(uint8_t) { 0 }, 1 }, 1);
		if (n != -EAGAIN)
			fail_msg("%zd %s", n, gnutls_strerror(s->t[i]->failed));
		tls_flush(s->t[i]);
	}
	assert_int_equal(got, len);
	assert_memory_equal(in, out, len);
	free(out);
	free(in);
}

static void all_bytes_arrive(void **state)
{
	const int little = 4608;
	struct ends s;

	(void)state;
	open_done(&s, "good", "good", false);
	for (unsigned int i = 0; i < 2; i++)
		setsockopt(s.fd[i], SOL_SOCKET, SO_SNDBUF, &little, sizeof(little));
	carry(&s, 0, 3000000, false);
	carry(&s, 1, 3000000, false);
	assert_false(tls_pending(s.t[0]) || tls_pending(s.t[1]));
	close_ends(&s);
}

static void keys_change(void **state)
{
	struct ends s;

	(void)state;
	open_done(&s, "psk", "psk", false);
	carry(&s, 0, 2000000, true);
	carry(&s, 1, 2000000, true);
	close_ends(&s);
}

/* A byte changed at any place of a record: no byte of it comes out, and both ends know why. */
static void changed_records(void **state)
{
	static const int places[] = { 0, 1, 3, 4, 5, 6, 100, 1000, 1020 };
	uint8_t data[1000] = { 1 }, in[1000];

	(void)state;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		struct ends s;
		struct err e = { 0 };
		ssize_t n;

		open_done(&s, "psk", "psk", true);
		/* Good data that the alert comes behind, in one read. */
		assert_int_equal(tls_seal(s.t[1], &(struct iovec) { data, 5 }, 1), 5);
		s.flip = places[i];
		assert_int_equal(tls_seal(s.t[0], &(struct iovec) { data, sizeof(data) }, 1), sizeof(data));
		assert_int_equal(tls_flush(s.t[0]), 1);
		/* A record that claims to be longer waits for more. */
		for (unsigned int k = 0; k < 40; k++) {
			tls_seal(s.t[0], &(struct iovec) { data, sizeof(data) }, 1);
			tls_flush(s.t[0]);
			pump(&s);
		}
		n = tls_read(s.t[1], &(struct iovec) { in, sizeof(in) }, 1);
		assert_int_equal(n, -EBADMSG);
		assert_true(tls_explain(s.t[1], (int)-n, &e));
		assert_int_equal(e.exit, GW_TLS);
		assert_non_null(strstr(e.text, "a record was changed on the way"));
		assert_int_equal(tls_flush(s.t[1]), 1);
		pump(&s);
		n = tls_read(s.t[0], &(struct iovec) { in, sizeof(in) }, 1);
		assert_int_equal(n, 5);
		n = tls_read(s.t[0], &(struct iovec) { in, sizeof(in) }, 1);
		assert_true(n < 0);
		e = (struct err) { 0 };
		assert_true(tls_explain(s.t[0], (int)-n, &e));
		assert_int_equal(e.exit, GW_TLS);
		assert_non_null(strstr(e.text, "the other host refuses"));
		close_ends(&s);
	}
}

/* Cut in the middle of a record, or between two: a link that is lost, and no byte that was not sent whole. */
static void cut_records(void **state)
{
	uint8_t data[5000] = { 7 }, in[5000], raw[12000];

	(void)state;
	for (unsigned int cut = 0; cut < 5000; cut += 777) {
		struct ends s;
		struct err e = { 0 };
		ssize_t n;

		open_done(&s, "psk", "psk", true);
		tls_seal(s.t[0], &(struct iovec) { data, sizeof(data) }, 1);
		assert_int_equal(tls_flush(s.t[0]), 1);
		n = recv(s.middle[0], raw, sizeof(raw), MSG_DONTWAIT);
		assert_true(n > 5000);
		assert_int_equal(send(s.middle[1], raw, cut, 0), cut);
		close_fd(&s.middle[1]);
		n = tls_read(s.t[1], &(struct iovec) { in, sizeof(in) }, 1);
		/* A part of a record is no byte, and then the end is there. */
		if (n == -EAGAIN)
			n = tls_read(s.t[1], &(struct iovec) { in, sizeof(in) }, 1);
		assert_int_equal(n, -ECONNRESET);
		assert_false(tls_explain(s.t[1], (int)-n, &e));
		close_ends(&s);
	}
}

/* The end that is said. */
static void farewell(void **state)
{
	uint8_t byte;
	struct ends s;

	(void)state;
	open_done(&s, "good", "good", false);
	carry(&s, 0, 1000, false);
	tls_bye(s.t[0]);
	assert_int_equal(tls_read(s.t[1], &(struct iovec) { &byte, 1 }, 1), 0);
	close_ends(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_bytes_arrive),
		cmocka_unit_test(keys_change),
		cmocka_unit_test(changed_records),
		cmocka_unit_test(cut_records),
		cmocka_unit_test(farewell),
	};

	return cmocka_run_group_tests(tests, setup_files, remove_files);
}
