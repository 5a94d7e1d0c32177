// SPDX-License-Identifier: GPL-2.0-only
/* What TCP says of a connection. */
#include <linux/sockios.h>
#include <linux/tcp.h>	/* more of tcp_info than the C library has */
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "net/sock.h"
#include "plan/link.h"

static struct tcp_info tcp_info(int fd)
{
	struct tcp_info info = { .tcpi_rtt = 0 };
	socklen_t len = sizeof(info);

	getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len);
	return info;
}

uint64_t sock_rtt_ns(int fd)
{
	return tcp_info(fd).tcpi_rtt * 1000ull;
}

uint64_t sock_least_rtt_ns(int fd)
{
	uint32_t us = tcp_info(fd).tcpi_min_rtt;

	return us == UINT32_MAX ? 0 : us * 1000ull;
}

uint64_t sock_queued(int fd)
{
	int bytes = 0;

	return ioctl(fd, SIOCOUTQ, &bytes) < 0 ? 0 : (uint64_t)bytes;
}

#define FIRST_WINDOW	10u	/* packets, RFC 6928 */
#define SMALL_BYTES	64u
#define ESTABLISHED	1u	/* netinet/tcp.h has it, but no other header of TCP beside it */

/*
 * How many packets the congestion window holds. After a silence of a retransmission timeout, TCP
 * makes it smaller, but only when something is sent.
 */
static uint64_t tcp_window(const struct tcp_info *i)
{
	bool restarts = i->tcpi_last_data_sent * 1000ull > i->tcpi_rto;

	return restarts && i->tcpi_snd_cwnd > FIRST_WINDOW ? FIRST_WINDOW : i->tcpi_snd_cwnd;
}

uint64_t sock_room(int fd, uint64_t least)
{
	/* First: an ACK in between makes the room look smaller than it is, not larger. */
	uint64_t queued = sock_queued(fd), in_flight, flying, window, room = 0;
	struct tcp_info i = tcp_info(fd);

	if (i.tcpi_state != ESTABLISHED)
		return UINT64_MAX;
	in_flight = queued > i.tcpi_notsent_bytes ? queued - i.tcpi_notsent_bytes : 0;
	flying = (uint64_t)i.tcpi_unacked + i.tcpi_retrans;
	flying -= i.tcpi_sacked + i.tcpi_lost < flying ? i.tcpi_sacked + i.tcpi_lost : flying;
	window = tcp_window(&i);
	/* One packet less, and some bytes, for a small frame behind it. */
	if (window > flying + 1)
		room = (window - flying - 1) * i.tcpi_snd_mss;
	in_flight += SMALL_BYTES;
	if (i.tcpi_snd_wnd < in_flight + room)
		room = i.tcpi_snd_wnd > in_flight ? i.tcpi_snd_wnd - in_flight : 0;
	room -= i.tcpi_notsent_bytes < room ? i.tcpi_notsent_bytes : room;
	return !queued && room < least ? least : room;
}

struct sock_progress sock_progress(int fd)
{
	const struct tcp_info i = tcp_info(fd);
	const uint64_t in_flight = (uint64_t)i.tcpi_unacked * i.tcpi_snd_mss;

	return (struct sock_progress) {
		.acked = i.tcpi_bytes_acked,
		.waiting = i.tcpi_notsent_bytes +
			   link_waiting(in_flight, i.tcpi_rtt, i.tcpi_min_rtt),
	};
}

struct sock_sent sock_sent(int fd)
{
	const struct tcp_info i = tcp_info(fd);
	/* What was late, and not lost, the peer has twice, and says so. */
	const uint32_t late = i.tcpi_dsack_dups, again = i.tcpi_total_retrans;

	return (struct sock_sent) {
		.segments = i.tcpi_data_segs_out, .again = again > late ? again - late : 0,
		.segment = i.tcpi_snd_mss, .busy_ns = i.tcpi_busy_time * 1000,
		.window_ns = i.tcpi_rwnd_limited * 1000,
		.buffer_ns = i.tcpi_sndbuf_limited * 1000,
	};
}
