// SPDX-License-Identifier: GPL-2.0-only
/* Why a handshake or a session has failed, for both ends: an alert for one, words for the other. */
#include <errno.h>
#include <string.h>

#include "tls/tls_internal.h"

#define RECORD_ALERT		21
#define RECORD_HANDSHAKE	22
#define HANDSHAKE_KEY_UPDATE	24
#define LEVEL_WARNING		1
#define LEVEL_FATAL		2
#define CHANGED "TLS: a record was changed on the way, or damaged: something between the hosts writes into the connection"

static const struct { int alert; const char *text; } alert_texts[] = {
	{ GNUTLS_A_UNKNOWN_CA, "another CA has signed this host's certificate: give both ends the same ca-cert.pem" },
	{ GNUTLS_A_CERTIFICATE_EXPIRED, "this host's certificate has expired, or is not valid yet: make a new one, or set the clocks" },
	{ GNUTLS_A_CERTIFICATE_REVOKED, "this host's certificate is revoked: make a new one" },
	{ GNUTLS_A_BAD_CERTIFICATE, "this host's certificate is not the one that it expects (another name, or made for another purpose)" },
	{ GNUTLS_A_CERTIFICATE_REQUIRED, "it wants a certificate of this host, and got none" },
	{ GNUTLS_A_DECRYPT_ERROR, "this host has another pre-shared key: copy one file to both hosts" },
	{ GNUTLS_A_ILLEGAL_PARAMETER, "this host has another pre-shared key: copy one file to both hosts" },
	{ GNUTLS_A_UNKNOWN_PSK_IDENTITY, "it does not know this host's user: copy one file of pre-shared keys to both hosts" },
	{ GNUTLS_A_HANDSHAKE_FAILURE, "it has credentials of another kind: give both ends --tls-creds, or both --tls-psk" },
	{ GNUTLS_A_INSUFFICIENT_SECURITY, "it has credentials of another kind: give both ends --tls-creds, or both --tls-psk" },
	{ GNUTLS_A_MISSING_EXTENSION, "it has credentials of another kind: give both ends --tls-creds, or both --tls-psk" },
	{ GNUTLS_A_PROTOCOL_VERSION, "it does not offer TLS 1.3" },
	{ GNUTLS_A_BAD_RECORD_MAC, "a record was changed on the way, or damaged" },
};

/* The other end has said it. */
static int words_alert(const struct tls *t, int alert, struct err *e)
{
	/* With certificates it is no key that is wrong. */
	if (!t->creds->nr_users &&
	    (alert == GNUTLS_A_DECRYPT_ERROR || alert == GNUTLS_A_ILLEGAL_PARAMETER))
		return err_set(e, GW_TLS, ECONNABORTED, "TLS: the other host refuses: the handshake was changed on the way, or damaged");
	for (size_t i = 0; i < sizeof(alert_texts) / sizeof(alert_texts[0]); i++)
		if (alert_texts[i].alert == alert)
			return err_set(e, GW_TLS, ECONNABORTED, "TLS: the other host refuses: %s",
				       alert_texts[i].text);
	return err_set(e, GW_TLS, ECONNABORTED, "TLS: the other host refuses: alert %d (%s)", alert,
		       gnutls_alert_get_name((gnutls_alert_description_t)alert));
}

static const struct {
	unsigned int bit;
	gnutls_alert_description_t alert;
	const char *text;
} untrusted_texts[] = {
	{ GNUTLS_CERT_EXPIRED, GNUTLS_A_CERTIFICATE_EXPIRED, "has expired: make a new one there" },
	{ GNUTLS_CERT_NOT_ACTIVATED, GNUTLS_A_CERTIFICATE_EXPIRED, "is not valid yet: compare the hosts' clocks" },
	{ GNUTLS_CERT_REVOKED, GNUTLS_A_CERTIFICATE_REVOKED, "is revoked" },
	{ GNUTLS_CERT_SIGNER_NOT_FOUND, GNUTLS_A_UNKNOWN_CA, "is of another CA than this host's ca-cert.pem" },
	{ GNUTLS_CERT_PURPOSE_MISMATCH, GNUTLS_A_BAD_CERTIFICATE, "was made for another purpose: the receiver needs a server's, the sender a client's" },
};

static int words_untrusted(struct tls *t, struct err *e)
{
	/* The name only matters of a certificate that is good otherwise. */
	gnutls_alert_description_t alert = GNUTLS_A_BAD_CERTIFICATE;
	const char *text = "is not to be trusted";

	for (size_t i = 0; i < sizeof(untrusted_texts) / sizeof(untrusted_texts[0]); i++) {
		if (!(t->untrusted & untrusted_texts[i].bit))
			continue;
		alert = untrusted_texts[i].alert;
		text = untrusted_texts[i].text;
		break;
	}
	gnutls_alert_send(t->gnutls, GNUTLS_AL_FATAL, alert);
	if (t->untrusted == (GNUTLS_CERT_INVALID | GNUTLS_CERT_UNEXPECTED_OWNER) ||
	    t->untrusted == GNUTLS_CERT_UNEXPECTED_OWNER)
		return err_set(e, GW_TLS, EACCES, "TLS: the receiver's certificate is not for the name \"%s\": use the name that it is for, or give it with --tls-hostname",
			       t->creds->name);
	return err_set(e, GW_TLS, EACCES, "TLS: the other host's certificate %s", text);
}

