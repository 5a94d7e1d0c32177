/* SPDX-License-Identifier: GPL-2.0-only */
/* Two ends of TLS with credentials of every kind, and what lies between them. Include after cmocka.h. */
#ifndef GODWIT_TLS_ENDS_H
#define GODWIT_TLS_ENDS_H

#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#include "base/clock.h"
#include "net/channel.h"
#include "net/sock.h"
#include "tls_rig.h"

/* Where the test's files are: /tmp/godwit-tls-XXXXXX/NAME */
static char top[64];

static inline const char *at(const char *name)
{
	static char path[4][128];
	static unsigned int next;
	char *p = path[next++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", top, name);
	return p;
}

static inline int setup_files(void **state)
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

static inline int remove_files(void **state)
{
	char command[96];

	(void)state;
	snprintf(command, sizeof(command), "rm -r %s", top);
	return system(command);
}

static inline struct tls_creds *creds(enum tls_role role, const char *name)
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

static inline void open_ends(struct ends *s, const char *sender, const char *receiver, bool middle)
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

static inline void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static inline void close_ends(struct ends *s)
{
	for (unsigned int i = 0; i < 2; i++) {
		tls_free(s->t[i]);
		tls_creds_free(s->c[i]);
		close_fd(&s->fd[i]);
		close_fd(&s->middle[i]);
	}
}

/* What has come at the middle goes on. */
static inline void pump(struct ends *s)
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
static inline void shake_for(struct ends *s, int r[2], unsigned int ms)
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

static inline void shake(struct ends *s, int r[2])
{
	shake_for(s, r, 5000);
}

static inline void open_done(struct ends *s, const char *sender, const char *receiver, bool middle)
{
	int r[2];

	open_ends(s, sender, receiver, middle);
	shake(s, r);
	if (r[0] != 1 || r[1] != 1)
		fail_msg("%s %s", s->e[0].text, s->e[1].text);
	assert_false(tls_in_kernel(s->t[0]));
}

#endif
