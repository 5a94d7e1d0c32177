// SPDX-License-Identifier: GPL-2.0-only
/* A session, up to the end of its handshake. */
#include <errno.h>
#include <gnutls/crypto.h>
#include <gnutls/x509.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/stop.h"
#include "base/text.h"
#include "tls/tls_internal.h"
#include "wire/wire.h"

#define EXPORT_LABEL	"EXPORTER-godwit"

enum tls_greeting tls_peek(int fd)
{
	uint8_t said[4];
	ssize_t n = recv(fd, said, sizeof(said), MSG_PEEK | MSG_DONTWAIT);

	if (n <= 0)
		return n && (errno == EAGAIN || errno == EINTR) ? TLS_SAYS_NOTHING : TLS_SAYS_OTHER;
	/* A handshake's record (22) of any version; a byte is enough to tell it from the other. */
	if (said[0] == 22 && (n < 2 || said[1] == 3))
		return TLS_SAYS_HELLO;
	if (n == sizeof(said) && !memcmp(said, &(uint32_t) { WIRE_MAGIC }, sizeof(said)))
		return TLS_SAYS_GODWIT;
	return n < (ssize_t)sizeof(said) && said[0] == (WIRE_MAGIC & 0xff) ? TLS_SAYS_NOTHING :
									    TLS_SAYS_OTHER;
}

/* A sender looks at what comes first, before the library takes it. true: it may take it. */
static bool session_peek(struct tls *t)
{
	enum tls_greeting says;

	/* The receiver has looked before it opened a session. */
	if (t->peeked || t->creds->role == TLS_RECEIVER)
		return true;
	says = tls_peek(t->fd);
	t->peeked = says != TLS_SAYS_NOTHING;
	t->plain = says == TLS_SAYS_GODWIT;
	errno = t->plain ? EPROTO : EAGAIN;
	return t->peeked && !t->plain;
}

/*
 * Exactly what the library asks for: what follows the last record of the handshake must stay in the
 * socket, for the kernel.
 */