int tls_words(struct tls *t, int code, struct err *e)
{
	t->ended = true;
	if (code == GNUTLS_E_FATAL_ALERT_RECEIVED)
		return words_alert(t, (int)gnutls_alert_get(t->gnutls), e);
	if (code == GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR)
		return words_untrusted(t, e);
	if (t->sock_err || t->eof)
		return err_set(e, GW_LINK_LOST, t->sock_err ? t->sock_err : ECONNRESET,
			       "the connection broke in the TLS handshake: %s",
			       t->sock_err ? strerror(t->sock_err) : "the other host has closed it");
	gnutls_alert_send_appropriate(t->gnutls, code);
	switch (code) {
	case GNUTLS_E_NO_CERTIFICATE_FOUND:
	case GNUTLS_E_CERTIFICATE_REQUIRED:
		return err_set(e, GW_TLS, EACCES, "TLS: the other host has no certificate: give it --tls-creds, with a certificate of this CA");
	case GNUTLS_E_DECRYPTION_FAILED:
		return err_set(e, GW_TLS, EBADMSG, CHANGED);
	case GNUTLS_E_RECEIVED_ILLEGAL_PARAMETER:
	case GNUTLS_E_NO_CIPHER_SUITES:
	case GNUTLS_E_INSUFFICIENT_CREDENTIALS:
	case GNUTLS_E_NO_COMMON_KEY_SHARE:
		return err_set(e, GW_TLS, EACCES, "TLS: the ends have different credentials (%s): give both the same kind, and with --tls-psk the same file",
			       gnutls_strerror(code));
	case GNUTLS_E_UNEXPECTED_PACKET:
	case GNUTLS_E_UNSUPPORTED_VERSION_PACKET:
	case GNUTLS_E_UNEXPECTED_PACKET_LENGTH:
	case GNUTLS_E_RECORD_OVERFLOW:
		return err_set(e, GW_TLS, EPROTO, "TLS: the other end does not speak TLS, or not version 1.3");
	default:
		return err_set(e, GW_TLS, EPROTO, "TLS: the handshake failed: %s", gnutls_strerror(code));
	}
}

/* A record that is no data has stopped a read. */
static bool words_control(struct tls *t, struct err *e)
{
	uint8_t buf[256], type = 0;
	ssize_t n = tls_kernel_control(t->fd, &type, buf, sizeof(buf));

	if (n < 0)
		return false;
	t->ended = true;
	/* close_notify is the end of a connection as any other. */
	if (type == RECORD_ALERT && n >= 2 && buf[1] == GNUTLS_A_CLOSE_NOTIFY)
		return false;
	if (type == RECORD_ALERT && n >= 2) {
		words_alert(t, buf[1], e);
		return true;
	}
	tls_kernel_alert(t->fd, LEVEL_FATAL, GNUTLS_A_UNEXPECTED_MESSAGE);
	if (type == RECORD_HANDSHAKE && n >= 1 && buf[0] == HANDSHAKE_KEY_UPDATE)
		err_set(e, GW_TLS, EOPNOTSUPP, "TLS: the other host changes its keys, which this kernel's TLS cannot follow: install the same version of godwit at both ends");
	else
		err_set(e, GW_TLS, EPROTO, "TLS: the other host sent a record of type %u, which has no place here", type);
	return true;
}

static bool words_kernel(struct tls *t, int err, struct err *e)
{
	if (err == EIO)
		return words_control(t, e);
	/* EINVAL, EMSGSIZE: the record's header makes no sense. */
	if (err != EBADMSG && err != EINVAL && err != EMSGSIZE)
		return false;
	t->ended = true;
	tls_kernel_alert(t->fd, LEVEL_FATAL, GNUTLS_A_BAD_RECORD_MAC);
	err_set(e, GW_TLS, EBADMSG, CHANGED);
	return true;
}

static bool words_session(struct tls *t, struct err *e)
{
	if (!t->failed || t->sock_err || t->eof)
		return false;
	if (t->failed == GNUTLS_E_FATAL_ALERT_RECEIVED) {
		words_alert(t, t->alert, e);
		return true;
	}
	if (!t->ended)
		gnutls_alert_send_appropriate(t->gnutls, t->failed);
	t->ended = true;
	tls_flush(t);
	if (t->failed == GNUTLS_E_DECRYPTION_FAILED ||
	    t->failed == GNUTLS_E_UNEXPECTED_PACKET_LENGTH ||
	    t->failed == GNUTLS_E_RECORD_OVERFLOW ||
	    t->failed == GNUTLS_E_UNSUPPORTED_VERSION_PACKET ||
	    t->failed == GNUTLS_E_UNEXPECTED_PACKET)
		err_set(e, GW_TLS, EBADMSG, CHANGED);
	else
		err_set(e, GW_TLS, EPROTO, "TLS: %s", gnutls_strerror(t->failed));
	return true;
}

bool tls_explain(struct tls *t, int err, struct err *e)
{
	if (t->ended)
		return false;
	return t->kernel ? words_kernel(t, err, e) : words_session(t, e);
}

void tls_bye(struct tls *t)
{
	if (t->ended)
		return;
	t->ended = true;
	if (t->kernel) {
		tls_kernel_alert(t->fd, LEVEL_WARNING, GNUTLS_A_CLOSE_NOTIFY);
	} else if (t->records && tls_flush(t) == 1) {
		gnutls_bye(t->gnutls, GNUTLS_SHUT_WR);
		tls_flush(t);
	}
}
