/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The sender's state, shared by its parts: sender.c (order), connect.c, connect_again.c, precopy.c
 * (rounds), late_rounds.c, switchover.c (the blackout), settle.c (commit or rollback),
 * send_migrate.c and send_save.c (how QEMU stops, and yields its device state).
 */
#ifndef GODWIT_SENDER_INTERNAL_H
#define GODWIT_SENDER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "brake/brake.h"
#include "claim/claim.h"
#include "control/server.h"
#include "devstate/migration.h"
#include "devstate/mode.h"
#include "devstate/save.h"
#include "dirty/hot_pages.h"
#include "dirty/lease.h"
#include "dirty/source.h"
#include "dirty/zeros.h"
#include "fit/fit.h"
#include "net/address.h"
#include "net/channel.h"
#include "net/pace.h"
#include "peer/private_ram_frames.h"
#include "peer/referring.h"
#include "plan/converge.h"
#include "plan/limits.h"
#include "qmp/dirty_rate.h"
#include "report/report.h"
#include "doubt/doubt.h"
#include "send/owing.h"
#include "round/round.h"
#include "send/send_streams.h"
#include "send/sender.h"
#include "txn/commit.h"
#include "txn/foreign.h"
#include "txn/guardian.h"
#include "txn/journal.h"
#include "vmm/serial_rings.h"
#include "vmm/vm.h"

#define PING_NS	1000000000ull	/* between two PINGs */
/* In rounds, if the streams are to know the receiver's load: whenever sender_idle() is called. */
#define LOAD_NS	50000000ull
/*
 * With --reconnect a round of pre-copy goes in parts, of so long each, that the receiver
 * acknowledges: so much is sent again after a loss. The first is shorter, see connect_again.c.
 */
#define PART_NS		5000000000ull
#define FIRST_PART_NS	1000000000ull

struct sender;

/**
 * struct devstate_ops - how a QEMU stops, and yields its device state
 * @stand_still: stops the guest; afterwards nothing writes RAM any more, and s->stop_realtime_ns
 *	says when that was, if the guest ran. When no device can be plugged any more it asks QEMU
 *	for those that write guest RAM (vm_check_balloon())
 * @rest: before the last round: sends QEMU's private RAM at rest. NULL: it has been sent
 * @state: while the last round is on its way: posts all of the device state
 */
struct devstate_ops {
	int (*stand_still)(struct sender *s, struct err *e);
	int (*rest)(struct sender *s, struct err *e);
	int (*state)(struct sender *s, struct err *e);
};

extern const struct devstate_ops devstate_migrate, devstate_save;

/**
 * struct stop_check - a check that a thread makes beside the last round, see stop_checks.c
 * @over: @r and @err are there
 * @joined: of the main thread: @thread has ended
 */
struct stop_check {
	struct sender *s;
	int (*check)(struct sender *s, struct err *e);
	pthread_t thread;
	atomic_bool over;
	bool joined;
	int r;
	struct err err;
};

#define STOP_CHECKS	2u

