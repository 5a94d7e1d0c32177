/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The receiver's part in post-copy, in the order of its steps. docs/architecture/postcopy.md
 */
#ifndef GODWIT_RECEIVE_POSTCOPY_H
#define GODWIT_RECEIVE_POSTCOPY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "net/channel.h"
#include "postcopy/lazy_ram.h"
#include "postcopy/stalled.h"
#include "receive/requests.h"

struct receiver;

/**
 * struct postcopy
 * @agreed: the sender may owe pages: this host can do it
 * @announced: SWITCHOVER said that it will: the RAM is registered
 * @ready: OWED may come: what the threads of the streams need for it is there
 * @taken: the keep is of a receiver that has ended. Until @ready nothing is known of what it lacks
 * @early: named before the guest was stopped, and not yet punched out
 * @begun: the last round is in place, and what is owed is punched out
 * @dev: a session of godwit.ko, whose keep is named by the token; -1: none
 * @userfaultfd: /dev/userfaultfd
 * @mem, @uffd: of QEMU
 * @stop: no thread waits for memory any more
 * @fd, @tls: the request connection, until the thread has it
 * @before: what it counted before the link was lost
 * @stall: losses of the link that no RAM came between
 */
struct postcopy {
	bool agreed, announced, begun, taken;
	int dev, userfaultfd, mem, uffd;
	uint32_t unit[WIRE_BLOCKS_MAX];
	struct lazy_ram lazy;
	struct owed early;
	atomic_bool ready;
	int fd;
	struct tls *tls;
	struct requests *requests;
	struct requests_count before;
	struct stalled stall;
	atomic_bool stop;
};

#define POSTCOPY_NONE { .dev = -1, .userfaultfd = -1, .mem = -1, .uffd = -1, .fd = -1 }

/*
 * The sender asks (POSTCOPY) whether it may owe pages: answers, with CANNOT and why if not. check:
 * it will not, and only wants to know.
 */
int postcopy_reply(struct receiver *r, const struct wire_header *h, bool check, struct err *e);
/* The connection that has joined for requests, taken over. */
void postcopy_connection(struct receiver *r, int fd, struct tls *tls);
/* SWITCHOVER has WIRE_OWING: registers the RAM. */
int postcopy_announced(struct receiver *r, struct err *e);
/* OWED on the control connection, between SWITCHOVER and the last round. */
int postcopy_early(struct receiver *r, const struct wire_header *h, struct err *e);
/* OWED, on the thread of a stream. */
int postcopy_owed(struct receiver *r, struct channel *ch, const struct wire_header *h,
		  struct err *e);
/*
 * The last round is in place on all streams, which wait: punches out what is owed, begins to serve
 * page faults, and lets the streams go on.
 */
int postcopy_begin(struct receiver *r, struct err *e);
/*
 * The last look before QEMU gets the device state, as long as the guest can still go back: can what
 * is owed still come?
 */
int postcopy_check(struct receiver *r, struct err *e);
/* Marks QEMU, so that nobody sends the guest on before all of its RAM has come (txn/mark.h). */
int postcopy_mark(struct receiver *r, struct err *e);
/* The guest runs here, or may, and something is owed. */
bool postcopy_lacks_ram(const struct receiver *r);
/*
 * The guest runs: waits until nothing is owed, and tells the sender. An error leaves the guest
 * waiting for the pages that it touches, and the module keeps it so.
 */
int postcopy_finish(struct receiver *r, struct err *e);
/*
 * Once a second, while the guest runs and lacks RAM: hears what QEMU says. A receiver that took
 * over connects to its monitor as soon as that answers.
 */
void postcopy_attend(struct receiver *r);
/* *e: QEMU has exited. Had its guest ended of its own accord? Then *e is none. */
bool postcopy_has_ended(struct receiver *r, struct err *e);
/* Else: what became of the guest, in words. */
const char *postcopy_loss(const struct receiver *r);
/* QEMU has exited, or is about to: a process that is killed may wait for a fault. */
bool postcopy_vm_gone(const struct receiver *r, unsigned int ms, struct err *e);
/*
 * Takes over what the module has kept of this token, before BLOCKS has come.
 * Errors: GW_NO_MIGRATION: it keeps nothing of it; those of device_keep() and of its files.
 */
int postcopy_take(struct receiver *r, const uint8_t token[WIRE_SECRET], struct err *e);
/*
 * That has failed, or what follows: it is left as it was, as the module's next look may show that
 * it is another guest's, whose sender has come to this address.
 */
void postcopy_release(struct receiver *r);
/* The rest of that: finds out what is missing. The blocks are numbered as the sender does. */
int postcopy_taken(struct receiver *r, struct err *e);
/* Ends the threads that put pages in place, and their connections. */
void postcopy_interrupt(struct receiver *r);
/* The sender is back: serves page faults again. */
int postcopy_resume(struct receiver *r, struct err *e);
/*
 * Ends what is still there. If the guest never runs here, or nothing is owed, nothing remains; else
 * faults go on waiting.
 */
void postcopy_end(struct receiver *r);

#endif
