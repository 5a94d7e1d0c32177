/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The commit's two state machines, and all that they, a network, two killed programs and a QEMU can do: every order of
 * every step is walked through, and in each world it is looked at whether it violates what must be true. Include after
 * cmocka.h.
 */
#ifndef GODWIT_COMMIT_WORLD_H
#define GODWIT_COMMIT_WORLD_H

#include <stdbool.h>
#include <stdlib.h>

#include "txn/commit.h"

enum program { ALIVE, ENDED, KILLED };
enum qemu { WAITS, GIVEN, RAN, FAILED, GONE, GONE_AFTER_IT_RAN };

/**
 * struct world - everything, in one word: what two worlds share, they do for ever
 * @source, @destination: the machines
 * @sender, @receiver: the programs; a killed sender's guardian has done its part at once
 * @stood_down: the guardian knows that the sender is in SENT
 * @source_runs: the guest, at the source; it has been stopped when this begins
 * @told: the sender said that it does not know
 * @qemu: the destination's; @frozen: by the receiver
 * @resume, @failed: in QEMU's monitor, unread
 * @end: DEVICE_ENDs on their way (a network may deliver twice, or late); @left: it has been sent
 * @held: one is there, and what it counts on is not; @whole: that is there, by other connections; @torn: QEMU was given less
 * @says_runs, @says_dead: on their way to the sender
 * @cut: the sender has lost its connection; before the commit point it may connect again; @closed: for good
 */
union world {
	struct {
		uint32_t source : 3, destination : 3, sender : 2, receiver : 2, stood_down : 1, source_runs : 1, told : 1, qemu : 3,
			 frozen : 1, resume : 1, failed : 1, end : 2, left : 1, held : 1, whole : 1, torn : 1, says_runs : 1, says_dead : 1, cut : 1, closed : 1;
	};
	uint32_t word;
};
_Static_assert(sizeof(union world) == 4, "a world is one word");

/* A mistake to be found. */
struct mistake {
	const char *what;
	bool at_destination;
	enum commit_state state;
	int event;
	enum commit_state becomes;
	int action;
};

enum slip { NO_SLIP, KILLED_UNHEARD, STANDS_DOWN_LATE, ANSWERS_AND_WAITS_ON, LOADS_EARLY };

struct walk {
	const struct mistake *mistake;
	enum slip slip;
	uint32_t *todo, *seen;
	size_t n, cap, worlds;
	unsigned int violations;
};

static enum commit_source_action source(const struct walk *k, union world *w, enum commit_source_event event)
{
	enum commit_state s = w->source;
	enum commit_source_action a;
	const struct mistake *m = k->mistake;

	if (m && !m->at_destination && m->state == s && m->event == (int)event) {
		w->source = m->becomes;
		return m->action;
	}
	a = commit_source(&s, event);
	w->source = s;
	return a;
}

static enum commit_destination_action destination(const struct walk *k, union world *w, enum commit_destination_event event)
{
	enum commit_state s = w->destination;
	enum commit_destination_action a;
	const struct mistake *m = k->mistake;

	if (m && m->at_destination && m->state == s && m->event == (int)event) {
		w->destination = m->becomes;
		return m->action;
	}
	a = commit_destination(&s, event);
	w->destination = s;
	return a;
}

#define SEEN_BITS 22
/* A world that has not been here yet is walked through later. */
static void reach(struct walk *k, union world w)
{
	size_t i = (w.word * 0x9e3779b1u) >> (32 - SEEN_BITS);

	while (k->seen[i] && k->seen[i] != w.word + 1)
		i = (i + 1) & ((1u << SEEN_BITS) - 1);
	if (k->seen[i])
		return;
	k->seen[i] = w.word + 1;
	k->worlds++;
	assert_true(k->n < k->cap);
	k->todo[k->n++] = w.word;
}

/* What the sender does on an event. */
static void source_does(struct walk *k, union world w, enum commit_source_event event)
{
	switch (source(k, &w, event)) {
	case SOURCE_ROLLS_BACK:
		w.cut = w.closed = 1;
		w.source_runs = 1;
		w.sender = ENDED;
		break;
	case SOURCE_STAYS_STOPPED:
		w.told = 1;
		w.sender = ENDED;
		break;
	case SOURCE_IS_DONE:
		w.sender = ENDED;
		break;
	case SOURCE_GOES_ON:
	case SOURCE_ASKS:
		break;
	}
	reach(k, w);
}

