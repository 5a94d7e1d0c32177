/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The commit of a migration as a state machine, one for each end. It is pure: events go in,
 * actions come out, there is no I/O. So a test can walk through everything that both ends and the
 * network between them can do (selftests/unit/test_commit.c). The property: the guest never runs
 * at both ends, and where it runs at neither, the sender reports that.
 *
 * The receiver keeps the device state to itself until DEVICE_END has come, and all that it counts
 * on (every stream's last ROUND, and what follows), and only then passes it to the destination
 * QEMU. So DEVICE_END is the commit point of both ends.
 *
 *	PREPARED	The destination QEMU lacks device state, and cannot run.
 *			Sender: may do anything, and roll back all that it did. Once it has
 *			given up, it closes its connection for good before the source runs, so
 *			DEVICE_END can never arrive.
 *			Receiver: may abort, and report that. Once it has aborted, it never
 *			passes the device state to QEMU.
 *	SENT		The guest may run at the destination.
 *			Sender: changes nothing at the source but settings that do not concern the
 *			guest, and refuses requests to stop. SENT begins before the first byte of
 *			DEVICE_END leaves.
 *			Receiver: watches QEMU. A lost connection means nothing to it.
 *	IN_DOUBT	As SENT, but this end cannot find out whether the guest runs.
 *			Sender: asks again, over new connections, by the migration's token.
 *			Receiver: QEMU is silent. The receiver freezes it, reads what it still says,
 *			and kills it unless it has said that the guest runs.
 *	RUNS		The guest runs at the destination, or is paused there if it was paused
 *			at the source. The source never runs again.
 *	DEAD		Proved: the guest does not run at the destination, and never will. The
 *			sender rolls back, and the source runs.
 *
 * From SENT on, the receiver takes only two things as proof of DEAD: QEMU's event MIGRATION
 * "failed"; or the death of QEMU's process, seen through its pidfd, once its monitor has been read
 * to the end and did not say RESUME. QEMU writes RESUME to the monitor before it lets any vCPU run
 * (vm_prepare_start()). An error or a silence of the monitor proves nothing.
 */
#ifndef GODWIT_COMMIT_H
#define GODWIT_COMMIT_H

enum commit_state {
	COMMIT_PREPARED, COMMIT_SENT, COMMIT_IN_DOUBT, COMMIT_RUNS, COMMIT_DEAD, COMMIT_STATES
};

enum commit_source_event {
	SOURCE_GIVES_UP,	/* a failure at this end, or a request to stop */
	SOURCE_SENDS_END,	/* DEVICE_END is the next frame to leave */
	SOURCE_LOSES_LINK,	/* the connection broke or was silent, or a frame made no sense */
	SOURCE_LEARNS_RUNS,	/* RESUMED, or an answer to the token */
	SOURCE_LEARNS_DEAD,	/* ABORT, or an answer to the token: the receiver is in DEAD */
	SOURCE_STOPS_ASKING,	/* --resolve-timeout is over, or the operator asks to stop */
	SOURCE_EVENTS
};

enum commit_source_action {
	SOURCE_GOES_ON,
	SOURCE_ROLLS_BACK,	/* closes the connection, undoes all: the source runs */
	SOURCE_ASKS,		/* for the verdict, by the token */
	SOURCE_STAYS_STOPPED,	/* and the sender tells the operator */
	SOURCE_IS_DONE,		/* the guest has moved */
};

enum commit_source_action commit_source(enum commit_state *s, enum commit_source_event event);

enum commit_destination_event {
	/* A failure at this end, a request to stop, a lost connection: nothing more will come. */
	DESTINATION_GIVES_UP,
	DESTINATION_GETS_END,	/* DEVICE_END has come, and all that it counts on */
	DESTINATION_SEES_RUN,	/* QEMU says RESUME, or "completed" of a guest to be paused */
	DESTINATION_SEES_FAILED, /* QEMU says MIGRATION "failed" */
	/* QEMU's process has ended, its monitor is read to the end, and RESUME did not come. */
	DESTINATION_SEES_DEATH,
	DESTINATION_SEES_NOTHING, /* QEMU's monitor fails, or is silent for too long */
	DESTINATION_EVENTS
};

enum commit_destination_action {
	DESTINATION_GOES_ON,
	DESTINATION_LOADS_STATE, /* passes all of the device state to QEMU */
	DESTINATION_FREEZES,	/* stops QEMU's process, reads its monitor to the end, kills it */
	DESTINATION_SAYS_RUNS,
	DESTINATION_SAYS_DEAD,
};

enum commit_destination_action commit_destination(enum commit_state *s,
						  enum commit_destination_event event);

/* "in-doubt": as in messages, and in the file that keeps a verdict. */
const char *commit_state_name(enum commit_state s);
/* COMMIT_STATES: no state has that name. */
enum commit_state commit_state_parse(const char *name);

#endif