struct sender {
	const struct sender_options *o;
	struct report *report;
	struct qmp *qmp;
	struct qmp_place at;		/* of qmp, once there is a guardian */
	struct vm vm;
	struct migration migration;
	struct migration_status last;	/* QEMU's last one, before the switchover */
	struct claim claim;
	struct journal journal;
	struct guardian guardian;
	int session;			/* of godwit.ko, until source has it; -1: none */
	struct dirty_source *source;
	struct lease *lease;		/* of its log; NULL with --pause */
	struct foreign_watch foreign;
	struct dirty_rate dirty_rate;	/* QEMU's own measurement, if it makes one */
	struct serial_rings serial;	/* as of the beginning */
	struct hot_pages hot;
	struct rewritten rewritten;
	bool watches;			/* this round leaves out what the guest writes again */
	uint64_t look_ns;		/* when it looks for that next */
	struct zeros zeros;		/* none with --pause */
	uint64_t link_rate;		/* bytes/s: struct speeds, @unhindered */
	struct pace pace;
	struct limits limits;		/* as they are now */
	_Atomic uint32_t compress;	/* of these, for the streams */
	struct control control;
	struct brake brake;		/* --throttle */
	unsigned int slowed;		/* per cent, as --throttle auto has it */
	bool slow_told;			/* that it cannot be */
	bool hurries;			/* --on-timeout pause, --postcopy now: switch over now */
	struct channel *ch;		/* the control connection */
	struct send_streams *streams;
	struct stripes stripes;
	struct delta *delta;		/* what was sent of each page, or NULL */
	struct referring reuse;		/* what the receiver has in a file */
	bool reuse_soon;		/* it was asked for that with BLOCKS */
	struct round *round;		/* under way, or NULL; it is: */
	struct round the_round;
	/* By their numbers on the wire, where each part of a round is one: */
	uint32_t number;		/* the round under way, or the latest */
	uint32_t announced;		/* the latest whose ROUND has left */
	uint32_t stands;		/* the latest that the receiver is known to have */
	uint64_t part_end_ns;		/* when the part under way is over; 0: never */
	bool part_over;			/* it was cut there */
	uint64_t taken;			/* pages of the round in the parts before */
	uint64_t lost_ns;		/* first loss of the link since the last ACK; 0: none */
	uint64_t again_ns, again_bytes;	/* when it came back in this round; sent until then */
	char peer[ADDRESS_MAX];		/* where to connect again, in numbers or a path */
	struct round_count counts_before;	/* of these connections, before the round */
	struct round_count counts_lost;	/* in the round, by connections that were lost */
	bool keeps;			/* the receiver waits for us if the link is lost */
	uint64_t bytes_before;		/* sent over connections that were lost */
	struct zero_copy_count zero_copies_before;
	bool asked, answered;		/* SWITCHOVER has left, and come back */
	struct owing owing;		/* post-copy */
	uint64_t silent_ns;		/* until then the receiver may say nothing unasked */
	bool links_lost;		/* a vhost-user backend has gone */
	bool fits;			/* seen just now: sender_check_fit() need not ask again */
	enum devstate_mode mode;	/* what this end would do; with the receiver's answer: */
	const struct devstate_ops *devstate;
	struct fit fit;			/* what differs between both ends */
	uint64_t features;		/* those that both ends offer */
	bool views;			/* the receiver can describe its machine */
	struct private_ram_copy private_copy;	/* save mode only, as the next one */
	struct save_state save;
	uint64_t state_there;		/* of report->device_bytes: so much has come for sure */
	uint64_t device_at;		/* bytes of QEMU's stream so far */
	bool held;			/* what follows of it is for the commit point */
	unsigned int says;		/* and what that says: save_says() */
	bool spread;			/* a long link: small pieces in the blackout */
	uint32_t verify_frames;
	bool resumed;			/* QEMU has said RESUME since the stop */
	enum commit_state commit;
	bool verdicts;			/* the receiver keeps one, under this token: */
	uint8_t token[WIRE_SECRET];
	struct record note;		/* for `godwit resolve`, from the commit point on */
	json_t *note_before;		/* send --recover: of the sender before; else NULL */
	uint64_t started_ns;		/* CLOCK_MONOTONIC */
	uint64_t commit_realtime_ns;	/* the commit point; 0: not reached */
	uint64_t commit_ns;		/* the same by CLOCK_MONOTONIC */
	uint64_t resumed_realtime_ns;	/* the destination's RESUME, by its clock */
	uint64_t stop_realtime_ns;	/* QEMU's STOP, by the source's clock; 0: none yet */
	uint64_t rtt_ns;
	int64_t clock_offset_ns;	/* destination's CLOCK_REALTIME minus ours */
	uint32_t ping_serial;
	uint64_t next_ping_ns;
	uint64_t next_renew_ns;		/* of the lease, in a round; of the look at the source */
	struct stop_check stop_checks[STOP_CHECKS];
	unsigned int nstop_checks;	/* that have begun, and were not waited for */
	uint64_t late_ns;		/* when the next late round is due; 0: there was none */
};

/* --throttle as it is to be now, and how far it is, into the report. */
void sender_slow(struct sender *s);
/* From here on it runs as ever, or stands still. */
void sender_brake_end(struct sender *s);
/* Connects, compares both ends, opens the streams, compares clocks. */
int connect_peer(struct sender *s, struct err *e);
/* Is the control connection encrypted, and by whom? Into the report. */
void connect_report_tls(const struct sender *s);
/* ready: the secret that the receiver has sent for them. */
int connect_open_streams(struct sender *s, const uint8_t *ready, unsigned int n, struct err *e);
/* How long the receiver may be silent, by the round trips that TCP has measured. */
unsigned int connect_patience_ms(const struct sender *s);
/*
 * In pre-copy r and *e say what has failed. If that is the link, and the receiver waits for us:
 * connects again, for as long as --reconnect says. Return: 0: it goes on, and pages that may have
 * been lost are dirty again. Else -errno, and *e is as before, or says what was tried.
 */
