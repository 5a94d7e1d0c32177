/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A sender that does not know whether its guest runs at the destination asks the receiver, by the
 * migration's token, over new connections. It notes what it needs for that in a file
 * (txn/record.h), so that `godwit resolve` can ask later.
 */
#ifndef GODWIT_DOUBT_H
#define GODWIT_DOUBT_H

#include "base/err.h"
#include "net/address.h"
#include "net/engine.h"
#include "qmp/qmp.h"
#include "tls/tls.h"
#include "txn/commit.h"
#include "txn/record.h"
#include "wire/wire.h"

/**
 * struct doubt - a migration in doubt
 * @addr: the receiver's; @read: room for doubt_read()
 * @tls: NULL: it is asked in the clear
 * @timeout_ms: for each of its answers
 * @seconds: how long to go on asking, and some round trips more: the receiver answers once it has
 *	noticed that the old connections are lost, for which it takes so much longer, too
 * @strict: no longer than that, also where an answer is on its way
 * @rtt_ns: of the link; 0: not known
 * @ran: the guest is known to have run at the destination, or to be there, if it was paused
 * @complete: and all of its RAM is there, so that nothing of here is needed any more
 * @dead: an answer has shown that the guest never runs there, and the receiver may have forgotten
 * @paused: it was, when it was sent; only written, see doubt_guest()
 * @state: QEMU's run state since the commit; "": any in which the guest is stopped, in save mode as
 *	"paused"; NULL: an older note does not say
 * @continued: it has left that state since
 * @undo: the note's, by which QEMU's last migration is known to be that sender's; NULL: not read
 */
struct doubt {
	const char *addr;
	char read[ADDRESS_MAX];
	struct tls_creds *tls;
	const struct engine_ops *engine;
	unsigned int timeout_ms;
	unsigned int seconds;
	uint64_t rtt_ns;
	bool ran, complete, dead, paused, continued, strict;
	const char *state;
	const json_t *undo;
	uint8_t token[WIRE_SECRET];
};

/**
 * struct doubt_answer - what the receiver says beside its verdict
 * @resumed_ns: when the destination said RESUME, by its CLOCK_REALTIME; 0: not known
 * @owing: the guest runs there, and may lack RAM that is only here
 * @lost: it ran there, and its QEMU has exited without that RAM
 */
struct doubt_answer {
	uint64_t resumed_ns;
	bool owing, lost;
};

/* How long to go on asking. */
unsigned int doubt_patience_ms(const struct doubt *d);

/**
 * doubt_ask() - ask until the answer is final
 * @e: why the last question had no final answer
 * Return: SOURCE_LEARNS_RUNS, SOURCE_LEARNS_DEAD or SOURCE_STOPS_ASKING
 */
enum commit_source_event doubt_ask(const struct doubt *d, struct doubt_answer *answer,
				   struct err *e);

/*
 * Makes the note, without a word in it: doubt_read() finds none. What is written to it later needs
 * no more room.
 * Errors: GW_NO_ROOM; GW_INTERNAL. Of both: -EOPNOTSUPP.
 */
int doubt_reserve(struct record *r, pid_t vmm, struct err *e);
/*
 * Writes the note of this VMM's sender, which stays open: a second call changes it. undo: the
 * journal's records.
 */
void doubt_write(struct record *r, pid_t vmm, const struct doubt *d, const json_t *undo);
/*
 * An answer has shown that the guest has run at the destination. So says the note from now on, of
 * which all else stays; note: as doubt_read() has read it.
 */
void doubt_note_ran(pid_t vmm, json_t *note);
/* The same of @complete, and of @ran with it. */
void doubt_note_complete(pid_t vmm, json_t *note);
/* The same of @dead, before anything is done here that could fail. */
void doubt_note_dead(pid_t vmm, json_t *note);
/* The same of @continued: another client has continued the guest here. */
void doubt_note_continued(pid_t vmm, json_t *note);
/*
 * Whoever sends RAM of this QEMU later: is it still as it was left? A guest that has run here since
 * has other RAM than the one that was sent. Not seen, in save mode: QEMU before 10.0, or a guest
 * without disks, that was continued and stopped again. Errors: GW_RAN_TWICE; GW_VM_STATE: it is not
 * known whether the guest has run there.
 */
int doubt_check_source(struct qmp *q, const struct doubt *d, struct err *e);
/* Does the note say so, or has an answer since? */
bool doubt_ran(const json_t *note);
/* How the guest was when it was sent; an older godwit's note does not say. */
enum doubt_guest { DOUBT_GUEST_UNKNOWN, DOUBT_GUEST_RAN, DOUBT_GUEST_PAUSED };
enum doubt_guest doubt_guest(const json_t *note);
/* What the operator is to do with the source when it is lost: one that was paused is all there. */
const char *doubt_lost_words(enum doubt_guest guest);
/* Unlinks the note. */
void doubt_forget(pid_t vmm);
/*
 * Reads the note. d->addr is in *note or in *d, d->state and the array "undo" in *note, which the
 * caller frees by json_decref().
 * Errors: GW_NO_MIGRATION: no migration of this VM is in doubt.
 */
int doubt_read(pid_t vmm, struct doubt *d, json_t **note, struct err *e);

#endif
