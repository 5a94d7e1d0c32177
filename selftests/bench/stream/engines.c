// SPDX-License-Identifier: GPL-2.0-only
/*
 * engines receive ADDRESS:PORT STREAMS
 * engines send FILE MIB ADDRESS:PORT STREAMS ENGINE EVERY [CONGESTION]
 *
 * One round of the sender's streams, and nothing else of a migration. Of FILE the pages that count
 * as written are all (EVERY 1) or one of EVERY, at random. "receive" says "listening" and drops
 * what comes. "send" prints the seconds of CPU time and of the clock that the round took.
 * CONGESTION is the algorithm of TCP's congestion control; without it, what the host has.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/sock.h"
#include "send/send_streams.h"
#include "dirty/source.h"

#define TIMEOUT_MS	30000u

static struct vm vm = { .nblocks = 1, .blocks = { { .name = "ram0", .page_size = PAGE_BYTES } } };

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void check_err(int r, const struct err *e)
{
	if (r) {
		fprintf(stderr, "engines: %s\n", e->text);
		exit(1);
	}
}

/* MSG_TRUNC: the bytes are not copied, so that the sender is what is measured. */
static void *drop_all(void *arg)
{
	int fd = *(int *)arg;
	ssize_t n;

	do {
		n = recv(fd, NULL, 1 << 20, MSG_TRUNC);
	} while (n > 0);
	check(n == 0, "recv");
	return NULL;
}

static void receive(const char *addr, unsigned int n)
{
	int listener = sock_tcp_listen(addr), fds[WIRE_STREAMS_MAX];
	pthread_t thread[WIRE_STREAMS_MAX];

	check(listener >= 0, addr);
	puts("listening");
	fflush(stdout);
	for (unsigned int i = 0; i < n; i++) {
		check(!sock_wait(listener, POLLIN, deadline_ms(TIMEOUT_MS)), "accept");
		fds[i] = sock_accept(listener);
		check(fds[i] >= 0 && !fcntl(fds[i], F_SETFL, 0), "accept");
		check(!pthread_create(&thread[i], NULL, drop_all, &fds[i]), "thread");
	}
	for (unsigned int i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
}

static struct dirty_source *open_source(uint64_t every)
{
	struct dirty_source *s;
	struct err e = { 0 };

	check_err(source_none(&vm, &s, &e), &e);
	check_err(s->ops->start(s, &e), &e);
	if (every > 1) {
		bitmap_clear(s->map[0], 0, vm.blocks[0].pages);
		srandom(1);
		for (uint64_t at = 0; at + every <= vm.blocks[0].pages; at += every)
			bitmap_set(s->map[0], at + (uint64_t)random() % every, 1);
	}
	return s;
}

static double cpu_seconds(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* The first round makes the rings, an empty one: they belong to a migration, not to a round. */
static void send_rounds(struct send_streams *st, struct dirty_source *s)
{
	struct err e = { 0 };
	uint64_t begin = 0;
	double cpu = 0;
	struct round rd;

	for (uint32_t i = 0; i < 2; i++) {
		begin = now_ns();
		cpu = cpu_seconds();
		round_begin(&rd, &vm, s, ROUND_PRECOPY, NULL, NULL);
		if (!i)
			round_cut(&rd);
		send_streams_begin(st, &rd, i);
		check_err(send_streams_wait(st, NULL, &e), &e);
		round_end(&rd);
	}
	printf("%.6f %.6f\n", cpu_seconds() - cpu, (double)(now_ns() - begin) / 1e9);
}

static int stream_to(const char *addr, const char *congestion)
{
	int fd = sock_tcp_connect(addr, deadline_ms(TIMEOUT_MS));

	check(fd >= 0 && !sock_tune(fd, TIMEOUT_MS), addr);
	check(!congestion || !setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion,
					 (socklen_t)strlen(congestion)), "congestion control");
	return fd;
}

/* argv[6]: NULL, or the congestion control */
static void send_ram(char **argv)
{
	unsigned int n = (unsigned int)atoi(argv[3]);
	const struct codec_wish off = { .kind = CODEC_OFF };
	_Atomic uint32_t compress = codec_wish_word(&off);
	struct send_streams_options o = {
		.vm = &vm, .zero_copy = ENGINE_ZC_AUTO, .timeout_ms = TIMEOUT_MS, .compress = &compress,
	};
	int fds[WIRE_STREAMS_MAX];
	struct dirty_source *s;
	struct err e = { 0 };
	struct send_streams *st;

	check_err(engine_choose(argv[4], &o.engine, &e), &e);
	vm.blocks[0].fd = open(argv[0], O_RDONLY);
	vm.blocks[0].pages = strtoull(argv[1], NULL, 10) * ((1 << 20) / PAGE_BYTES);
	check(vm.blocks[0].fd >= 0 && vm.blocks[0].pages, argv[0]);
	s = open_source(strtoull(argv[5], NULL, 10));
	for (unsigned int i = 0; i < n; i++)
		fds[i] = stream_to(argv[2], argv[6]);
	check_err(send_streams_start(&o, fds, n, &st, &e), &e);
	send_rounds(st, s);
	send_streams_free(st);
	s->ops->close(s, false);
}

int main(int argc, char **argv)
{
	bool sends = (argc == 8 || argc == 9) && !strcmp(argv[1], "send");
	int n = argc < 4 ? 0 : atoi(argv[sends ? 5 : 3]);

	if ((!sends && (argc != 4 || strcmp(argv[1], "receive"))) || n < 1 || n > WIRE_STREAMS_MAX) {
		fputs("usage: engines receive ADDRESS:PORT STREAMS\n"
		      "       engines send FILE MIB ADDRESS:PORT STREAMS ENGINE EVERY [CONGESTION]\n",
		      stderr);
		return 2;
	}
	if (sends)
		send_ram(argv + 2);
	else
		receive(argv[2], (unsigned int)n);
	return 0;
}
