/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A sender that does not know whether its guest runs at the destination: it asks the receiver, by the migration's token,
 * over new connections. What it needs for that is noted in a file (txn/record.h), so that `godwit resolve` can do it later.
 */
#ifndef GODWIT_DOUBT_H
#define GODWIT_DOUBT_H

#include "err.h"
#include "io/engine.h"
#include "txn/commit.h"
#include "txn/record.h"
#include "wire/wire.h"

/**
 * struct doubt - a migration whose end is not known
 * @addr: the receiver's
 * @timeout_ms: for each of its answers
 * @seconds: how long to go on asking
 */
struct doubt {
	const char *addr;
	const struct engine_ops *engine;
	unsigned int timeout_ms;
	unsigned int seconds;
	uint8_t token[WIRE_SECRET];
};

/**
 * doubt_ask() - ask until the answer is final
 * @resumed_ns: the destination's RESUME, its CLOCK_REALTIME; 0: not known
 * @e: why the last question had no final answer
 * Return: SOURCE_HEARS_RUNS, SOURCE_HEARS_DEAD or SOURCE_IS_TIRED
 */
enum commit_source_event doubt_ask(const struct doubt *d, uint64_t *resumed_ns, struct err *e);

/* The note of the sender of this VMM, and what it says. undo: the journal's records. */
void doubt_write(struct record *r, pid_t vmm, const struct doubt *d, const json_t *undo);
void doubt_forget(pid_t vmm);
/* addr and undo belong to *note, for json_decref(). Errors: GW_NO_MIGRATION: nothing is in doubt. */
int doubt_read(pid_t vmm, struct doubt *d, json_t **note, struct err *e);

#endif