static void destination_does(struct walk *k, union world w, enum commit_destination_event event)
{
	switch (destination(k, &w, event)) {
	case DESTINATION_LOADS_STATE:
		if (w.qemu == WAITS)
			w.qemu = GIVEN;
		w.torn = !w.whole;
		break;
	case DESTINATION_FREEZES:
		if (k->slip == KILLED_UNHEARD && w.qemu != GONE) {
			w.qemu = w.qemu == RAN ? GONE_AFTER_IT_RAN : GONE;
			w.resume = 0;
		} else {
			w.frozen = 1;
		}
		break;
	case DESTINATION_SAYS_RUNS:
		w.frozen = 0;
		w.says_runs = !w.cut;
		break;
	case DESTINATION_SAYS_DEAD:
		w.says_dead = !w.cut;
		break;
	case DESTINATION_GOES_ON:
		break;
	}
	reach(k, w);
}

static void sender_steps(struct walk *k, union world w)
{
	union world next = w;

	source_does(k, w, SOURCE_GIVES_UP);
	if (w.source == COMMIT_PREPARED && !w.cut)
		source_does(k, w, SOURCE_SENDS_END);
	/* --reconnect: the link is lost in a round, and comes back to a receiver that waits. */
	if (w.source == COMMIT_PREPARED && !w.closed && (!w.cut || (w.receiver == ALIVE && w.destination == COMMIT_PREPARED))) {
		next.cut = !w.cut;
		reach(k, next);
		next = w;
	}
	if (w.source == COMMIT_SENT && !w.stood_down) {
		next.stood_down = 1;
		reach(k, next);
	}
	next = w;
	if (w.source == COMMIT_SENT && (w.stood_down || k->slip == STANDS_DOWN_LATE) && !w.left) {
		next.left = 1;
		next.end = w.closed ? 0 : 1;
		reach(k, next);
	}
	next = w;
	next.cut = 1;		/* what is on its way may still arrive */
	source_does(k, next, SOURCE_LOSES_LINK);
	if (w.says_runs) {
		next = w;
		next.says_runs = 0;
		source_does(k, next, SOURCE_LEARNS_RUNS);
	}
	if (w.says_dead) {
		next = w;
		next.says_dead = 0;
		source_does(k, next, SOURCE_LEARNS_DEAD);
	}
	if (w.source == COMMIT_IN_DOUBT || w.source == COMMIT_SENT)
		source_does(k, w, SOURCE_STOPS_ASKING);
	/* Killed: its guardian puts back what it may. */
	next = w;
	next.sender = KILLED;
	next.cut = next.closed = 1;
	if (!w.stood_down)
		next.source_runs = 1;
	reach(k, next);
}

/* A sender in doubt, or `godwit resolve` when it was killed: what the receiver, or the file that it left, says. */
static void ask(struct walk *k, union world w)
{
	enum commit_state verdict = w.destination;

	/* One that waits for a sender that has lost its link gives up, and then answers. */
	if (w.receiver == ALIVE && verdict == COMMIT_PREPARED) {
		verdict = COMMIT_DEAD;
		if (k->slip != ANSWERS_AND_WAITS_ON)
			destination(k, &w, DESTINATION_GIVES_UP);
	}
	if (w.receiver == KILLED && verdict == COMMIT_PREPARED)
		verdict = COMMIT_DEAD;	/* it never handed anything over, and cannot any more */
	if (w.receiver == KILLED && (verdict == COMMIT_SENT || verdict == COMMIT_IN_DOUBT) && w.qemu == RAN)
		verdict = COMMIT_RUNS;
	if (verdict == COMMIT_RUNS)
		source_does(k, w, SOURCE_LEARNS_RUNS);
	if (verdict == COMMIT_DEAD)
		source_does(k, w, SOURCE_LEARNS_DEAD);
}

