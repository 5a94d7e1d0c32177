/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The sender's state, shared by its parts: sender.c (order), connect.c, precopy.c (rounds), switchover.c (the blackout),
 * settle.c (how it ends), way_migrate.c and way_save.c (how QEMU stops, and gives its device state).
 */
#ifndef GODWIT_SENDER_INTERNAL_H
#define GODWIT_SENDER_INTERNAL_H

#include "claim/claim.h"
#include "fit/fit.h"
#include "io/channel.h"
#include "migrate/control.h"
#include "migrate/converge.h"
#include "migrate/devram.h"
#include "migrate/doubt.h"
#include "migrate/hot.h"
#include "migrate/limits.h"
#include "migrate/pace.h"
#include "migrate/report.h"
#include "migrate/round.h"
#include "migrate/sender.h"
#include "migrate/streams.h"
#include "source/source.h"
#include "txn/commit.h"
#include "txn/guardian.h"
#include "txn/journal.h"
#include "vmm/dirty_rate.h"
#include "vmm/migration.h"
#include "vmm/saved.h"
#include "vmm/vm.h"
#include "vmm/way.h"

struct sender;

/**
 * struct device_way - how a QEMU stops, and gives its device state
 * @stand_still: the guest stops, nobody writes RAM any more; s->stop_realtime_ns says when, if it ran
 * @rest: before the last round: QEMU's private RAM at rest. NULL: it has been sent
 * @state: after COMMIT: sends all of the device state
 */
struct device_way {
	int (*stand_still)(struct sender *s, struct err *e);
	int (*rest)(struct sender *s, struct err *e);
	int (*state)(struct sender *s, struct err *e);
};

extern const struct device_way way_migrate, way_save;

struct sender {
	const struct sender_options *o;
	struct report *report;
	struct qmp *qmp;
	struct vm vm;
	struct migration migration;
	struct claim claim;
	struct journal journal;
	struct guardian guardian;
	int session;			/* of godwit.ko, until @source has it; -1: none */
	struct dirty_source *source;
	struct dirty_rate dirty_rate;	/* measured by QEMU itself */
	struct hot hot;
	struct pace pace;
	struct limits limits;		/* as they are now */
	struct control control;
	bool out_of_time;		/* --on-timeout pause: to the switchover, now */
	struct channel *ch;		/* the control connection */
	struct streams *streams;
	struct round *round;		/* under way, or NULL */
	enum way choice;		/* and what the receiver made of it: */
	const struct device_way *way;
	struct fit fit;			/* what differs between both ends */
	bool views;			/* the receiver can say what it has */
	struct devram devram;		/* with way_save only, as is: */
	struct saved saved;
	bool resumed;			/* QEMU's RESUME came since it stopped */
	enum commit_state commit;
	bool verdicts;			/* the receiver keeps one, under this token */
	uint8_t token[WIRE_SECRET];
	struct record note;		/* of the doubt, while there may be one */
	uint64_t started_ns;		/* CLOCK_MONOTONIC */
	uint64_t handed_over_realtime_ns; /* when the device state was complete; 0: it is not */
	uint64_t resumed_realtime_ns;	/* the destination's RESUME, its clock */
	uint64_t stop_realtime_ns;	/* QEMU's STOP, source clock; 0: none seen */
	uint64_t rtt_ns;
	int64_t clock_offset_ns;	/* destination's CLOCK_REALTIME minus ours */
	uint32_t ping_serial;
	uint64_t next_ping_ns;
};

/* Connects, agrees, opens the streams, compares clocks. */
int connect_peer(struct sender *s, struct err *e);
/* Before the switchover: has somebody *changed a VM, at either end, and does the guest fit there all the same? */
int sender_fits_still(struct sender *s, bool *changed, struct err *e);
/* When it is too late for that: nothing was plugged since. */
int sender_check_same(struct sender *s, struct err *e);
/* The next round, on all streams, until it is acknowledged. */
int sender_round(struct sender *s, enum round_kind kind, struct err *e);
/* Sent so far, over all connections. */
uint64_t sender_bytes(const struct sender *s);
/* The next header that is no PONG; its body is the caller's. */
int sender_recv(struct sender *s, struct wire_header *h, struct err *e);
/* What a frame that arrives unasked means: PONG is dropped, ABORT is an error, as is all else. */
int sender_listen(struct sender *s, struct err *e);
/* A PING, when the last one was a second ago. */
int sender_keep_alive(struct sender *s, struct err *e);
/* While the streams work: peer, signals, progress. */
int sender_idle(void *arg, struct err *e);
void sender_progress(struct sender *s);

/* The receiver's answer to s->choice: could it load what is saved? */
int way_agreed(struct sender *s, bool saved, struct err *e);

/* Part of the device state, to the receiver. */
int sender_device(struct sender *s, const uint8_t *p, size_t len, struct err *e);
/* Takes QEMU's events; status becomes the newest status of its migration. NULL: there is none. */
int sender_events(struct sender *s, char *status, size_t len, struct err *e);
/* Waits for something to do: QEMU's events, its device state in @stream (-1: none), the peer. */
int sender_wait_qemu(struct sender *s, int stream, bool keep_alive, struct err *e);

/* QEMU itself has nothing open by which guest RAM is written unseen (GW_PINNED). */
int sender_check_writers(struct sender *s, struct err *e);
/* Rounds until the downtime fits (GW_NOT_CONVERGED when it never does). */
int precopy(struct sender *s, struct err *e);
/* From the stop to RESUMED. */
int switchover(struct sender *s, struct err *e);
/*
 * How a migration ends that was begun: r and *e say how far it went. The connections end, and what is recorded is undone, as
 * far as that may be. Return: 0 if the guest has moved, also when r says otherwise.
 */
int sender_settle(struct sender *s, int r, struct err *e);
/* The end of the module's session, and of the guardian, if it has nothing left to do. */
void sender_let_go(struct sender *s);
/* What of the report is known when the guest runs at the destination. */
void switchover_times(struct sender *s);

#endif
