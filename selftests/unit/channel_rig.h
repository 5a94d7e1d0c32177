/* SPDX-License-Identifier: GPL-2.0-only */
/* A channel and the other end of its socket, with each engine in turn. Include after cmocka.h. */
#ifndef GODWIT_CHANNEL_RIG_H
#define GODWIT_CHANNEL_RIG_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "each_engine.h"
#include "net/channel.h"

#define MS		1000000ull
#define TIMEOUT_MS	400u

struct link {
	struct channel *ch;
	int peer;
	struct err e;
};

static inline int connect_link(void **state, int sndbuf)
{
	struct link *l = calloc(1, sizeof(*l));
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	if (sndbuf)
		setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
	assert_int_equal(channel_new(pair[0], engine, TIMEOUT_MS, &l->ch, &l->e), 0);
	l->peer = pair[1];
	*state = l;
	return 0;
}

static inline int setup(void **state)
{
	return connect_link(state, 0);
}

/* So little that a frame takes many sends, each of them short. */
static inline int setup_narrow(void **state)
{
	return connect_link(state, 4096);
}

static inline int teardown(void **state)
{
	struct link *l = *state;

	channel_free(l->ch);
	if (l->peer >= 0)
		close(l->peer);
	free(l);
	return 0;
}

static inline void nap(unsigned int ms)
{
	struct timespec ts = { .tv_nsec = (long)(ms * MS) };

	nanosleep(&ts, NULL);
}

static inline void *raise_flag(void *flag)
{
	nap(50);
	atomic_store((atomic_bool *)flag, true);
	return NULL;
}

#endif