/* DEVICE_END is there. It counts only with all that it counts on. */
static void end_arrives(struct walk *k, union world w)
{
	if (w.whole || k->slip == LOADS_EARLY) {
		w.held = 0;
		destination_does(k, w, DESTINATION_GETS_END);
	} else {
		w.held = 1;
		reach(k, w);
	}
}

static void network_steps(struct walk *k, union world w)
{
	union world next = w;

	/* The streams are other connections: earlier, later, or never, also when the sender is gone. */
	if (w.left && !w.whole) {
		next.whole = 1;
		if (w.held && w.receiver == ALIVE)
			end_arrives(k, next);
		else
			reach(k, next);
		next = w;
	}
	if (!w.end)
		return;
	next.end = w.end - 1;
	reach(k, next);			/* lost */
	if (w.receiver != ALIVE)
		return;
	end_arrives(k, next);
	if (w.end == 1)
		end_arrives(k, w);	/* and comes again */
}

static void receiver_steps(struct walk *k, union world w)
{
	union world next = w;

	destination_does(k, w, DESTINATION_GIVES_UP);
	next.receiver = KILLED;
	next.frozen = 0;	/* another process may let it go on */
	reach(k, next);
	if (w.resume) {
		next = w;
		next.resume = 0;
		destination_does(k, next, DESTINATION_SEES_RUN);
	} else if (w.failed) {
		next = w;
		next.failed = 0;
		destination_does(k, next, DESTINATION_SEES_FAILED);
	} else if (w.qemu == GONE || w.qemu == GONE_AFTER_IT_RAN) {
		destination_does(k, w, DESTINATION_SEES_DEATH);
	} else if (w.frozen && w.destination == COMMIT_IN_DOUBT) {
		next = w;
		next.qemu = w.qemu == RAN ? GONE_AFTER_IT_RAN : GONE;
		reach(k, next);
	}
	/* QEMU may say it, or have said it, all the same. */
	destination_does(k, w, DESTINATION_SEES_NOTHING);
}

static void qemu_steps(struct walk *k, union world w)
{
	union world next = w;

	if (w.frozen)
		return;
	if (w.qemu == GIVEN) {
		next.qemu = RAN;
		next.resume = 1;	/* said before any vCPU runs */
		reach(k, next);
		next = w;
		next.qemu = FAILED;
		next.failed = 1;
		reach(k, next);
	}
	if (w.qemu != GONE && w.qemu != GONE_AFTER_IT_RAN) {
		next = w;
		next.qemu = w.qemu == RAN ? GONE_AFTER_IT_RAN : GONE;
		reach(k, next);
	}
}

static bool ran(union world w)
{
	return w.qemu == RAN || w.qemu == GONE_AFTER_IT_RAN;
}

static bool violated(union world w)
{
	if (w.source_runs && ran(w))
		return true;	/* two copies, one after the other at least */
	if (w.source_runs && w.qemu == GIVEN && !w.frozen)
		return true;	/* it may run any moment */
	if (w.torn)
		return true;	/* without some of its RAM */
	if (w.sender != ENDED)
		return false;
	if (w.source == COMMIT_RUNS)
		return !ran(w);
	return !w.source_runs && !w.told;	/* neither, and it does not say so */
}

static bool in_doubt(union world w)
{
	if (w.sender == ALIVE)
		return w.source == COMMIT_IN_DOUBT;
	return !w.source_runs && (w.told || (w.sender == KILLED && w.stood_down));
}

static void walk(struct walk *k)
{
	k->cap = 1u << (SEEN_BITS - 1);
	k->todo = calloc(k->cap, sizeof(*k->todo));
	k->seen = calloc(1u << SEEN_BITS, sizeof(*k->seen));
	assert_non_null(k->todo);
	assert_non_null(k->seen);
	reach(k, (union world) { .source = COMMIT_PREPARED });
	while (k->n) {
		union world w = { .word = k->todo[--k->n] };

		if (violated(w)) {
			k->violations++;
			continue;
		}
		if (w.sender == ALIVE)
			sender_steps(k, w);
		if (in_doubt(w))
			ask(k, w);
		network_steps(k, w);
		if (w.receiver == ALIVE)
			receiver_steps(k, w);
		qemu_steps(k, w);
	}
	free(k->todo);
	free(k->seen);
}

#endif
