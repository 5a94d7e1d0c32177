/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the files of this folder. */
#ifndef GODWIT_TLS_INTERNAL_H
#define GODWIT_TLS_INTERNAL_H

#include <gnutls/gnutls.h>
#include <time.h>

#include "tls/psk.h"
#include "tls/tls.h"

/**
 * struct tls_creds
 * @from: the directory or file
 * @name: the receiver's, of which its certificate must be; empty: not known yet, or not our part
 * @users: the pre-shared keys; @nr_users 0: certificates
 * @subject, @expires: of our certificate
 */
struct tls_creds {
	enum tls_role role;
	char from[4096];
	char name[256];
	gnutls_priority_t priority;
	gnutls_certificate_credentials_t x509;
	gnutls_psk_client_credentials_t psk_client;
	gnutls_psk_server_credentials_t psk_server;
	unsigned int nr_users;
	struct psk_user *users;
	char subject[256];
	time_t expires;
};

/* Plaintext of a record, and of what is encrypted before it is sent. */
#define TLS_RECORD	16384u
#define TLS_CHUNK	(4 * TLS_RECORD)

/**
 * struct tls
 * @gnutls: NULL once the kernel has the keys
 * @peeked: what the other end says first has been looked at; @plain: it is no TLS, but godwit's
 * @kernel: the kernel makes the records
 * @keeps: the kernel is to get no keys
 * @ended: the handshake has failed, or the session has: nothing more is sent
 * @peer: of the other end's certificate, or its user
 * @secret: what tls_export() derives from
 * @eof, @sock_err: what the socket said last
 * @failed: what GnuTLS said when the session failed; @alert: of the other end, -1: none
 * @untrusted: what is wrong with the other end's certificate, a gnutls_certificate_status_t
 * @records: the buffers of records.c; NULL before the handshake is done
 */
struct tls {
	const struct tls_creds *creds;
	int fd;
	gnutls_session_t gnutls;
	bool peeked, plain, keeps, kernel, ended, eof;
	int sock_err, failed, alert;
	unsigned int untrusted;
	char peer[400];
	uint8_t secret[TLS_EXPORT];
	struct tls_records *records;
};

/* kernel.c: gives the keys to the kernel. false: it has no TLS, and nothing has changed. */
bool tls_kernel_take(struct tls *t);
/* The type and the first bytes of the record that is no data, which a read has stopped at. */
ssize_t tls_kernel_control(int fd, uint8_t *type, uint8_t *buf, size_t len);
void tls_kernel_alert(int fd, uint8_t level, uint8_t description);

/* records.c */
int tls_records_open(struct tls *t);
void tls_records_free(struct tls_records *b);

/* words.c: sets *e for a failed handshake or session, and tells the other end. */
int tls_words(struct tls *t, int code, struct err *e);

#endif
