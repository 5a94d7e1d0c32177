/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The receiver's end of the request connection: one thread reads page faults, asks the sender for
 * the units that are owed, and puts the answers in place. Nothing else is on that connection.
 */
#ifndef GODWIT_REQUESTS_H
#define GODWIT_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>

#include "place/ram_write.h"
#include "tls/tls.h"

struct requests;

/**
 * struct requests_options
 * @fd, @tls: the connection; the thread takes both over, also when the start fails
 * @writer: whose @lazy is set
 * @timeout_ms: how long the sender may leave a question without an answer
 */
struct requests_options {
	int fd;
	struct tls *tls;
	const struct engine_ops *engine;
	struct ram_writer *writer;
	unsigned int timeout_ms;
};

/* @seen, @zeros, @waited: see struct faults; @asked: units */
struct requests_count {
	uint64_t seen, zeros, asked;
	struct latency waited;
};

int requests_start(const struct requests_options *o, struct requests **out, struct err *e);
/* Has it failed, and why? */
bool requests_failed(struct requests *r, struct err *e);
/* Adds what it has counted. */
void requests_count(struct requests *r, struct requests_count *count);
/* Ends the thread, and the connection. NULL is fine. */
void requests_free(struct requests *r);

#endif
