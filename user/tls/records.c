// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records by the library, on a socket that is never waited for. Below GnuTLS stand two buffers of
 * ours: what it seals goes into one, so that it never finds the socket full in the middle of a
 * record, and several records leave by one system call; what has come is read ahead into the other.
 *
 * What it opens goes into a file of memory first, and from there by preadv() to where the caller
 * wants it. That may be a guest's RAM in a mapping of a file: where the host has no page for it,
 * preadv() fails, as recv() does, while a store of the library's would raise SIGBUS.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tls/tls_internal.h"

#define OVERHEAD	512u	/* of a record, at most; RFC 8446 allows 261 */
#define SEALED_BYTES	(TLS_CHUNK + 4 * OVERHEAD + 2 * (TLS_RECORD + OVERHEAD))
#define AHEAD_BYTES	(5 * TLS_RECORD)
#define OPENED_BYTES	(4 * TLS_RECORD)
#define READ_PIECES	64	/* a frame's pages */

/**
 * struct tls_records
 * @sealed: from @sealed_at to @sealed_end: to be sent. Room for a chunk, and for an answer of the
 *	library's own to what it reads: it answers a KeyUpdate with one of its own
 * @ahead: from @ahead_at to @ahead_end: has come, and is not opened
 * @opened: from @opened_at to @opened_end: plaintext that was not taken; a mapping of @file
 * @gathered: plaintext of one record, where the caller has it in pieces
 */
struct tls_records {
	size_t sealed_at, sealed_end, ahead_at, ahead_end, opened_at, opened_end;
	int file;
	uint8_t *opened;
	uint8_t gathered[TLS_RECORD];
	uint8_t sealed[SEALED_BYTES];
	uint8_t ahead[AHEAD_BYTES];
};

static ssize_t records_push(gnutls_transport_ptr_t p, const giovec_t *iov, int n)
{
	struct tls *t = p;
	struct tls_records *b = t->records;
	size_t len = 0;

	for (int i = 0; i < n; i++)
		len += iov[i].iov_len;
	if (len > sizeof(b->sealed) - b->sealed_end) {
		gnutls_transport_set_errno(t->gnutls, EAGAIN);
		return -1;
	}
	for (int i = 0; i < n; i++) {
		memcpy(b->sealed + b->sealed_end, iov[i].iov_base, iov[i].iov_len);
		b->sealed_end += iov[i].iov_len;
	}
	return (ssize_t)len;
}

