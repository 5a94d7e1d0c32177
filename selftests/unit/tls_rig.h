/* SPDX-License-Identifier: GPL-2.0-only */
/* Certificates made on the spot, and two ends of TLS with bytes between them. Include after cmocka.h. */
#ifndef GODWIT_TLS_RIG_H
#define GODWIT_TLS_RIG_H

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tls/tls_internal.h"

#define DAY	86400

struct signer {
	gnutls_x509_crt_t crt;
	gnutls_x509_privkey_t key;
};

static inline void write_pem(const char *dir, const char *name, const gnutls_datum_t *pem)
{
	char path[300];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	fwrite(pem->data, 1, pem->size, f);
	fclose(f);
	gnutls_free(pem->data);
}

/* by: NULL: itself, a CA. purpose: NULL: a CA has none. */
static inline struct signer make_certificate(const struct signer *by, const char *name, time_t expires, const char *purpose)
{
	static unsigned char serial;
	struct signer s;

	serial++;
	gnutls_x509_privkey_init(&s.key);
	assert_int_equal(gnutls_x509_privkey_generate(s.key, GNUTLS_PK_ECDSA,
						      GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0), 0);
	gnutls_x509_crt_init(&s.crt);
	gnutls_x509_crt_set_version(s.crt, 3);
	gnutls_x509_crt_set_serial(s.crt, &serial, 1);
	gnutls_x509_crt_set_activation_time(s.crt, time(NULL) - 10 * DAY);
	gnutls_x509_crt_set_expiration_time(s.crt, expires);
	gnutls_x509_crt_set_dn_by_oid(s.crt, GNUTLS_OID_X520_COMMON_NAME, 0, name, (unsigned int)strlen(name));
	gnutls_x509_crt_set_key(s.crt, s.key);
	if (purpose) {
		gnutls_x509_crt_set_subject_alt_name(s.crt, GNUTLS_SAN_DNSNAME, name, (unsigned int)strlen(name), 0);
		gnutls_x509_crt_set_key_purpose_oid(s.crt, purpose, 0);
	}
	gnutls_x509_crt_set_basic_constraints(s.crt, !purpose, -1);
	gnutls_x509_crt_set_key_usage(s.crt, purpose ? GNUTLS_KEY_DIGITAL_SIGNATURE : GNUTLS_KEY_KEY_CERT_SIGN);
	assert_int_equal(gnutls_x509_crt_sign2(s.crt, by ? by->crt : s.crt, by ? by->key : s.key, GNUTLS_DIG_SHA256, 0), 0);
	return s;
}

static inline void free_signer(struct signer *s)
{
	gnutls_x509_crt_deinit(s->crt);
	gnutls_x509_privkey_deinit(s->key);
}

static inline void write_signer(const char *dir, const char *cert, const char *key, const struct signer *s)
{
	gnutls_datum_t pem;

	gnutls_x509_crt_export2(s->crt, GNUTLS_X509_FMT_PEM, &pem);
	write_pem(dir, cert, &pem);
	if (key) {
		gnutls_x509_privkey_export2(s->key, GNUTLS_X509_FMT_PEM, &pem);
		write_pem(dir, key, &pem);
	}
}

/* A directory for side ("server" or "client") with a certificate for name. */
static inline void make_directory(const char *dir, const struct signer *ca, const char *side, const char *name,
				  time_t expires, const char *purpose)
{
	char cert[64], key[64];
	struct signer s = make_certificate(ca, name, expires, purpose);

	mkdir(dir, 0700);
	snprintf(cert, sizeof(cert), "%s-cert.pem", side);
	snprintf(key, sizeof(key), "%s-key.pem", side);
	write_signer(dir, "ca-cert.pem", NULL, ca);
	write_signer(dir, cert, key, &s);
	free_signer(&s);
}

static inline void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

#endif
