/* SPDX-License-Identifier: GPL-2.0-only */
/* How to use a link, from its round trip. Pure. */
#ifndef GODWIT_LINK_H
#define GODWIT_LINK_H

#include <stdbool.h>
#include <stdint.h>

/**
 * link_streams() - how many streams keep this link busy
 * @cpus: at least 1
 * @most: at least 1
 *
 * On their way for one round trip are as many bytes as the link carries in that time, but no more
 * than the socket buffers of all streams hold (by default 4 MiB each); and where packets are lost,
 * TCP's rate on one connection falls with the round trip. So a long link takes more streams than
 * there are CPUs: one for each 5 ms.
 */
unsigned int link_streams(unsigned int cpus, uint64_t rtt_ns, unsigned int most);
/*
 * Is the round trip so long that to wait for the window of one stream costs more than to send in
 * small pieces on all?
 */
bool link_is_long(uint64_t rtt_ns);
/* Bytes per second that this many streams can carry, each with so large a socket buffer. */
uint64_t link_rate_max(uint64_t buffer, unsigned int streams, uint64_t rtt_ns);
/* The socket buffer, in bytes, with which they can carry this rate. */
uint64_t link_buffer(uint64_t rate, unsigned int streams, uint64_t rtt_ns);

/*
 * The same while a guest waits for single pages that go on a connection beside them: what is under
 * way on the others fills the link, and waits before its slowest part for some milliseconds and not
 * for as long as there is room. 0: as it is, where the rate is not known, or the link is long: then
 * a page takes a round trip anyway, and too little under way would cost more.
 */
uint64_t link_short_buffer(uint64_t rate, unsigned int streams, uint64_t rtt_ns);

/*
 * How long a peer may take that would be allowed timeout_ms on a link without delay: some round
 * trips more, as a packet may be lost, and an answer may wait behind RAM. 0 stays 0: do not wait.
 *
 * All waits for the other end go by it, but those
 *	- for a connection: no round trip is known yet (address_connect());
 *	- of --reconnect, --recover-timeout and --timeout, which the operator gives for the whole of
 *	  many tries, and of `godwit resolve`, which can be called again.
 * What waits for QEMU, the kernel or another process of this host knows no round trip.
 */
unsigned int link_patience_ms(unsigned int timeout_ms, uint64_t rtt_ns);

/*
 * The same for a connection beside the control connection, which shows that the peer lives: such a
 * one is slower to come back when the link was away. TCP tries again twice as late each time; what
 * waits before the link's slowest part makes that several round trips; and then it begins with
 * single packets, of a frame that may be long. If the link is lost the kernel says so earlier
 * (sock_tune()).
 */
unsigned int link_stream_patience_ms(unsigned int patience_ms);

/*
 * Of the bytes in flight, those that wait before the slowest part of the link: a round trip takes
 * so much longer than the shortest one.
 */
uint64_t link_waiting(uint64_t in_flight, uint32_t rtt, uint32_t least_rtt);

#endif
