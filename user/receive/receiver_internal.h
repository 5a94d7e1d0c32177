/* SPDX-License-Identifier: GPL-2.0-only */
/* The receiver's state, shared by the files of this folder. */
#ifndef GODWIT_RECEIVER_INTERNAL_H
#define GODWIT_RECEIVER_INTERNAL_H

#include "claim/claim.h"
#include "devstate/device_state.h"
#include "devstate/migration.h"
#include "net/channel.h"
#include "net/join.h"
#include "peer/private_ram_frames.h"
#include "peer/verify.h"
#include "place/ram_write.h"
#include "qom/qom.h"
#include "receive/postcopy.h"
#include "receive/receive_streams.h"
#include "receive/receiver.h"
#include "txn/commit.h"
#include "txn/record.h"
#include "vmm/vm.h"

/**
 * enum receiver_state - how far the migration is, as the receiver sees it. It only goes forward,
 * but for RECONNECT in RECEIVER_SWITCHES, which leads back to RECEIVER_ROUNDS: the sender
 * that says it is not in doubt, and will say SWITCHOVER again.
 * @RECEIVER_ROUNDS: RAM comes, and the receiver writes it. After a failure, and a wait for the
 *	sender where KEEP was said, the receiver keeps nothing: the sender sends neither the last
 *	round nor DEVICE_END before it has the answer to SWITCHOVER.
 * @RECEIVER_SWITCHES: the answer to SWITCHOVER has left or leaves next. Rounds may go on. All that
 *	the sender has left to send may be in its socket's buffers, so from here on, after a
 *	failure, the receiver keeps the verdict for the sender's questions, whatever it saw itself.
 * @RECEIVER_HAS_RAM: the last round is in place. May come: COMMIT, PING.
 * @RECEIVER_COMMITTED: COMMIT has come. The receiver writes no RAM any more, as loading the device
 *	state writes RAM (pvclock). May come: DEVICE_END, PING. txn/commit.h says what happens from
 *	DEVICE_END on.
 */
enum receiver_state {
	RECEIVER_ROUNDS, RECEIVER_SWITCHES, RECEIVER_HAS_RAM, RECEIVER_COMMITTED
};

/**
 * enum sender_knowledge - does the sender know how the migration ended?
 * @SENDER_MAY_NOT_KNOW: so the receiver waits for its question, and keeps the record
 * @SENDER_TOLD: it has given up, or our last word has left for it: it knows if it lives, and the
 *	link does. The receiver keeps the record, and does not wait.
 * @SENDER_KNOWS: the sender said so, or closed the connection behind our last word, or gave up
 *	where it cannot be in doubt: the receiver removes the record
 */
enum sender_knowledge { SENDER_MAY_NOT_KNOW, SENDER_TOLD, SENDER_KNOWS };

