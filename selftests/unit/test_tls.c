// SPDX-License-Identifier: GPL-2.0-only
/* Sessions of TLS: which ends come together, what each says of others, and every byte of what is sent. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "net/channel.h"
#include "net/sock.h"
#include "tls_rig.h"

/* Where the test's files are: /tmp/godwit-tls-XXXXXX/NAME */
static char top[64];

static const char *at(const char *name)
{
	static char path[4][128];
	static unsigned int next;
	char *p = path[next++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", top, name);
	return p;
}

static int setup_files(void **state)
{
	time_t later = time(NULL) + 100 * DAY;
	struct signer ca, other;

	(void)state;
	strcpy(top, "/tmp/godwit-tls-XXXXXX");
	assert_non_null(mkdtemp(top));
	ca = make_certificate(NULL, "the test's CA", later, NULL);
	other = make_certificate(NULL, "another CA", later, NULL);
	make_directory(at("good"), &ca, "server", "there.example", later, GNUTLS_KP_TLS_WWW_SERVER);
	make_directory(at("good"), &ca, "client", "here.example", later, GNUTLS_KP_TLS_WWW_CLIENT);
	make_directory(at("foreign"), &other, "server", "there.example", later, GNUTLS_KP_TLS_WWW_SERVER);
	make_directory(at("foreign"), &other, "client", "here.example", later, GNUTLS_KP_TLS_WWW_CLIENT);
	make_directory(at("swapped"), &ca, "server", "there.example", later, GNUTLS_KP_TLS_WWW_CLIENT);
	make_directory(at("swapped"), &ca, "client", "here.example", later, GNUTLS_KP_TLS_WWW_SERVER);
	make_directory(at("old"), &ca, "server", "there.example", time(NULL) - DAY, GNUTLS_KP_TLS_WWW_SERVER);
	make_directory(at("old"), &ca, "client", "here.example", time(NULL) - DAY, GNUTLS_KP_TLS_WWW_CLIENT);
	make_directory(at("mixed"), &ca, "server", "there.example", later, GNUTLS_KP_TLS_WWW_SERVER);
	write_signer(at("mixed"), "ca-cert.pem", NULL, &other);
	free_signer(&ca);
	free_signer(&other);
	write_text(at("psk"), "godwit:00112233445566778899aabbccddeeff\nmore:ffeeddccbbaa99887766554433221100\n");
	write_text(at("psk-wrong"), "godwit:00112233445566778899aabbccddeefe\n");
	write_text(at("psk-user"), "stranger:00112233445566778899aabbccddeeff\n");
	return 0;
}

static int remove_files(void **state)
{
	char command[96];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", top);
	return system(command);
}

static struct tls_creds *creds(enum tls_role role, const char *name)
{
	struct tls_options o = { 0 };
	struct tls_creds *c;
	struct err e = { 0 };

	if (strncmp(name, "psk", 3))
		o.creds = at(name);
	else
		o.psk = at(name);
	if (tls_creds_open(&o, role, &c, &e))
		fail_msg("%s: %s", name, e.text);
	tls_creds_call(c, "there.example:4433");
	return c;
}

/**
 * struct ends - two ends of TLS; with a middle, pump() carries their bytes
 * @fd: their sockets
 * @middle: the other ends of these, or -1: they are connected to each other
 * @flip: which byte to the receiver is changed, counted from 0; -1: none
 */
struct ends {
	struct tls_creds *c[2];
	struct tls *t[2];
	int fd[2], middle[2];
	int64_t flip;
	struct err e[2];
};

static void open_ends(struct ends *s, const char *sender, const char *receiver, bool middle)
{
	struct err e = { 0 };
	int a[2], b[2];

	memset(s, 0, sizeof(*s));
	s->flip = -1;
	s->c[0] = creds(TLS_SENDER, sender);
	s->c[1] = creds(TLS_RECEIVER, receiver);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, a), 0);
	s->fd[0] = a[0];
	s->fd[1] = a[1];
	s->middle[0] = s->middle[1] = -1;
	if (middle) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, b), 0);
		s->middle[0] = a[1];
		s->middle[1] = b[1];
		s->fd[1] = b[0];
	}
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(tls_open(s->c[i], s->fd[i], &s->t[i], &e), 0);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void close_ends(struct ends *s)
{
	for (unsigned int i = 0; i < 2; i++) {
		tls_free(s->t[i]);
		tls_creds_free(s->c[i]);
		close_fd(&s->fd[i]);
		close_fd(&s->middle[i]);
	}
}

/* What has come at the middle goes on. */
static void pump(struct ends *s)
{
	uint8_t buf[65536];

	for (unsigned int i = 0; i < 2 && s->middle[0] >= 0; i++) {
		ssize_t n;

		while ((n = recv(s->middle[i], buf, sizeof(buf), MSG_DONTWAIT)) > 0) {
			if (!i && s->flip >= 0 && s->flip < n)
				buf[s->flip] ^= 0x10;
			if (!i)
				s->flip = s->flip >= n ? s->flip - n : -1;
			assert_int_equal(send(s->middle[1 - i], buf, (size_t)n, MSG_NOSIGNAL), n);
		}
	}
}

/* Both handshakes to their ends: 1, or the error. */
static void shake_for(struct ends *s, int r[2], unsigned int ms)
{
	uint64_t end = deadline_ms(ms);

	r[0] = r[1] = 0;
	while ((!r[0] || !r[1]) && now_ns() < end)
		for (unsigned int i = 0; i < 2; i++) {
			if (!r[i])
				r[i] = tls_step(s->t[i], &s->e[i]);
			/* What fails closes its end, as godwit does. */
			if (r[i] < 0)
				shutdown(s->fd[i], SHUT_WR);
			pump(s);
		}
}

static void shake(struct ends *s, int r[2])
{
	shake_for(s, r, 5000);
}

static void open_done(struct ends *s, const char *sender, const char *receiver, bool middle)
{
	int r[2];

	open_ends(s, sender, receiver, middle);
	shake(s, r);
	if (r[0] != 1 || r[1] != 1)
		fail_msg("%s %s", s->e[0].text, s->e[1].text);
	assert_false(tls_in_kernel(s->t[0]));
}

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
		cmocka_unit_test(all_bytes_arrive),
		cmocka_unit_test(keys_change),
		cmocka_unit_test(changed_records),
		cmocka_unit_test(cut_records),
		cmocka_unit_test(farewell),
		cmocka_unit_test(changed_handshakes),
		cmocka_unit_test(first_bytes),
		cmocka_unit_test(options_that_contradict),
	};

	return cmocka_run_group_tests(tests, setup_files, remove_files);
}
