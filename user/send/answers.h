/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The sender's end of the request connection: one thread reads WANT and sends the pages, at once
 * and one unit after the other, whatever the streams push. No limit slows it down.
 */
#ifndef GODWIT_ANSWERS_H
#define GODWIT_ANSWERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "net/engine.h"
#include "postcopy/push.h"
#include "tls/tls.h"
#include "vmm/vm.h"

struct answers;

/**
 * struct answers_options
 * @owed: what may be asked for, once
 * @push: is told of each fault; the streams push from there on
 * @fd, @tls: the connection; the thread takes both over, also when the start fails
 * @timeout_ms: how long the receiver may accept no byte
 */
struct answers_options {
	const struct vm *vm;
	struct owed *owed;
	struct push *push;
	const struct engine_ops *engine;
	int fd;
	struct tls *tls;
	unsigned int timeout_ms;
};

int answers_start(const struct answers_options *o, struct answers **out, struct err *e);
/* 0, or -errno: it has failed. */
int answers_check(struct answers *a, struct err *e);
/* Units that were asked for so far. */
uint64_t answers_count(struct answers *a);
/* Ends the thread, and the connection. NULL is fine. */
void answers_free(struct answers *a);

#endif