/**
 * struct receiver
 * @unpacking: --decompress-threads
 * @lfd: the listener; -1: none
 * @lfd_shut: all streams have joined, and the listener refuses connections
 * @deaf_told: that it cannot listen again
 * @stranger_told: that another guest's sender comes here
 * @features: those that this peer and we offer
 * @rtt_ns: the shortest round trip to it; 0: not known
 * @precopied: rounds stood before SWITCHOVER, and before any of QEMU's stream: not with --pause
 * @keep_s: how long to wait for the sender when the link is lost; 0: not at all
 * @lost_ns: the first loss of the link since a round stood; 0: none
 * @waits: the link is lost, and the sender may come back
 * @base: the latest round that the sender had begun when it connected again
 * @stands: the latest round that is in place on all streams
 * @before: what streams wrote that have ended
 * @reuse: what is reused of a file (--reuse), or NULL; @told: the writer's refused pages that
 *	the sender was told of; @told_pages: the writer's count when it had been told of all, over
 *	this connection;
 *	@told_changed, @told_index: that the operator has been told of the file
 * @source_ram: a block of this QEMU whose file is the source's own RAM; NULL: there is none, or the
 *	sender does not list its files
 * @private: QEMU's private RAM, numbered as the sender does
 * @save_mode: the sender sends the device state in save mode, not in migrate mode
 * @numbered: this receiver has taken a guest over by a note: @vm has the sender's order, and
 *	@save_mode is known
 * @devstate: QEMU's stream, as far as it has come
 * @runs: the guest ran at the source, and is to run here
 * @commit: see txn/commit.h
 * @resumed_ns: when QEMU resumed the guest (RESUME), CLOCK_REALTIME
 * @verdicts: the sender may ask by @token, and @record answers, also after this receiver has exited
 * @vmm: names QEMU's process in records (record_name_vm()), also when it has exited; "": not known
 * @ran: this receiver has taken a guest over, and QEMU has said that it runs
 * @unstarted: this receiver has taken a guest over that QEMU has loaded, and nobody has started
 *	since, though it ran at the source: postcopy_start()
 * @off: QEMU has said that its guest has ended of its own accord; @ended: and has exited then
 * @lost: QEMU has exited with the only copy of what its guest has done, or nobody knows
 *	(postcopy_loss())
 * @whole: what was owed has come, or is not needed any more
 * @lacks_ram: the migration is over here, and what is owed has not come
 */
struct receiver {
	const struct receiver_options *o;
	struct receiver_result *res;
	struct qmp *qmp;
	struct qmp_place at;		/* its QEMU's, also where qmp is NULL */
	bool at_stranger;		/* another process listens there */
	struct vm vm;
	struct qom_known known;		/* of its QEMU, since before a sender came */
	struct migration migration;
	struct ram_writer writer;
	struct postcopy postcopy;
	struct thread_slots unpacking;
	struct verify_result verify;
	struct channel *ch;
	struct receive_streams *streams;
	int lfd;
	bool lfd_shut;
	bool deaf_told, stranger_told;
	uint64_t features, rtt_ns;
	bool precopied;
	unsigned int keep_s;
	uint64_t lost_ns;
	bool waits;
	uint32_t base, stands;
	struct ram_writer_count before;
	struct reuse_index *reuse;
	uint64_t *told[WIRE_BLOCKS_MAX];
	uint64_t told_pages;
	bool told_changed, told_index;
	const struct ram_block *source_ram;
	struct private_ram private;
	bool save_mode, numbered;
	enum receiver_state state;
	enum sender_knowledge sender;
	bool runs;
	struct device_state devstate;
	enum commit_state commit;
	uint64_t resumed_ns;
	bool verdicts;
	uint8_t token[WIRE_SECRET];
	struct record record;
	char vmm[RECORD_NAME];
	bool ran, unstarted, off, ended, lost, whole, lacks_ram;
	struct claim claim;
};

/* Finds QEMU, and takes the claim on it. */
int receiver_find(struct receiver *r, struct err *e);
/*
 * Serves one frame of a migration under way. 1: the frame was DEVICE_END, and all that it counts on
 * has come.
 */
int receiver_on_frame(struct receiver *r, const struct wire_header *h, struct err *e);
/* Serves a frame of a stream that is neither RAM nor ROUND (receive_streams_options). */
int receiver_on_stream_frame(void *arg, struct channel *ch, const struct wire_header *h,
			     bool placed, struct err *e);
#define ALIVE_NS	1000000000ull	/* between two of them */
/* Sends a PONG that answers no PING: the receiver lives, and is busy. arg: struct receiver */
int receiver_alive(void *arg, struct err *e);
/*
 * The same, and no failure. Once SWITCHOVER has been answered DEVICE_END may be here, unread, and
 * with it all that the control connection is needed for: whether it has broken since says nothing.
 * A sender that is gone closes its streams.
 */
