// SPDX-License-Identifier: GPL-2.0-only
/*
 * crossframes IF_A IF_B RATE BYTES: sends numbered frames into each interface, RATE a second, to a
 * forwarder that is to bring them to the other one, until SIGTERM. Meanwhile a line each 100 ms
 * says how many came; the last line, in JSON, what was lost, changed, doubled or overtaken, for how
 * long nothing came, and how many came in each SLOT_MS.
 */
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include "content.h"

enum {
	ETHER_BYTES	= 14,
	MAC_BYTES	= 6,
	FRAME_MOST	= 1514,
	BATCH		= 32,
	SEEN		= 1 << 22,	/* frames that can be told apart */
	SLOT_MS		= 10,
	SLOTS		= 60000,	/* ten minutes */
	TELL_MS		= 100,
	UNDER_WAY_MS	= 1000,
};

/* Sent here; got here of what the other side sent. */
static struct side {
	int s;
	unsigned char mac[MAC_BYTES], guest[MAC_BYTES];
	uint32_t sent, got, wrong, twice, late, most;
	uint64_t last, silence, silence_at;
	unsigned char seen[SEEN / 8];
	uint16_t slots[SLOTS];
} side[2];
static volatile sig_atomic_t over;
static uint64_t began;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);	/* as the events of QEMU's monitor have it */
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void end_soon(int sig)
{
	(void)sig;
	over = 1;
}