/* Reads ahead as much as has come and there is room for. */
static ssize_t records_fill(struct tls *t)
{
	struct tls_records *b = t->records;
	ssize_t n;

	do {
		n = recv(t->fd, b->ahead, sizeof(b->ahead), MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	t->eof |= !n;
	if (n < 0 && errno != EAGAIN)
		t->sock_err = errno;
	b->ahead_at = 0;
	b->ahead_end = n > 0 ? (size_t)n : 0;
	return n < 0 ? -errno : n;
}

static ssize_t records_pull(gnutls_transport_ptr_t p, void *buf, size_t len)
{
	struct tls *t = p;
	struct tls_records *b = t->records;
	ssize_t n = 1;

	if (b->ahead_at == b->ahead_end)
		n = records_fill(t);
	if (n < 0)
		gnutls_transport_set_errno(t->gnutls, (int)-n);
	if (n <= 0)
		return n;
	if (len > b->ahead_end - b->ahead_at)
		len = b->ahead_end - b->ahead_at;
	memcpy(buf, b->ahead + b->ahead_at, len);
	b->ahead_at += len;
	return (ssize_t)len;
}

int tls_records_open(struct tls *t)
{
	struct tls_records *b = malloc(sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->sealed_at = b->sealed_end = b->ahead_at = b->ahead_end = 0;
	b->opened_at = b->opened_end = 0;
	b->opened = MAP_FAILED;
	b->file = memfd_create("godwit-tls", MFD_CLOEXEC);
	if (b->file >= 0 && !ftruncate(b->file, OPENED_BYTES))
		b->opened = mmap(NULL, OPENED_BYTES, PROT_READ | PROT_WRITE,
				 MAP_SHARED | MAP_POPULATE, b->file, 0);
	if (b->opened == MAP_FAILED) {
		int r = -errno;

		tls_records_free(b);
		return r;
	}
	t->records = b;
	gnutls_transport_set_pull_function(t->gnutls, records_pull);
	gnutls_transport_set_vec_push_function(t->gnutls, records_push);
	return 0;
}

void tls_records_free(struct tls_records *b)
{
	if (!b)
		return;
	if (b->opened != MAP_FAILED)
		munmap(b->opened, OPENED_BYTES);
	if (b->file >= 0)
		close(b->file);
	free(b);
}

static int records_failed(struct tls *t, int code)
{
	if (!t->failed) {
		t->failed = code;
		if (code == GNUTLS_E_FATAL_ALERT_RECEIVED)
			t->alert = (int)gnutls_alert_get(t->gnutls);
	}
	if (t->sock_err)
		return -t->sock_err;
	return t->eof ? -ECONNRESET : -EBADMSG;
}

/* The vector without its first bytes. */
struct cursor {
	const struct iovec *iov;
	size_t n, at;
};

static size_t cursor_here(struct cursor *c)
{
	while (c->n && c->at == c->iov->iov_len) {
		c->iov++;
		c->n--;
		c->at = 0;
	}
	return c->n ? c->iov->iov_len - c->at : 0;
}

/* The next record's plaintext: where it is, if it is in one piece, else gathered. 0: the end. */
static size_t cursor_record(struct cursor *c, uint8_t *gathered, const uint8_t **out)
{
	size_t len = 0, here = cursor_here(c);

	if (here >= TLS_RECORD) {
		*out = (const uint8_t *)c->iov->iov_base + c->at;
		c->at += TLS_RECORD;
		return TLS_RECORD;
	}
	*out = gathered;
	while (len < TLS_RECORD && (here = cursor_here(c))) {
		if (here > TLS_RECORD - len)
			here = TLS_RECORD - len;
		memcpy(gathered + len, (const uint8_t *)c->iov->iov_base + c->at, here);
		c->at += here;
		len += here;
	}
	return len;
}

ssize_t tls_seal(struct tls *t, const struct iovec *iov, size_t n)
{
	struct cursor c = { iov, n, 0 };
	const uint8_t *p;
	size_t sum = 0, len;

	while (sum < TLS_CHUNK && (len = cursor_record(&c, t->records->gathered, &p))) {
		ssize_t r = gnutls_record_send(t->gnutls, p, len);

		if (r != (ssize_t)len)
			return records_failed(t, (int)r);
		sum += len;
	}
	return (ssize_t)sum;
}

int tls_flush(struct tls *t)
{
	struct tls_records *b = t->records;

	while (b->sealed_at < b->sealed_end) {
		ssize_t n = send(t->fd, b->sealed + b->sealed_at, b->sealed_end - b->sealed_at,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : -errno;
		b->sealed_at += (size_t)n;
	}
	b->sealed_at = b->sealed_end = 0;
	return 1;
}

/* Opens what has come whole, as far as there is room. -EAGAIN: not one record has. 0: the end. */
static ssize_t records_refill(struct tls *t)
{
	struct tls_records *b = t->records;
	ssize_t r = 0, failed = 0;

	b->opened_at = b->opened_end = 0;
	do {
		r = gnutls_record_recv(t->gnutls, b->opened + b->opened_end,
				       OPENED_BYTES - b->opened_end);
		if (r > 0)
			b->opened_end += (size_t)r;
	} while ((r > 0 && b->opened_end + TLS_RECORD <= OPENED_BYTES &&
		  b->ahead_at < b->ahead_end) ||
		 r == GNUTLS_E_INTERRUPTED || r == GNUTLS_E_WARNING_ALERT_RECEIVED ||
		 (r == GNUTLS_E_AGAIN && b->ahead_at < b->ahead_end));
	/* The first reason counts, also behind plaintext: next time the library has another. */
	if (r < 0 && r != GNUTLS_E_AGAIN)
		failed = records_failed(t, (int)r);
	if (b->opened_end)
		return (ssize_t)b->opened_end;
	/* 0: close_notify, or the end without it: the same to the protocol. */
	return r == GNUTLS_E_AGAIN ? -EAGAIN : failed;
}

ssize_t tls_read(struct tls *t, const struct iovec *iov, size_t n)
{
	struct tls_records *b = t->records;
	struct iovec part[READ_PIECES];
	ssize_t r = 1;
	size_t left;
	int k = 0;

	if (b->opened_at == b->opened_end)
		r = records_refill(t);
	if (r <= 0)
		return r;
	/* No further: what the file has behind the plaintext is older plaintext. */
	left = b->opened_end - b->opened_at;
	for (size_t i = 0; i < n && k < READ_PIECES && left; i++, k++) {
		part[k] = iov[i];
		if (part[k].iov_len > left)
			part[k].iov_len = left;
		left -= part[k].iov_len;
	}
	r = preadv(b->file, part, k, (off_t)b->opened_at);
	if (r < 0)
		return -errno;
	b->opened_at += (size_t)r;
	return r;
}

bool tls_pending(const struct tls *t)
{
	const struct tls_records *b = t->records;

	return b && (b->opened_at < b->opened_end || b->ahead_at < b->ahead_end ||
		     gnutls_record_check_pending(t->gnutls));
}

int tls_rekey(struct tls *t)
{
	return gnutls_session_key_update(t->gnutls, 0) < 0 ? -EPROTO : 0;
}