int receiver_alive_anyway(void *arg, struct err *e);
/* Sends a frame without a body. */
int receiver_send(struct receiver *r, enum wire_type type, uint32_t arg, struct err *e);
/* Answers the PING whose header is *h. */
int receiver_pong(struct receiver *r, const struct wire_header *h, struct err *e);

/*
 * Waits until a peer connects and says HELLO, and reads the header that follows: *h. come_ns: 0, or
 * when to give up if none has come (-ETIMEDOUT, *e is left alone); until_ns: 0, or the end of the
 * wait for one that has.
 */
int receiver_greet(struct receiver *r, struct wire_header *h, uint64_t come_ns, uint64_t until_ns,
		   struct err *e);
/*
 * Listens until a sender comes, and agrees with it on version and RAM. Answers preflight checks and
 * questions for a verdict meanwhile.
 */
int accept_sender(struct receiver *r, struct err *e);
/* Opens the listener, or takes over the one that was passed. */
int receiver_listen(struct receiver *r, struct err *e);
/*
 * Compares the sender's RAM blocks, the body of BLOCKS or CHECK, with ours, and numbers ours alike.
 */
int agree_ram(struct receiver *r, const struct wire_header *h, struct err *e);
/* Serves a preflight check to its end; r->ch is closed then. */
void check_reply(struct receiver *r, const struct wire_header *check);
/* Lets the sender's streams join. */
int join_streams(struct receiver *r, struct err *e);
/* The same after RECONNECT or RECOVER, which this answers. */
int join_streams_again(struct receiver *r, enum wire_type type, struct err *e);
/* How long the sender may be silent. */
unsigned int receiver_patience_ms(const struct receiver *r);
/* The listener accepts connections again. false: it does not. */
bool receiver_listen_again(struct receiver *r);
/* Ends all connections, and all writes of the streams. */
void receiver_disconnect(struct receiver *r);
/* Serves a peer that has said HELLO, and whose next header is *h. */
typedef int receiver_serve_fn(struct receiver *r, const struct wire_header *h, struct err *e);
/*
 * The link is lost: listens until then, and lets serve() have each peer, until that returns 1 (the
 * sender is back) or an error. Return: that; 0: the sender has not come in time; -errno, also if
 * QEMU exits (GW_VM_GONE) or a signal ends the wait. r->ch and what has joined may be there then.
 */
int receiver_wait_again(struct receiver *r, uint64_t until, receiver_serve_fn *serve,
			struct err *e);
/*
 * ret, *e: the migration has failed. If that is the link, and the sender has said KEEP: waits for
 * the sender. Return: 0: the sender is back, and its streams have joined. Else ret, or -errno.
 */
int reconnect(struct receiver *r, int ret, struct err *e);
/*
 * ret, *e: the link was lost while the guest runs here and lacks RAM. Waits for the sender for
 * --recover-timeout. Return: 0: the sender is back, and goes on. Else -errno.
 */
int recover(struct receiver *r, int ret, struct err *e);
/* Notes the RAM of a guest that runs here and lacks some of it, for a receiver that takes over. */
void kept_ram_note(const struct receiver *r);
/* Nothing is owed any more, or the guest is lost. */
void kept_ram_forget(const struct receiver *r);
/*
 * The record says that this guest has all of its RAM: ends what its receiver, which was killed, has
 * left in the module, and its note. Another receiver may be at that: then nothing.
 * Errors: those of device_open() and device_keep(); the note stays.
 */
int kept_ram_end(const uint8_t token[WIRE_SECRET], const json_t *whole, struct err *e);
/*
 * Is all of it here, by the record? 1: r->token is its, and the module keeps nothing any more. 0:
 * no; or kept_ram_end()'s error.
 */
int kept_ram_whole(struct receiver *r, struct err *e);
/*
 * Finds a QEMU by that note, which need not answer, and takes the claim on it; r->qmp stays NULL.
 * Return: 1; 0: there is no note; or -errno.
 */