/* The addresses are guest/vfwd.c's, and its cards'. */
static int open_side(struct side *d, const char *name, int number)
{
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_protocol = htons(CONTENT_ETHERTYPE) };
	int size = 4 << 20;

	memcpy(d->mac, "\x02\x67\x64\x77\x74\x0a", MAC_BYTES);
	memcpy(d->guest, "\x52\x54\x00\x67\x64\x01", MAC_BYTES);
	d->mac[5] += number;
	d->guest[5] += number;
	d->s = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(CONTENT_ETHERTYPE));
	at.sll_ifindex = if_nametoindex(name);
	if (d->s < 0 || !at.sll_ifindex || bind(d->s, (void *)&at, sizeof(at)))
		return -1;
	setsockopt(d->s, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	setsockopt(d->s, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	return 0;
}

static void make_frame(const struct side *d, unsigned char *frame, uint32_t number, uint32_t bytes)
{
	memcpy(frame, d->guest, MAC_BYTES);
	memcpy(frame + MAC_BYTES, d->mac, MAC_BYTES);
	/* The first goes to everybody: from what comes back the switches learn where the guest is. */
	if (!number)
		memset(frame, 0xff, MAC_BYTES);
	frame[12] = CONTENT_ETHERTYPE >> 8;
	frame[13] = CONTENT_ETHERTYPE & 0xff;
	content_fill(frame + ETHER_BYTES, (bytes - ETHER_BYTES) / 4, CONTENT_FRAME, number, 0);
}

static void transmit(struct side *d, uint32_t due, uint32_t bytes)
{
	static unsigned char frames[BATCH][FRAME_MOST];
	struct mmsghdr m[BATCH];
	struct iovec v[BATCH];
	uint32_t n, i;
	int done;

	while (d->sent < due) {
		n = due - d->sent < BATCH ? due - d->sent : BATCH;
		memset(m, 0, sizeof(m));
		for (i = 0; i < n; i++) {
			make_frame(d, frames[i], d->sent + i, bytes);
			v[i] = (struct iovec){ frames[i], bytes };
			m[i].msg_hdr.msg_iov = &v[i];
			m[i].msg_hdr.msg_iovlen = 1;
		}
		done = sendmmsg(d->s, m, n, 0);
		if (done <= 0)
			return;
		d->sent += done;
	}
}

static void look(struct side *d, const unsigned char *frame, uint32_t length, uint32_t bytes, uint64_t t)
{
	uint64_t slot = (t - began) / (SLOT_MS * 1000000ull);
	uint32_t seq;

	if (memcmp(frame, d->mac, MAC_BYTES))
		return;
	if (length >= bytes)	/* short ones are padded */
		memcpy(&seq, frame + ETHER_BYTES + 4, sizeof(seq));
	if (length < bytes || seq >= SEEN ||
	    content_check(frame + ETHER_BYTES, (bytes - ETHER_BYTES) / 4, CONTENT_FRAME, seq, 0) >= 0) {
		d->wrong++;
		return;
	}
	if (d->seen[seq / 8] & 1 << seq % 8) {
		d->twice++;
		return;
	}
	d->seen[seq / 8] |= 1 << seq % 8;
	d->late += seq < d->most;
	if (seq > d->most)
		d->most = seq;
	d->got++;
	if (slot < SLOTS)
		d->slots[slot]++;
	if (d->last && t - d->last > d->silence) {
		d->silence = t - d->last;
		d->silence_at = d->last;
	}
	d->last = t;
}

static void take(struct side *d, uint32_t bytes)
{
	static unsigned char frames[BATCH][FRAME_MOST];
	struct mmsghdr m[BATCH];
	struct iovec v[BATCH];
	uint64_t t;
	int n, i;

	do {
		memset(m, 0, sizeof(m));
		for (i = 0; i < BATCH; i++) {
			v[i] = (struct iovec){ frames[i], FRAME_MOST };
			m[i].msg_hdr.msg_iov = &v[i];
			m[i].msg_hdr.msg_iovlen = 1;
		}
		n = recvmmsg(d->s, m, BATCH, 0, NULL);
		t = now_ns();
		for (i = 0; i < n; i++)
			look(d, frames[i], m[i].msg_len, bytes, t);
	} while (n == BATCH);
}

/* What came out of this side. */
static void tell_side(const struct side *d, const struct side *from, uint64_t until)
{
	uint64_t slots = (until - began) / (SLOT_MS * 1000000ull), i;
	uint64_t silence = d->silence, at = d->silence_at;

	/* It may not have ended. */
	if (until > d->last && until - d->last > silence) {
		silence = until - d->last;
		at = d->last;
	}
	printf("{\"sent\": %u, \"got\": %u, \"wrong\": %u, \"twice\": %u, \"late\": %u, "
	       "\"silence_ms\": %.1f, \"silence_at_ms\": %.1f, \"slots\": [",
	       from->sent, d->got, d->wrong, d->twice, d->late, silence / 1e6,
	       at ? (at - began) / 1e6 : 0);
	for (i = 0; i < slots && i < SLOTS; i++)
		printf("%s%u", i ? ", " : "", d->slots[i]);
	printf("]}");
}

static void run(uint32_t rate, uint32_t bytes)
{
	struct pollfd p[2] = { { side[0].s, POLLIN, 0 }, { side[1].s, POLLIN, 0 } };
	uint64_t t = began, said = began, stopped = 0;
	int i;

	while (!stopped || t - stopped < UNDER_WAY_MS * 1000000ull) {
		if (!over)
			for (i = 0; i < 2; i++)
				transmit(&side[i], (t - began) * rate / 1000000000ull, bytes);
		else if (!stopped)
			stopped = t;
		poll(p, 2, 1);
		for (i = 0; i < 2; i++)
			take(&side[i], bytes);
		t = now_ns();
		if (t - said >= TELL_MS * 1000000ull) {
			said = t;
			printf("%u %u\n", side[1].got, side[0].got);
			fflush(stdout);
		}
	}
	printf("{\"began_ms\": %.1f, \"slot_ms\": %d, \"ab\": ", began / 1e6, SLOT_MS);
	tell_side(&side[1], &side[0], stopped);
	printf(", \"ba\": ");
	tell_side(&side[0], &side[1], stopped);
	printf("}\n");
}

int main(int argc, char **argv)
{
	uint32_t rate, bytes;
	int i;

	rate = argc == 5 ? strtoul(argv[3], NULL, 10) : 0;
	bytes = argc == 5 ? strtoul(argv[4], NULL, 10) : 0;
	if (!rate || bytes < 60 || bytes > FRAME_MOST) {
		fprintf(stderr, "usage: crossframes IF_A IF_B RATE BYTES\n");
		return 2;
	}
	for (i = 0; i < 2; i++) {
		if (open_side(&side[i], argv[1 + i], i)) {
			perror(argv[1 + i]);
			return 1;
		}
	}
	signal(SIGTERM, end_soon);
	began = now_ns();
	run(rate, bytes);
	return 0;
}
