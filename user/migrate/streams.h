/* SPDX-License-Identifier: GPL-2.0-only */
/* The sender's streams: a thread and a connection each, which share the work of a round. */
#ifndef GODWIT_STREAMS_H
#define GODWIT_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "io/channel.h"
#include "io/engine.h"
#include "migrate/pace.h"
#include "migrate/reader.h"
#include "migrate/round.h"
#include "vmm/vm.h"

struct streams;

/**
 * struct streams_options
 * @pace: shared by all; lifted for the last round; may be NULL
 * @zero_copy: of what is sent to the network, see engine.h
 * @timeout_ms: how long the peer may refuse to take anything
 */
struct streams_options {
	const struct vm *vm;
	const struct engine_ops *engine;
	struct pace *pace;
	enum engine_zero_copy zero_copy;
	unsigned int timeout_ms;
};

/* Takes the descriptors over, on failure too. They have joined already. */
int streams_start(const struct streams_options *o, const int *fds, unsigned int n, struct streams **out, struct err *e);
/**
 * streams_round() - sends all of rd, and ROUND on each stream
 * @idle: called about ten times a second while they work, to look for the peer's ABORT and to show progress; may be NULL
 * Return: 0, or -errno: of the stream that failed first, or of @idle. After that only streams_free() may be called.
 * The connections stay open until then, so that the peer hears why from the control connection.
 */
int streams_round(struct streams *st, struct round *rd, uint32_t number, struct round_count *count,
		  int (*idle)(void *arg, struct err *e), void *arg, struct err *e);
uint64_t streams_sent(const struct streams *st);	/* bytes, headers included */
struct zero_copy_count streams_zero_copies(const struct streams *st);
void streams_free(struct streams *st);			/* NULL is fine */

#endif
