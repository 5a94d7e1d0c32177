/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The commit of a migration as a state machine, one for each end. Pure: events in, actions out, no I/O, so that a test can
 * walk through all that two of them and a network can do (selftests/unit/test_commit.c). The property: the guest never runs
 * at both ends, and where it runs at neither, the sender says so.
 *
 * The receiver keeps the device state to itself until DEVICE_END has come: only then does it go to the destination QEMU, so
 * DEVICE_END is both ends' point of no return.
 *
 *	PREPARED	The destination QEMU lacks device state, and cannot run.
 *			Sender: may do anything, and undo all that it did. Once it has given up, its connection ends for
 *			good before the source runs, so DEVICE_END can never arrive.
 *			Receiver: may give up, and say so. Once it has, it never gives the device state to QEMU.
 *	SENT		The guest may run at the destination.
 *			Sender: touches nothing at the source but settings that do not concern the guest; it hears no
 *			request to stop. It begins before the first byte of DEVICE_END leaves.
 *			Receiver: watches QEMU. A lost connection means nothing to it.
 *	IN_DOUBT	As SENT, and the way to know is blocked.
 *			Sender: asks again, over new connections, by the migration's token.
 *			Receiver: QEMU is silent. It is frozen, heard out, and killed unless it has said that it runs.
 *	RUNS		The guest runs at the destination, or is paused there, as it was. The source never runs again.
 *	DEAD		Proved: the guest does not run at the destination, and never will. All is undone, the source runs.
 *
 * What is proof of DEAD at the receiver, in SENT and behind it: QEMU's event MIGRATION "failed"; or the death of its
 * process, seen through its pidfd, when its monitor has been read to the end and did not say RESUME. QEMU writes that to
 * the monitor before it lets any vCPU run (vm_prepare_start()). An error or a silence of the monitor proves nothing.
 */
#ifndef GODWIT_COMMIT_H
#define GODWIT_COMMIT_H

enum commit_state { COMMIT_PREPARED, COMMIT_SENT, COMMIT_IN_DOUBT, COMMIT_RUNS, COMMIT_DEAD, COMMIT_STATES };

enum commit_source_event {
	SOURCE_GIVES_UP,	/* a failure at this end, or a request to stop */
	SOURCE_SENDS_END,	/* DEVICE_END is the next to leave */
	SOURCE_LOSES_LINK,	/* the connection broke, was silent, or what came makes no sense */
	SOURCE_HEARS_RUNS,	/* RESUMED, or an answer to the token */
	SOURCE_HEARS_DEAD,	/* ABORT, or an answer to the token: the receiver is in DEAD */
	SOURCE_IS_TIRED,	/* it has asked for as long as it was told to */
	SOURCE_EVENTS
};

enum commit_source_action {
	SOURCE_GOES_ON,
	SOURCE_UNDOES,		/* the connection ends, then all is as it was: the source runs */
	SOURCE_ASKS,		/* for the verdict, by the token */
	SOURCE_LEAVES,		/* the source stands still, and the operator is told */
	SOURCE_IS_DONE,		/* the guest has moved */
};

enum commit_source_action commit_source(enum commit_state *s, enum commit_source_event event);

enum commit_destination_event {
	DESTINATION_GIVES_UP,	/* a failure at this end, a request to stop, a lost connection: nothing more will come */
	DESTINATION_GETS_END,	/* DEVICE_END has come */
	DESTINATION_SEES_RUN,	/* QEMU says RESUME, or "completed" of a guest that is to be paused */
	DESTINATION_SEES_FAILED, /* QEMU says MIGRATION "failed" */
	DESTINATION_SEES_DEATH,	/* QEMU's process has ended, its monitor is read to the end, and RESUME did not come */
	DESTINATION_SEES_NOTHING, /* QEMU's monitor fails, or is silent for too long */
	DESTINATION_EVENTS
};

enum commit_destination_action {
	DESTINATION_GOES_ON,
	DESTINATION_HANDS_OVER,	/* all of the device state to QEMU */
	DESTINATION_FREEZES,	/* QEMU's process is stopped, then heard out, then killed */
	DESTINATION_SAYS_RUNS,
	DESTINATION_SAYS_DEAD,
};

enum commit_destination_action commit_destination(enum commit_state *s, enum commit_destination_event event);

/* "in-doubt": as in messages, and in the file that keeps a verdict. */
const char *commit_state_name(enum commit_state s);
/* COMMIT_STATES: it is none. */
enum commit_state commit_state_parse(const char *name);

#endif
