// SPDX-License-Identifier: GPL-2.0-only
/* Sessions of TLS: which ends come together, and what each says of others. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tls_ends.h"

static void both_ways_in(void **state)
{
	static const char *const kinds[] = { "good", "psk" };
	uint8_t a[TLS_EXPORT], b[TLS_EXPORT], other[TLS_EXPORT];

	(void)state;
	for (unsigned int k = 0; k < 2; k++) {
		struct ends s;

		open_done(&s, kinds[k], kinds[k], false);
		assert_non_null(strstr(tls_peer(s.t[0]), k ? "pre-shared key" : "CN=there.example"));
		assert_non_null(strstr(tls_peer(s.t[1]), k ? "of user godwit" : "CN=here.example"));
		tls_export(s.t[0], (const uint8_t *)"context", 7, a);
		tls_export(s.t[1], (const uint8_t *)"context", 7, b);
		tls_export(s.t[1], (const uint8_t *)"Context", 7, other);
		assert_memory_equal(a, b, TLS_EXPORT);
		assert_memory_not_equal(a, other, TLS_EXPORT);
		close_ends(&s);
	}
}

/* Another session has another secret, so a stream cannot be of another migration. */
static void secrets_are_the_sessions_own(void **state)
{
	uint8_t a[TLS_EXPORT], b[TLS_EXPORT];
	struct ends s, s2;

	(void)state;
	open_done(&s, "psk", "psk", false);
	open_done(&s2, "psk", "psk", false);
	tls_export(s.t[0], (const uint8_t *)"x", 1, a);
	tls_export(s2.t[0], (const uint8_t *)"x", 1, b);
	assert_memory_not_equal(a, b, TLS_EXPORT);
	close_ends(&s);
	close_ends(&s2);
}

/**
 * struct wrong - two ends that must not come together, and what each says
 * @no_cert: the sender shows no certificate
 */
static const struct wrong {
	const char *sender, *receiver, *called, *says[2];
	bool no_cert;
} wrong[] = {
	{ "good", "foreign", NULL, { "is of another CA", "another CA has signed" }, false },
	{ "foreign", "good", NULL, { "is of another CA", "another CA has signed" }, false },
	{ "good", "mixed", NULL, { NULL, NULL }, false },
	{ "good", "good", "elsewhere.example:1", { "not for the name \"elsewhere.example\"", "not the one that it expects" }, false },
	{ "good", "swapped", NULL, { "made for another purpose", "made for another purpose" }, false },
	{ "swapped", "good", NULL, { "made for another purpose", "made for another purpose" }, false },
	{ "good", "good", NULL, { "wants a certificate of this host", "has no certificate" }, true },
	{ "psk", "psk-wrong", NULL, { "pre-shared key", "different credentials" }, false },
	{ "psk-user", "psk", NULL, { "pre-shared key", "different credentials" }, false },
	{ "psk", "good", NULL, { "credentials of another kind", "different credentials" }, false },
	{ "good", "psk", NULL, { "credentials of another kind", "different credentials" }, false },
};

static bool either_says(const struct ends *s, const char *text)
{
	return !text || strstr(s->e[0].text, text) || strstr(s->e[1].text, text);
}

static void wrong_ends_are_refused(void **state)
{
	uint8_t c;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const struct wrong *w = &wrong[i];
		/* "mixed" trusts another CA than the one that has signed its own certificate. */
		struct tls_options o = { .creds = at("mixed") };
		struct ends s;
		int r[2];

		if (!strcmp(w->receiver, "mixed")) {
			struct tls_creds *none;
			struct err e = { 0 };

			assert_true(tls_creds_open(&o, TLS_RECEIVER, &none, &e) < 0);
			assert_null(none);
			assert_int_equal(e.exit, GW_TLS);
			assert_non_null(strstr(e.text, "the CA of ca-cert.pem has not signed it"));
			continue;
		}
		open_ends(&s, w->sender, w->receiver, true);
		if (w->called)
			snprintf(s.c[0]->name, sizeof(s.c[0]->name), "%.*s", (int)strcspn(w->called, ":"), w->called);
		if (w->no_cert)
			gnutls_certificate_free_keys(s.c[0]->x509);
		shake(&s, r);
		/* TLS 1.3: the sender may be done before the receiver has seen its certificate. */
		if (r[0] == 1) {
			for (unsigned int n = 0; n < 3; n++)
				pump(&s);
			r[0] = (int)tls_read(s.t[0], &(struct iovec) { &c, 1 }, 1);
			assert_true(r[0] < 0);
			assert_true(tls_explain(s.t[0], -r[0], &s.e[0]));
		}
		print_message("%s to %s:\n  %s\n  %s\n", w->sender, w->receiver, s.e[0].text, s.e[1].text);
		assert_true(r[0] < 0 && r[1] < 0);
		assert_int_equal(s.e[0].exit, GW_TLS);
		assert_int_equal(s.e[1].exit, GW_TLS);
		assert_true(either_says(&s, w->says[0]) && either_says(&s, w->says[1]));
		close_ends(&s);
	}
}