static ssize_t session_pull(gnutls_transport_ptr_t p, void *buf, size_t len)
{
	struct tls *t = p;
	ssize_t n;

	if (!session_peek(t)) {
		gnutls_transport_set_errno(t->gnutls, errno);
		return -1;
	}
	do {
		n = recv(t->fd, buf, len, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	t->eof |= !n && len;
	if (n < 0 && errno != EAGAIN)
		t->sock_err = errno;
	if (n < 0)
		gnutls_transport_set_errno(t->gnutls, errno);
	return n;
}

static ssize_t session_push(gnutls_transport_ptr_t p, const giovec_t *iov, int n)
{
	struct tls *t = p;
	/* giovec_t is a struct iovec. */
	struct msghdr msg = { .msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n };
	ssize_t sent;

	do {
		sent = sendmsg(t->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	if (sent < 0 && errno != EAGAIN)
		t->sock_err = errno;
	if (sent < 0)
		gnutls_transport_set_errno(t->gnutls, errno);
	return sent;
}

static int session_pull_timeout(gnutls_transport_ptr_t p, unsigned int ms)
{
	struct pollfd fd = { .fd = ((struct tls *)p)->fd, .events = POLLIN };

	return poll(&fd, 1, (int)ms);
}

static int session_set_credentials(struct tls *t)
{
	const struct tls_creds *c = t->creds;

	if (c->psk_client)
		return gnutls_credentials_set(t->gnutls, GNUTLS_CRD_PSK, c->psk_client);
	if (c->psk_server)
		return gnutls_credentials_set(t->gnutls, GNUTLS_CRD_PSK, c->psk_server);
	if (c->role == TLS_RECEIVER)
		gnutls_certificate_server_set_request(t->gnutls, GNUTLS_CERT_REQUIRE);
	return gnutls_credentials_set(t->gnutls, GNUTLS_CRD_CERTIFICATE, c->x509);
}

/* GnuTLS calls it within the handshake, so an end that is not trusted gets nothing of ours. */
static int session_verify(gnutls_session_t session)
{
	struct tls *t = gnutls_session_get_ptr(session);
	bool sends = t->creds->role == TLS_SENDER;
	gnutls_typed_vdata_st data[] = {
		{ GNUTLS_DT_KEY_PURPOSE_OID, (unsigned char *)(sends ? GNUTLS_KP_TLS_WWW_SERVER :
								     GNUTLS_KP_TLS_WWW_CLIENT), 0 },
		{ GNUTLS_DT_DNS_HOSTNAME, (unsigned char *)t->creds->name, 0 },
	};
	int r;

	if (t->creds->nr_users)
		return 0;
	r = gnutls_certificate_verify_peers(session, data, sends ? 2 : 1, &t->untrusted);
	if (r < 0)
		return r;
	return t->untrusted ? GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR : 0;
}

int tls_open(const struct tls_creds *c, int fd, struct tls **out, struct err *e)
{
	struct tls *t = calloc(1, sizeof(*t));
	/* Tickets resume sessions, and come when the kernel reads. */
	unsigned int flags = GNUTLS_NO_TICKETS | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL |
			     (c->role == TLS_SENDER ? GNUTLS_CLIENT : GNUTLS_SERVER);
	int r;

	*out = NULL;
	if (!t)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	t->creds = c;
	t->fd = fd;
	t->alert = -1;
	r = gnutls_init(&t->gnutls, flags);
	if (r < 0) {
		free(t);
		return err_set(e, GW_INTERNAL, ENOMEM, "TLS: %s", gnutls_strerror(r));
	}
	gnutls_session_set_ptr(t->gnutls, t);
	gnutls_transport_set_ptr(t->gnutls, t);
	gnutls_transport_set_pull_function(t->gnutls, session_pull);
	gnutls_transport_set_vec_push_function(t->gnutls, session_push);
	gnutls_transport_set_pull_timeout_function(t->gnutls, session_pull_timeout);
	gnutls_session_set_verify_function(t->gnutls, session_verify);
	r = gnutls_priority_set(t->gnutls, c->priority);
	if (!r)
		r = session_set_credentials(t);
	if (!r) {
		*out = t;
		return 0;
	}
	tls_free(t);
	return err_set(e, GW_INTERNAL, EINVAL, "TLS: %s", gnutls_strerror(r));
}

void tls_free(struct tls *t)
{
	if (!t)
		return;
	tls_records_free(t->records);
	if (t->gnutls)
		gnutls_deinit(t->gnutls);
	gnutls_memset(t->secret, 0, sizeof(t->secret));
	free(t);
}

/* Words for the other end. It has proved to be that. */
static void session_name_peer(struct tls *t)
{
	unsigned int n = 0;
	const gnutls_datum_t *der = gnutls_certificate_get_peers(t->gnutls, &n);
	char name[256] = "", day[16] = "?";
	size_t len = sizeof(name);
	gnutls_x509_crt_t crt;
	time_t expires;
	struct tm tm;

	if (t->creds->psk_server)
		snprintf(name, sizeof(name), "%s", gnutls_psk_server_get_username(t->gnutls));
	if (t->creds->nr_users) {
		snprintf(t->peer, sizeof(t->peer), "a pre-shared key%s%s",
			 *name ? " of user " : "", name);
		return;
	}
	if (!n || gnutls_x509_crt_init(&crt) < 0)
		return;
	if (!gnutls_x509_crt_import(crt, der, GNUTLS_X509_FMT_DER) &&
	    !gnutls_x509_crt_get_dn(crt, name, &len)) {
		expires = gnutls_x509_crt_get_expiration_time(crt);
		if (gmtime_r(&expires, &tm))
			strftime(day, sizeof(day), "%Y-%m-%d", &tm);
		snprintf(t->peer, sizeof(t->peer), "%s, which expires on %s", name, day);
		one_line(t->peer, sizeof(t->peer), t->peer);
	}
	gnutls_x509_crt_deinit(crt);
}

static int session_done(struct tls *t, struct err *e)
{
	int r = gnutls_prf_rfc5705(t->gnutls, strlen(EXPORT_LABEL), EXPORT_LABEL, 0, NULL,
				   sizeof(t->secret), (char *)t->secret);

	/* The priorities leave no other; what follows from that stands on it. */
	if (r < 0 || gnutls_protocol_get_version(t->gnutls) != GNUTLS_TLS1_3 ||
	    gnutls_cipher_get(t->gnutls) != GNUTLS_CIPHER_AES_128_GCM)
		return err_set(e, GW_TLS, EPROTO, "TLS: the ends did not agree on TLS 1.3 with " TLS_CIPHER_NAME);
	session_name_peer(t);
	t->kernel = !t->keeps && tls_kernel_take(t);
	if (t->kernel) {
		gnutls_deinit(t->gnutls);
		t->gnutls = NULL;
		return 1;
	}
	r = tls_records_open(t);
	return r ? err_set(e, GW_INTERNAL, -r, "TLS: no buffers: %s", strerror(-r)) : 1;
}

int tls_step(struct tls *t, struct err *e)
{
	int r;

	do {
		r = gnutls_handshake(t->gnutls);
	} while (r == GNUTLS_E_INTERRUPTED || r == GNUTLS_E_WARNING_ALERT_RECEIVED);
	if (r == GNUTLS_E_AGAIN)
		return 0;
	if (!r)
		return session_done(t, e);
	if (t->plain)
		return err_set(e, GW_TLS, EPROTO, "the receiver does not use TLS: give it --tls-creds or --tls-psk, or leave TLS out here with --insecure on a network that you trust");
	return tls_words(t, r, e);
}

short tls_wants(const struct tls *t)
{
	return gnutls_record_get_direction(t->gnutls) ? POLLOUT : POLLIN;
}

/* One step of each that may go on. Return: how many are done, or an error. */
static int session_step_all(struct tls *const *all, unsigned int n, bool *done, struct err *e)
{
	int count = 0, r;

	for (unsigned int i = 0; i < n; i++) {
		r = done[i] ? 1 : tls_step(all[i], e);
		if (r < 0)
			return r;
		done[i] = r;
		count += r;
	}
	return count;
}

int tls_handshake(struct tls *const *all, unsigned int n, uint64_t deadline, struct err *e)
{
	bool done[WIRE_STREAMS_MAX] = { false };
	int r;

	while ((r = session_step_all(all, n, done, e)) >= 0 && r < (int)n) {
		struct pollfd p[WIRE_STREAMS_MAX];
		uint64_t now = now_ns();

		if (stop_requested())
			return stop_err(e);
		if (now > deadline)
			return err_set_silent(e, "TLS: the other host has stopped talking in the handshake");
		for (unsigned int i = 0; i < n; i++)
			p[i] = (struct pollfd) { .fd = done[i] ? -1 : all[i]->fd,
						 .events = done[i] ? 0 : tls_wants(all[i]) };
		poll(p, n, STOP_SLICE_NS / 1000000);
	}
	return r < 0 ? r : 0;
}

bool tls_is_long(uint64_t bytes, unsigned int streams)
{
	return bytes / streams > TLS_KERNEL_BYTES;
}

void tls_keep_keys(struct tls *t)
{
	t->keeps = true;
}

bool tls_in_kernel(const struct tls *t)
{
	return t->kernel;
}

const char *tls_peer(const struct tls *t)
{
	return t->peer;
}

void tls_export(const struct tls *t, const uint8_t *context, size_t len, uint8_t out[TLS_EXPORT])
{
	/* It fails only where the library has no SHA-256; then nothing matches. */
	if (gnutls_hmac_fast(GNUTLS_MAC_SHA256, t->secret, sizeof(t->secret), context, len,
			     out) < 0)
		gnutls_rnd(GNUTLS_RND_KEY, out, TLS_EXPORT);
}
