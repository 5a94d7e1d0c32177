/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Two ways to wait for one socket: io_uring, and poll() where the kernel or a sandbox refuses
 * io_uring. A third stands in for both where the library makes TLS records (engine_tls.c). At most
 * one send and one receive are under way. An engine belongs to the thread that opened it, all calls
 * are made there.
 */
#ifndef GODWIT_ENGINE_H
#define GODWIT_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "base/err.h"

struct engine;

#define ENGINE_BUFFERS	32u	/* how many sends can have buffers of their own */

/*
 * May the network card read what is sent out of the sender's own pages? io_uring only. AUTO stops
 * when the kernel has to copy them after all, as on loopback and between containers; ON does not.
 * Both send plainly where the kernel (before 6.1) or the limit of locked memory refuses.
 */
enum engine_zero_copy { ENGINE_ZC_OFF, ENGINE_ZC_AUTO, ENGINE_ZC_ON };

/**
 * struct engine_ops - a kind of engine
 * @supported: 0, or -errno: how this kernel or a sandbox (seccomp, a container) refuses it
 * @open: takes no ownership of fd
 * @close: ends what is under way: after it the kernel touches no buffer but those that are
 *	held. They may be unmapped, and
 *         must not be written to: what is given to free() may be
 * @send: begins to send what msg holds; msg stays until ->sending is false, its buffers also
 *	until ->held[buffer] is 0;
 *        buffer: below ENGINE_BUFFERS
 * @recv: the same for receiving. Both may do less than was asked for.
 * @cancel_recv: ends a receive under way and waits for that
 * @wait: until something is done, at most ns nanoseconds; 0: only look. Returns 0 or -errno; a
 *	signal ends it early
 * @take: what has come, without a wait, while no receive is under way: bytes, 0 at the end, or
 *	-errno (-EAGAIN: nothing)
 * @say: sends a few bytes, all of them until the deadline, while no send is under way: 0 or -errno
 * @pending: @take would get bytes of which poll() does not tell; NULL: there never are such
 */
struct engine_ops {
	const char *name;
	int (*supported)(void);
	int (*open)(int fd, struct engine **out);
	void (*close)(struct engine *en);
	void (*send)(struct engine *en, struct msghdr *msg, unsigned int buffer);
	void (*recv)(struct engine *en, struct msghdr *msg);
	void (*cancel_recv)(struct engine *en);
	int (*wait)(struct engine *en, uint64_t ns);
	ssize_t (*take)(struct engine *en, void *buf, size_t len);
	int (*say)(struct engine *en, const void *buf, size_t len, uint64_t deadline);
	bool (*pending)(const struct engine *en);
};

/**
 * struct engine - embedded in each implementation
 * @kernel_tls: the kernel makes TLS records of what is sent; set before the first send
 * @sending: @receiving: under way
 * @sent: @received: the results of the last ones: bytes or -errno
 * @zero_copy: the caller that opened it may set it before the first send
 * @held: sends that were zero-copy and may still be read from their buffers: the peer has not
 *	acknowledged them
 * @released: how often a buffer was let go
 * @zero_copies: sends that were zero-copy, and are not held any more
 * @copied: of these, what the kernel copied after all
 */
struct engine {
	const struct engine_ops *ops;
	int fd;
	bool kernel_tls, sending, receiving;
	ssize_t sent, received;
	enum engine_zero_copy zero_copy;
	unsigned int held[ENGINE_BUFFERS];
	uint64_t released, zero_copies, copied;
};

/* Sorted by preference; the last one runs everywhere. */
extern const struct engine_ops *const engines[];
extern const unsigned int engines_count;
extern const struct engine_ops engine_uring, engine_poll;
/*
 * For engines that wait by poll(): until the socket is ready for what is under way, or ns have
 * passed. *revents: poll()'s, 0 after a signal. Returns 0 or -errno.
 */
int engine_poll_wait(const struct engine *en, uint64_t ns, short *revents);
/* Theirs: nothing is under way but in the caller's mind. */
void engine_poll_cancel_recv(struct engine *en);
/* take and say of engines that have nothing between the caller and the socket */
ssize_t engine_plain_take(struct engine *en, void *buf, size_t len);
int engine_plain_say(struct engine *en, const void *buf, size_t len, uint64_t deadline);

struct tls;
/* In place of any other, on a connection whose TLS records the library makes. */
int engine_tls_open(int fd, struct tls *tls, struct engine **out);

/**
 * engine_choose() - the engine of this name
 * @name: NULL or "auto": the first one that is supported; one line on stderr says so when that
 *	is not the first
 * Errors: GW_USAGE (no such engine), GW_INTERNAL (not supported here)
 */
int engine_choose(const char *name, const struct engine_ops **out, struct err *e);
/* The value of this name, "auto", "on" or "off". Errors: GW_USAGE */
int engine_zero_copy(const char *name, enum engine_zero_copy *out, struct err *e);

#endif