int connect_again(struct sender *s, int r, struct err *e);
/* Before the next try to connect. false: there is to be none, as of a QEMU that has exited. */
bool connect_nap(struct sender *s, bool needs_qemu, uint64_t deadline);
/*
 * In post-copy r and *e say what has failed. If that is the link: connects again, for as long as
 * --recover-timeout says. Return: 0: it goes on with what the receiver lacks, or owing.complete
 * says that it lacks nothing. Else -errno, and *e is as before, or says what was tried.
 */
int owing_recover(struct sender *s, int r, struct err *e);
/* Instead of a migration: goes on where another sender of this VM has ended. */
int owing_take_over(struct sender *s, struct err *e);
/* Whether pages that are sent again go as their changes: what for is known once HELLO is there. */
int sender_open_delta(struct sender *s, struct err *e);
/* Asks what the receiver has in a file, if that is not known, and hears it. */
int sender_ask_reuse(struct sender *s, struct err *e);
int sender_hear_reuse(struct sender *s, struct err *e);
/*
 * What goes ahead of the first round: in save mode QEMU's private RAM; then, if BLOCKS did not
 * bring it, the question what the receiver has in a file (wire/reuse.h), and a short wait until
 * that is read. With --reconnect it survives a loss of the link.
 */
int sender_send_ahead(struct sender *s, struct err *e);
/* QEMU's private RAM, in save mode, unless it has come for sure. Only before the first round. */
int send_save_ahead(struct sender *s, struct err *e);
/*
 * With a file to reuse, waits until all rounds that were announced are in place at the receiver but
 * for what it has refused, and nothing is asked for.
 */
int sender_end_reuse(struct sender *s, struct err *e);
/* Closes all connections, if there are any. */
void sender_disconnect(struct sender *s);
/*
 * Before the switchover: *changed says whether the VM at either end has changed. If so, both are
 * compared again, and an error says that the guest does not fit any more.
 */
int sender_check_fit(struct sender *s, bool *changed, struct err *e);
/* When it is too late for that: fails if a device was plugged since. */
int sender_check_same(struct sender *s, struct err *e);
/*
 * Sends the next round of pre-copy, on all streams, and does not wait for its ACK, but for that of
 * a round some rounds before. With --reconnect it survives a loss of the link.
 */
int sender_round(struct sender *s, struct err *e);
/*
 * The two halves of it: all streams send, meanwhile the caller may do other things; and their end.
 */
void sender_round_begin(struct sender *s, enum round_kind kind);
int sender_round_end(struct sender *s, struct err *e);
/* The guest runs at the destination: all streams push what is owed; and their end. */
void sender_push_begin(struct sender *s);
int sender_push_end(struct sender *s, struct err *e);
/* Would a round's ROUND leave at once, however far behind the receiver's ACKs are? */
bool sender_may_announce(const struct sender *s);
/* Is it due? Then the round under way finds what the guest has written again, and leaves it out. */
void sender_look(struct sender *s);
/* Those that such a round holds back, or NULL. */
struct hot_pages *sender_hot_pages(struct sender *s, enum round_kind kind);
/*
 * Between `migrate` and the guest's stop, called often: begins a late round, or ends one, and waits
 * for neither. All of QEMU's events have been read, since_ns or later.
 */
int late_rounds_step(struct sender *s, uint64_t since_ns, struct err *e);
/* The guest stands still: ends the one under way. */
int late_rounds_end(struct sender *s, struct err *e);
/* Called often while the streams work: ends a part of a round. */
void sender_end_part(struct sender *s);
/* Waits until all streams have sent what was posted. */
int sender_flush(struct sender *s, struct err *e);
/*
 * Tells the receiver that the last round may follow (SWITCHOVER). The answer is waited for by the
 * second function: the sender may do all that remains without any further answer then.
 */
