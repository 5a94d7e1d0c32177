// SPDX-License-Identifier: GPL-2.0-only
/*
 * bare receive|send FILE MIB ADDRESS:PORT: what the machine allows to a program that moves RAM as godwit does and does
 * nothing else: two connections, the same read of the source, the same way to make new pages, and no frames, no zero
 * filter, no device state, no waiting between threads. Each connection has a half of the file. FILE of the receiver
 * must be empty. The receiver says "listening".
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/channel.h"
#include "base/clock.h"
#include "net/sock.h"
#include "ram/uffd_copy.h"
#include "page/page.h"
#include "ram/thp.h"

#define CONNECTIONS	2u
#define STEP		FRAME_BYTES
#define TIMEOUT_MS	30000u

struct share {
	int socket;
	uint64_t from, bytes;
	char *buf;
};

static struct ram_block ram;
static struct uffd_copy fresh;
static uint8_t *mapped;	/* where there are huge pages */

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void *send_share(void *arg)
{
	struct share *s = arg;

	for (uint64_t at = s->from; at < s->from + s->bytes; at += STEP) {
		if (!mapped)
			check(pread(ram.fd, s->buf, STEP, (off_t)at) == STEP, "pread");
		check(send(s->socket, mapped ? (char *)mapped + at : s->buf, STEP, MSG_NOSIGNAL) == STEP, "send");
	}
	return NULL;
}

static void *receive_share(void *arg)
{
	struct share *s = arg;

	for (uint64_t at = s->from; at < s->from + s->bytes; at += STEP) {
		uint64_t done;

		check(recv(s->socket, mapped ? (char *)mapped + at : s->buf, STEP, MSG_WAITALL) == STEP, "recv");
		if (mapped)
			continue;
		done = uffd_copy_put(&fresh, at / PAGE_BYTES, (uint8_t *)s->buf, STEP / PAGE_BYTES) * PAGE_BYTES;
		check(pwrite(ram.fd, s->buf + done, STEP - done, (off_t)(at + done)) == (ssize_t)(STEP - done), "pwrite");
	}
	return NULL;
}

/* As godwit's sockets, but they block. */
static int prepare(int fd)
{
	check(fd >= 0 && !sock_tune(fd, TIMEOUT_MS) && !fcntl(fd, F_SETFL, 0), "connection");
	return fd;
}

static void accept_all(struct share *s, const char *addr)
{
	int listener = sock_tcp_listen(addr);

	check(listener >= 0, addr);
	puts("listening");
	fflush(stdout);
	for (unsigned int i = 0; i < CONNECTIONS; i++) {
		check(!sock_wait(listener, POLLIN, deadline_ms(TIMEOUT_MS)), "accept");
		s[i].socket = prepare(sock_accept(listener));
		check(recv(s[i].socket, &s[i].from, sizeof(s[i].from), MSG_WAITALL) == sizeof(s[i].from), "recv");
	}
	close(listener);
}

static void connect_all(struct share *s, const char *addr)
{
	for (unsigned int i = 0; i < CONNECTIONS; i++) {
		s[i].socket = prepare(sock_tcp_connect(addr, deadline_ms(TIMEOUT_MS)));
		s[i].from = i * s[i].bytes;
		check(send(s[i].socket, &s[i].from, sizeof(s[i].from), MSG_NOSIGNAL) == sizeof(s[i].from), "send");
	}
}

int main(int argc, char **argv)
{
	bool sends = argc == 5 && !strcmp(argv[1], "send");
	struct share share[CONNECTIONS] = { 0 };
	pthread_t thread[CONNECTIONS];
	uint64_t bytes;

	if (!sends && (argc != 5 || strcmp(argv[1], "receive"))) {
		fputs("usage: bare receive|send FILE MIB ADDRESS:PORT\n", stderr);
		return 2;
	}
	bytes = strtoull(argv[3], NULL, 10) << 20;
	check(bytes != 0, "MIB");
	ram.fd = open(argv[2], sends ? O_RDONLY : O_RDWR);
	ram.pages = bytes / PAGE_BYTES;
	check(ram.fd >= 0, argv[2]);
	mapped = thp_map(&ram, sends ? PROT_READ : PROT_READ | PROT_WRITE);
	if (!sends && !mapped)
		uffd_copy_open(&fresh, &ram);
	for (unsigned int i = 0; i < CONNECTIONS; i++) {
		share[i].bytes = bytes / CONNECTIONS;
		check(!posix_memalign((void **)&share[i].buf, PAGE_BYTES, STEP), "buffer");
	}
	if (sends)
		connect_all(share, argv[4]);
	else
		accept_all(share, argv[4]);
	for (unsigned int i = 0; i < CONNECTIONS; i++)
		check(!pthread_create(&thread[i], NULL, sends ? send_share : receive_share, &share[i]), "thread");
	for (unsigned int i = 0; i < CONNECTIONS; i++)
		pthread_join(thread[i], NULL);
	return 0;
}
