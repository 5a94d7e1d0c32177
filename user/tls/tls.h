/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * TLS 1.3 on a connection: credentials, the handshake, and what comes after it.
 *
 * GnuTLS does each handshake, before the first byte of the protocol. Both ends prove themselves, by
 * certificates of one CA or by a pre-shared key; the one cipher is AES-128-GCM. Then the keys go
 * into the kernel (kernel TLS), where it has the tls module: the socket takes and gives plaintext
 * from there on, and all that reads or writes it stays as it is. Elsewhere the library makes the
 * records (records.c).
 *
 * A connection that ends, in whatever way, is a lost link: the protocol above has frames for each
 * end that means something. So a truncation attack gets nothing that a cut cable does not.
 *
 * A session belongs to one thread at a time. Errors have the status GW_TLS where the other end is
 * not the one that it should be, or a record was changed on the way.
 */
#ifndef GODWIT_TLS_H
#define GODWIT_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/err.h"

#define TLS_DEFAULT_DIRS	{ "/etc/pki/godwit", "/etc/pki/qemu" }
#define TLS_EXPORT		32u
#define TLS_CIPHER_NAME		"AES-128-GCM"
/* What a message ends with where there are none. */
#define TLS_HOW "make credentials with \"psktool -u godwit -p godwit.psk\", \"scp godwit.psk OTHER-HOST:\", and give --tls-psk godwit.psk at both ends"

struct tls;
struct tls_creds;

/**
 * struct tls_options - what the operator asked for; all NULL: a default directory, if there is one
 * @creds: a directory as QEMU and libvirt have them: ca-cert.pem, maybe ca-crl.pem, and
 *	server-cert.pem and server-key.pem at the receiver, client-cert.pem and client-key.pem at
 *	the sender
 * @psk: a file as psktool makes it; the sender is the user of its first line
 * @hostname: the name that the receiver's certificate must have; NULL: the one it is called by
 * @insecure: no TLS, also where there is a default directory
 */
struct tls_options {
	const char *creds, *psk, *hostname;
	bool insecure;
};

enum tls_role { TLS_SENDER, TLS_RECEIVER };

/**
 * tls_creds_open() - load credentials
 * @out: NULL: the connection is to be in the clear; the caller frees it by tls_creds_free()
 * Says in one line which credentials it took if no option named them.
 * Errors: GW_USAGE: two kinds, or a hostname without certificates; GW_TLS: a file is missing or
 * malformed, a certificate has expired or is not of the CA.
 */
int tls_creds_open(const struct tls_options *o, enum tls_role role, struct tls_creds **out,
		   struct err *e);
void tls_creds_free(struct tls_creds *c);	/* NULL is fine */
/* What check says: "certificate of O=..., until 2027-01-02". Not for an operator's secret. */
void tls_creds_describe(const struct tls_creds *c, char *text, size_t len);
/* Days until our certificate expires; INT_MAX with a pre-shared key. */
int tls_creds_days(const struct tls_creds *c);
/*
 * The receiver is called by addr ("ADDR:PORT"): the name that its certificate must have, unless an
 * option or an earlier call has set one. A sender that connects again does so by a number.
 */
void tls_creds_call(struct tls_creds *c, const char *addr);

/*
 * A key of AES-GCM is good for some 2^24 records. The library changes its keys then (KeyUpdate);
 * the kernel can neither do that nor follow. So the kernel makes the records of connections that
 * will hardly carry so much, and both ends must choose alike; one that carries TLS_KEY_BYTES by the
 * kernel nevertheless fails.
 */
#define TLS_KEY_BYTES		(16384ull << 24)
#define TLS_KERNEL_BYTES	(TLS_KEY_BYTES / 4)	/* of RAM: some pages go several times */
/* Is a stream's share of this RAM more than that? */
bool tls_is_long(uint64_t bytes, unsigned int streams);
/* Before the handshake: the kernel gets no keys of this session. */
void tls_keep_keys(struct tls *t);
/* A session on a connected socket; it takes no ownership of fd. Errors: GW_INTERNAL */
int tls_open(const struct tls_creds *c, int fd, struct tls **out, struct err *e);
/* Wipes the keys. The kernel keeps those that it has. NULL is fine. */
void tls_free(struct tls *t);
/*
 * One step of the handshake, without a wait. 1: done; 0: when tls_wants() has come; else an error,
 * and the other end has been told.
 */
int tls_step(struct tls *t, struct err *e);
short tls_wants(const struct tls *t);	/* POLLIN, POLLOUT */
/* The handshakes of n sessions at a time, until then. Errors: also GW_TIMEOUT, GW_CANCELLED. */
int tls_handshake(struct tls *const *all, unsigned int n, uint64_t deadline, struct err *e);
/* Once the handshake is done: does the kernel make the records? */
bool tls_in_kernel(const struct tls *t);
/* The other end, as check says it: its certificate's name and expiry, or its user. */
const char *tls_peer(const struct tls *t);
/*
 * A value that only the two ends of this session know, and that differs for each context. It was
 * never sent.
 */
void tls_export(const struct tls *t, const uint8_t *context, size_t len, uint8_t out[TLS_EXPORT]);

/*
 * The rest is for sessions whose records the library makes.
 *
 * tls_seal() encrypts what the vector begins with, and returns how much that is, or -errno. All of
 * it must have left by tls_flush() before the next: 1: it has; 0: the socket is full; -errno.
 */
ssize_t tls_seal(struct tls *t, const struct iovec *iov, size_t n);
int tls_flush(struct tls *t);
/* Bytes that have come, -EAGAIN, 0 at the end, or -errno. The vector may be in a mapping. */
ssize_t tls_read(struct tls *t, const struct iovec *iov, size_t n);
/* tls_read() would get bytes that poll() does not tell of. */
bool tls_pending(const struct tls *t);
/* The session is moved to new keys, in this direction; the other end follows. For tests. */
int tls_rekey(struct tls *t);

/* For both kinds. */
/* Says that nothing follows (close_notify), if that can be said without a wait. */
void tls_bye(struct tls *t);
/*
 * A read or write of this session has failed with errno err. true: TLS knows more than the socket,
 * and *e says it; the other end has been told.
 */
bool tls_explain(struct tls *t, int err, struct err *e);

/**
 * enum tls_greeting - what a peer that has just connected says
 * @TLS_SAYS_HELLO: it begins a handshake
 * @TLS_SAYS_GODWIT: it speaks godwit's protocol in the clear
 */
enum tls_greeting { TLS_SAYS_NOTHING, TLS_SAYS_HELLO, TLS_SAYS_GODWIT, TLS_SAYS_OTHER };
/* Looks without a wait, and takes nothing away. */
enum tls_greeting tls_peek(int fd);

#endif