int kept_ram_find(struct receiver *r, struct err *e);
/*
 * As receiver_prepare(), for a QEMU whose guest has come, and lacks RAM. A note says that: QEMU may
 * not be able to, before it has a page that only a receiver brings.
 */
int kept_ram_claim(struct receiver *r, struct err *e);
/* Takes the guest over from a receiver that has ended, and serves it to the end. */
int recover_take_over(struct receiver *r, struct err *e);
/*
 * The migration is over here, and RECOVER has come: tells its sender that the guest has all of its
 * RAM, or is lost. r->ch is closed then.
 */
void recover_tell(struct receiver *r, const struct wire_header *h);
/*
 * RECOVER has come to a receiver that waits for no sender to recover. 0: the record of a receiver
 * that has ended says that the guest has all of its RAM, and the sender has been told; r->ch is
 * closed then. Else an error, to be told.
 */
int recover_refuse(struct receiver *r, struct err *e);

/*
 * --reuse, if it was given: begins to index the file. Errors: GW_RAM_IN_USE: it is the RAM of a VM;
 * those of reuse_index_open().
 */
int receiver_open_reuse(struct receiver *r, struct err *e);
void receiver_end_reuse(struct receiver *r);
/* The writer is there, and may place what is referred to. */
int receiver_begin_reuse(struct receiver *r, struct err *e);
/* Serves REUSE, of a check as well. */
int receiver_on_reuse(struct receiver *r, const struct wire_header *h, struct err *e);
int receiver_on_want_hashes(struct receiver *r, const struct wire_header *h, struct err *e);
/* All rounds that have come are in place but for what was refused: tells the sender of that. */
int receiver_tell_refused(struct receiver *r, struct err *e);
/* The sender may not have heard any of it. */
void receiver_refused_again(struct receiver *r);

/*
 * Makes the record of the verdict on this migration. It stays readable after this receiver is
 * killed.
 */
void verdict_open(struct receiver *r);
void verdict_write(struct receiver *r);
/* The record of that migration, a new reference, if it is of this receiver's QEMU; else NULL. */
json_t *verdict_ours(const struct receiver *r, const uint8_t token[WIRE_SECRET]);
/*
 * Does the record say that another QEMU has the guest of that migration, and does that live? In
 * another pid namespace one QEMU has another number: what is not seen to live says nothing.
 */
bool verdict_is_of_another(const struct receiver *r, const uint8_t token[WIRE_SECRET]);
/*
 * Is the guest of that migration lost, by what this receiver has seen of its QEMU, or by the record
 * of one that has? A receiver that was killed before its QEMU exited has seen nothing: false.
 */
bool verdict_lost(const struct receiver *r, const uint8_t token[WIRE_SECRET]);
/* This receiver has seen the end of its guest, and knows now which migration that was, maybe. */
void verdict_adopt(struct receiver *r, const uint8_t token[WIRE_SECRET]);
/* Does the record leave open whether the guest, which is to run, was ever started here? */
bool verdict_unstarted(const json_t *record);
/* The record, a new reference, if it says that the guest runs, and lacks nothing; else NULL. */
json_t *verdict_whole(const uint8_t token[WIRE_SECRET]);
/* By the records: which migration has brought the guest of this receiver's QEMU? false: none. */
bool verdict_search(const struct receiver *r, uint8_t token[WIRE_SECRET]);
/*
 * The last word on r->ch has left. The sender closes the connection when it has read that. A link
 * that is silent instead may have died under it, or be one that keeps the close to itself: so that
 * is not waited for, and the record stays.
 */
enum sender_knowledge receiver_was_read(struct receiver *r);
/*
 * Serves ASK, whose header has come, to its end; r->ch is closed then. If it is about this
 * migration, and that waits for its sender, the migration is dead from here on (reconnect.c).
 * Return: SENDER_MAY_NOT_KNOW unless the question was about this migration, and the answer is
 * final.
 */
enum sender_knowledge verdict_reply(struct receiver *r);

#endif
