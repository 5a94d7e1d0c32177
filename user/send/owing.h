/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The sender's part in post-copy, in the order of its steps. docs/architecture/postcopy.md
 */
#ifndef GODWIT_OWING_H
#define GODWIT_OWING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "postcopy/push.h"
#include "postcopy/stalled.h"
#include "tls/tls.h"

struct sender;

/**
 * struct owing
 * @asked: owing_ask() has asked the receiver
 * @agreed: the receiver can be owed pages
 * @chosen: it will be: the last round leaves what is dirty to afterwards
 * @why_not: if not @agreed, once the receiver is connected
 * @collected: @owed and @push are there
 * @follows: the guest runs there, and the rest follows it: the receiver may not be silent
 * @complete: the receiver has all
 * @lost: the verdict says that the guest is lost, and no later answer says otherwise: RECOVER is
 *	tried once
 * @unit: of each block, the receiver's
 * @begun_ns: when the guest was known to run there
 * @lost_ns: the latest loss of the link; @stall: those that no RAM came between
 * @fd, @tls: the request connection, until the thread has it
 */
struct owing {
	bool asked, agreed, chosen, collected, follows, complete, lost;
	struct err why_not;
	uint32_t unit[WIRE_BLOCKS_MAX];
	uint64_t begun_ns;
	uint64_t lost_ns;
	struct stalled stall;
	struct owed owed;
	struct push push;
	int fd;
	struct tls *tls;
	struct answers *answers;
};

#define OWING_NONE { .fd = -1 }

/*
 * Asks the receiver whether pages may be owed there, right behind BLOCKS; its answer comes behind
 * READY. With --postcopy auto its refusal is no error.
 */
int owing_ask(struct sender *s, struct err *e);
int owing_hear(struct sender *s, struct err *e);
/* Will pages be owed, whatever rounds may bring? */
bool owing_wanted(const struct sender *s);
/* Pages will be owed: SWITCHOVER says so, also if it has left before. */
int owing_choose(struct sender *s, struct err *e);
/* The connection that has joined for requests, taken over; -1: none any more. */
void owing_connection(struct sender *s, int fd, struct tls *tls);
/* Before the guest is stopped: is the request connection there? */
int owing_check(const struct sender *s, struct err *e);
/*
 * While the guest runs still the receiver empties what will be owed most likely: each run of pages
 * is a call of the kernel, and in the downtime there may be hundreds of thousands. What the guest
 * writes meanwhile is for the next pass, as long as each has less than half of the one before.
 * SWITCHOVER has been asked for. Rounds may follow.
 */
int owing_early(struct sender *s, struct err *e);
/*
 * The guest stands still, and the last harvest is in the maps: takes what is dirty out of them, and
 * names it to the receiver. What stays in the maps are holes, for the last round.
 */
int owing_collect(struct sender *s, struct err *e);
/* DEVICE_END has left: begins to push, and to answer. */
int owing_begin(struct sender *s, struct err *e);
/* FAULTS has come, whose body is still to be read. Return: 1, or -errno. */
int owing_take_faults(struct sender *s, struct err *e);
/* RESUMED has come: until the receiver has all. */
int owing_finish(struct sender *s, struct err *e);
/*
 * 0: nothing is owed to a guest that runs there. Else an error, in words, as its pages are here and
 * nowhere else.
 */
int owing_settle(struct sender *s, int r, struct err *e);
/* Is it not even known whether the guest has run there? */
bool owing_in_doubt(const struct sender *s);
/* The same in the end: what to say if pages are owed. lost: the guest is, there. */
int owing_give_up(struct sender *s, int r, bool lost, struct err *e);
/*
 * GW_RAN_TWICE (GW_VM_STATE where it is not known whether it has run there): the guest has run here
 * since the commit, so nothing more is sent. Does not wait.
 */
int owing_check_source(struct sender *s, struct err *e);
/* What is owed, and the order of pushing, are forgotten. */
void owing_reset(struct owing *o);
/* Ends the connection and its thread. */
void owing_disconnect(struct sender *s);
void owing_free(struct sender *s);

#endif