int sender_ask_switchover(struct sender *s, struct err *e);
int sender_await_switchover(struct sender *s, struct err *e);
/* Where PRIVATE frames go in the switchover: to the first stream. */
struct frame_out sender_first_stream(struct sender *s);
/* Where frames go whose order does not matter. */
struct frame_out sender_any_stream(struct sender *s);
/* Bytes sent so far, over all connections. */
uint64_t sender_bytes(const struct sender *s);
/* For channel_unasked(): serves PONG, ACK and the answer to SWITCHOVER. arg: struct sender */
int sender_take(void *arg, const struct wire_header *h, struct err *e);
/* Takes one frame that arrives unasked. ABORT is an error, and so is a frame that is not due. */
int sender_listen(struct sender *s, struct err *e);
/* A round begins: the first LOAD is to come after LOAD_NS, whenever the last PING was. */
void sender_ask_load(struct sender *s);
/* Sends a PING, if it is time for one. */
int sender_keep_alive(struct sender *s, struct err *e);
/*
 * In rounds of pre-copy, which clear KVM's log: GW_VM_STATE when QEMU has a migration of its own
 * under way (txn/foreign.h).
 */
int sender_renew_lease(struct sender *s, struct err *e);
/* While the streams work: serves the receiver, requests to stop, progress; renews the lease. */
int sender_idle(void *arg, struct err *e);
/* Pages of the round under way, so far. */
struct round_count sender_counts(const struct sender *s);
/* The report's row, and its sums, have them. */
void sender_report_sent(struct sender *s, const struct round_count *c);
/* Updates the report's totals. */
void sender_count(struct sender *s);
/* The same, and shows them to the operator. */
void sender_progress(struct sender *s);

/* Sends the next part of QEMU's stream to the receiver. */
int sender_device(struct sender *s, const uint8_t *p, size_t len, struct err *e);
/*
 * Takes QEMU's events; status: becomes the newest status of its migration, if not NULL. How one has
 * ended stays: what comes after that is another client's.
 */
int sender_events(struct sender *s, char *status, size_t len, struct err *e);
/* Waits for QEMU's events, for device state in stream (-1: none), or for the receiver. */
int sender_wait_qemu(struct sender *s, int stream, unsigned int ms, struct err *e);

/* GW_PINNED: QEMU itself has something open that writes guest RAM unseen by the dirty log. */
int sender_check_writers(struct sender *s, struct err *e);
/* GW_VM_STATE: it does not map the file that a block is read from (vmm/ram.h). */
int sender_check_mapped(struct sender *s, struct err *e);
/* The same, but for what QEMU must be asked; and of other processes that map the RAM. */
int stop_check_files(struct sender *s, struct err *e);
int stop_check_mappers(struct sender *s, struct err *e);
/* The guest stands still: a thread makes this check. */
int stop_check_begin(struct sender *s, int (*check)(struct sender *s, struct err *e),
		     struct err *e);
/* Waits for this one; 0 as well if it was not begun. */
int stop_check_wait(struct sender *s, int (*check)(struct sender *s, struct err *e), struct err *e);
/* Has one failed? Does not wait. */
int stop_checks_look(struct sender *s, struct err *e);
/* Waits for all of them, before the commit; e NULL: whatever they say, before the source closes. */
int stop_checks_end(struct sender *s, struct err *e);
/* Sends rounds until the downtime fits (GW_NOT_CONVERGED: it never does). */
int precopy(struct sender *s, struct err *e);
/* The guest runs: what has it written, and does it write by ways that are seen? *ns: the harvest */
int sender_harvest(struct sender *s, uint64_t *ns, struct err *e);
/* From the stop of the guest to RESUMED. */
int switchover(struct sender *s, struct err *e);
/*
 * Ends a migration that has begun; r and *e say how it went so far. Closes the connections, and
 * undoes what is recorded, as far as the commit's state allows. Return: 0 if the guest has moved,
 * also when r says otherwise.
 */
int sender_settle(struct sender *s, int r, struct err *e);
/*
 * Notes for `godwit resolve` what it must know, from the commit point on; and, once that is known,
 * that the guest has run at the destination.
 */
void sender_note_doubt(struct sender *s);
/*
 * Behind the commit point: has another client continued the guest here since, whether it runs still
 * or not? QEMU has said so. Does not wait; the note has it from then on.
 */
bool sender_was_continued(struct sender *s);
/*
 * Another client may have continued the guest here after the commit point: too late to undo that.
 * Errors: GW_RAN_TWICE.
 */
int sender_check_source(struct sender *s, struct err *e);
/* Asks the receiver for its verdict, briefly, and heeds no answer: it need not wait any more. */
void sender_tell(const struct sender *s, const char *addr);
/* Ends the module's session, and the guardian, if that has nothing left to do. */
void sender_end_session(struct sender *s);
/* Fills in what of the report is known once the guest runs at the destination. */
void switchover_times(struct sender *s);

#endif