/* Our own certificate has expired: said at once. One that expires while we run: said by both ends. */
static void expired_certificates(void **state)
{
	struct tls_options o = { .creds = at("old") };
	struct tls_creds *c;
	struct err e = { 0 };

	(void)state;
	for (enum tls_role role = TLS_SENDER; role <= TLS_RECEIVER; role++) {
		e = (struct err) { 0 };
		assert_true(tls_creds_open(&o, role, &c, &e) < 0);
		assert_int_equal(e.exit, GW_TLS);
		assert_non_null(strstr(e.text, "it has expired"));
	}
	for (unsigned int which = 0; which < 2; which++) {
		struct tls_creds *good;
		struct ends s;
		char cert[128], key[128];
		int r[2];
		uint8_t byte;

		open_ends(&s, "good", "good", true);
		good = s.c[which];
		snprintf(cert, sizeof(cert), "%s/%s-cert.pem", at("old"), which ? "server" : "client");
		snprintf(key, sizeof(key), "%s/%s-key.pem", at("old"), which ? "server" : "client");
		gnutls_certificate_free_keys(good->x509);
		assert_int_equal(gnutls_certificate_set_x509_key_file(good->x509, cert, key, GNUTLS_X509_FMT_PEM), 0);
		shake(&s, r);
		if (r[0] == 1) {
			pump(&s);
			r[0] = (int)tls_read(s.t[0], &(struct iovec) { &byte, 1 }, 1);
			assert_true(r[0] < 0 && tls_explain(s.t[0], -r[0], &s.e[0]));
		}
		assert_true(r[0] < 0 && r[1] < 0);
		assert_non_null(strstr(s.e[which].text, "this host's certificate has expired"));
		assert_non_null(strstr(s.e[1 - which].text, "the other host's certificate has expired"));
		close_ends(&s);
	}
}

/* A changed byte of the sender's handshake: the receiver does not take it for done. */
static void changed_handshakes(void **state)
{
	unsigned int done = 0;

	(void)state;
	for (int64_t flip = 0; flip < 870; flip += 29) {
		struct ends s;
		int r[2];

		open_ends(&s, "good", "good", true);
		s.flip = flip;
		shake_for(&s, r, 500);
		/* Silence at the worst, where a record claims to be longer; words for all else. */
		assert_true(r[1] >= 0 || (s.e[1].exit == GW_TLS && *s.e[1].text));
		/* A byte without meaning is in the record of type 20, and in versions. */
		done += r[1] == 1;
		close_ends(&s);
	}
	assert_in_range(done, 0, 3);
}

static enum tls_greeting greeting(const char *bytes, size_t len, bool end)
{
	enum tls_greeting g;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(send(pair[0], bytes, len, 0), len);
	if (end)
		shutdown(pair[0], SHUT_WR);
	g = tls_peek(pair[1]);
	close(pair[0]);
	close(pair[1]);
	return g;
}

static void first_bytes(void **state)
{
	uint32_t magic = WIRE_MAGIC;
	const char *m = (const char *)&magic;

	(void)state;
	assert_int_equal(greeting("", 0, false), TLS_SAYS_NOTHING);
	assert_int_equal(greeting("", 0, true), TLS_SAYS_OTHER);
	assert_int_equal(greeting("\x16", 1, false), TLS_SAYS_HELLO);
	assert_int_equal(greeting("\x16\x03\x01\x02", 4, false), TLS_SAYS_HELLO);
	assert_int_equal(greeting("\x16\x02\x01\x02", 4, false), TLS_SAYS_OTHER);
	assert_int_equal(greeting(m, 4, false), TLS_SAYS_GODWIT);
	assert_int_equal(greeting(m, 2, false), TLS_SAYS_NOTHING);
	assert_int_equal(greeting("GET / HTTP", 10, false), TLS_SAYS_OTHER);
}

static void options_that_contradict(void **state)
{
	const struct tls_options wrongly[] = {
		{ .creds = "a", .psk = "b" }, { .insecure = true, .creds = "a" }, { .insecure = true, .psk = "a" },
		{ .hostname = "h", .psk = "b" }, { .hostname = "h", .insecure = true },
	};
	struct tls_creds *c;

	(void)state;
	for (size_t i = 0; i < sizeof(wrongly) / sizeof(wrongly[0]); i++) {
		struct err e = { 0 };

		assert_true(tls_creds_open(&wrongly[i], TLS_SENDER, &c, &e) < 0);
		assert_null(c);
		assert_int_equal(e.exit, GW_USAGE);
	}
	for (unsigned int i = 0; i < 2; i++) {
		struct tls_options o = { .creds = i ? NULL : at("no-such"), .psk = i ? at("no-such") : NULL };
		struct err e = { 0 };

		assert_true(tls_creds_open(&o, TLS_SENDER, &c, &e) < 0);
		assert_int_equal(e.exit, GW_TLS);
		assert_non_null(strstr(e.text, "psktool"));	/* the way out */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ways_in),
		cmocka_unit_test(secrets_are_the_sessions_own),
		cmocka_unit_test(wrong_ends_are_refused),
		cmocka_unit_test(expired_certificates),
		cmocka_unit_test(changed_handshakes),
		cmocka_unit_test(first_bytes),
		cmocka_unit_test(options_that_contradict),
	};

	return cmocka_run_group_tests(tests, setup_files, remove_files);
}
