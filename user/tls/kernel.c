// SPDX-License-Identifier: GPL-2.0-only
/*
 * Keys into the kernel. Debian's GnuTLS is built without its own kernel TLS, so this sets the keys
 * itself, from the library's state of the session.
 *
 * The kernel's tls module is loaded on demand only for CAP_NET_ADMIN; without it, or with a kernel
 * that lacks the cipher, the library makes the records. After TCP_ULP there is no way back, but a
 * socket with it and without keys passes all bytes on as they are (TLS_BASE), so records of the
 * library's still go through if a key is refused. A socket with one of two keys is of no use: then
 * the session fails. The kernel takes each of both, or neither.
 */
#include <errno.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "tls/tls_internal.h"

#ifndef SOL_TLS
#define SOL_TLS 282
#endif
#ifndef TCP_ULP
#define TCP_ULP 31
#endif

/* RFC 8446: the nonce's first four bytes are the kernel's salt, the other eight its iv. */
static int kernel_set(struct tls *t, bool read)
{
	struct tls12_crypto_info_aes_gcm_128 info = {
		.info = { TLS_1_3_VERSION, TLS_CIPHER_AES_GCM_128 },
	};
	gnutls_datum_t mac, iv, key;
	uint8_t seq[8];
	int which = read ? TLS_RX : TLS_TX;
	int r = gnutls_record_get_state(t->gnutls, read, &mac, &iv, &key, seq);

	if (r < 0 || key.size != sizeof(info.key) ||
	    iv.size != sizeof(info.salt) + sizeof(info.iv))
		return -EOPNOTSUPP;
	memcpy(info.key, key.data, sizeof(info.key));
	memcpy(info.salt, iv.data, sizeof(info.salt));
	memcpy(info.iv, iv.data + sizeof(info.salt), sizeof(info.iv));
	memcpy(info.rec_seq, seq, sizeof(info.rec_seq));
	r = setsockopt(t->fd, SOL_TLS, which, &info, sizeof(info)) < 0 ? -errno : 0;
	gnutls_memset(&info, 0, sizeof(info));
	return r;
}

bool tls_kernel_take(struct tls *t)
{
	/* What the library has read beyond the handshake would be missing in the kernel. */
	if (gnutls_record_check_pending(t->gnutls))
		return false;
	if (setsockopt(t->fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) < 0)
		return false;
	if (kernel_set(t, true))
		return false;
	if (!kernel_set(t, false))
		return true;
	shutdown(t->fd, SHUT_RDWR);
	return true;
}

ssize_t tls_kernel_control(int fd, uint8_t *type, uint8_t *buf, size_t len)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(uint8_t))];
	} control = { 0 };
	struct iovec iov = { buf, len };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT);
	struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&msg);

	if (!c || c->cmsg_level != SOL_TLS || c->cmsg_type != TLS_GET_RECORD_TYPE)
		return -1;
	memcpy(type, CMSG_DATA(c), 1);
	return n;
}

void tls_kernel_alert(int fd, uint8_t level, uint8_t description)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(uint8_t))];
	} control = { 0 };
	uint8_t alert[2] = { level, description };
	struct iovec iov = { alert, sizeof(alert) };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	socklen_t len = sizeof(int);
	int err;

	/* Of a record that the kernel could not open: the next send would return it. */
	getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len);
	c->cmsg_level = SOL_TLS;
	c->cmsg_type = TLS_SET_RECORD_TYPE;
	c->cmsg_len = CMSG_LEN(sizeof(uint8_t));
	*CMSG_DATA(c) = 21;	/* an alert */
	sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
}
