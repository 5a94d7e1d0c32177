/* SPDX-License-Identifier: GPL-2.0-only */
/* Do the hosts' socket buffers hold enough for a long link? Pure. */
#ifndef GODWIT_WINDOW_H
#define GODWIT_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WINDOW_GIGABIT	125000000ull	/* bytes/s: no link that guests move over is to be slower */

/**
 * struct window - what a link has to go by
 * @send, @receive: the most that TCP gives a connection, bytes: the third value of
 *	net.ipv4.tcp_wmem of the source, and of tcp_rmem of the destination. 0: not known
 * @streams, @rtt_ns: of the link
 * @goal: bytes per second that it is to carry
 */
struct window {
	uint64_t send, receive;
	unsigned int streams;
	uint64_t rtt_ns, goal;
};

/* Bytes per second that they let a link carry; UINT64_MAX: neither is known. */
uint64_t window_rate(const struct window *w);
/*
 * false: the link is not long, or no buffer holds it back. Else the text says which do, and what to
 * set; one that is not known is taken to.
 */
bool window_lacks(const struct window *w, char *text, size_t len);

#endif
