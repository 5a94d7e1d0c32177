// SPDX-License-Identifier: GPL-2.0-only
/*
 * sendframes IF FIRST COUNT RATE [WORDS]: broadcasts numbered frames on an
 * interface, for the guest's vnet.c. Prints the next sequence number.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include "content.h"

enum { ETHER_BYTES = 14, WORDS_MOST = 370 };

int main(int argc, char **argv)
{
	unsigned char frame[ETHER_BYTES + WORDS_MOST * sizeof(uint32_t)];
	struct sockaddr_ll to = { .sll_family = AF_PACKET, .sll_halen = 6 };
	uint32_t seq, end, rate, words = WORDS_MOST;
	struct timespec pause = { 0 };
	int s;

	if (argc < 5 || argc > 6) {
		fprintf(stderr, "usage: sendframes IF FIRST COUNT RATE [WORDS]\n");
		return 2;
	}
	seq = strtoul(argv[2], NULL, 10);
	end = seq + strtoul(argv[3], NULL, 10);
	rate = strtoul(argv[4], NULL, 10);
	if (argc == 6)
		words = strtoul(argv[5], NULL, 10);
	if (words > WORDS_MOST || words < CONTENT_HEADER_WORDS) {
		fprintf(stderr, "sendframes: WORDS is 3 to %d\n", WORDS_MOST);
		return 2;
	}
	to.sll_ifindex = if_nametoindex(argv[1]);
	s = socket(AF_PACKET, SOCK_RAW, htons(CONTENT_ETHERTYPE));
	if (s < 0 || !to.sll_ifindex)
		goto fail;

	memset(frame, 0xff, 6);
	memcpy(frame + 6, "\x02gdwt\x01", 6);
	frame[12] = CONTENT_ETHERTYPE >> 8;
	frame[13] = CONTENT_ETHERTYPE & 0xff;
	if (rate > 1)
		pause.tv_nsec = 1000000000 / rate;
	else
		pause.tv_sec = 1;
	for (; seq != end; seq++) {
		content_fill(frame + ETHER_BYTES, words, CONTENT_FRAME, seq, 0);
		if (sendto(s, frame, ETHER_BYTES + words * sizeof(uint32_t), 0,
			   (struct sockaddr *)&to, sizeof(to)) < 0 && errno != ENOBUFS)
			goto fail;
		nanosleep(&pause, NULL);
	}
	printf("%u\n", seq);
	return 0;
fail:
	fprintf(stderr, "sendframes: %s: %s\n", argv[1], strerror(errno));
	return 1;
}
