// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <string.h>

#include "txn/commit.h"

static const char *const commit_state_names[] = {
	[COMMIT_PREPARED] = "prepared", [COMMIT_SENT] = "sent", [COMMIT_IN_DOUBT] = "in-doubt",
	[COMMIT_RUNS] = "runs", [COMMIT_DEAD] = "dead",
};
static_assert(sizeof(commit_state_names) / sizeof(commit_state_names[0]) == COMMIT_STATES,
	      "a state has no name");

const char *commit_state_name(enum commit_state s)
{
	return s < COMMIT_STATES ? commit_state_names[s] : "?";
}

enum commit_state commit_state_parse(const char *name)
{
	enum commit_state s = 0;

	while (s < COMMIT_STATES && strcmp(name, commit_state_names[s]))
		s++;
	return s;
}

static enum commit_source_action commit_source_prepared(enum commit_state *s,
							enum commit_source_event event)
{
	if (event == SOURCE_SENDS_END) {
		*s = COMMIT_SENT;
		return SOURCE_GOES_ON;
	}
	/*
	 * Also if the receiver says that the guest runs: it cannot run there without the end of
	 * the device state.
	 */
	*s = COMMIT_DEAD;
	return SOURCE_ROLLS_BACK;
}

static enum commit_source_action commit_source_sent(enum commit_state *s,
						    enum commit_source_event event)
{
	switch (event) {
	case SOURCE_LEARNS_RUNS:
		*s = COMMIT_RUNS;
		return SOURCE_IS_DONE;
	case SOURCE_LEARNS_DEAD:
		*s = COMMIT_DEAD;
		return SOURCE_ROLLS_BACK;
	case SOURCE_LOSES_LINK:
		*s = COMMIT_IN_DOUBT;
		return SOURCE_ASKS;
	case SOURCE_STOPS_ASKING:
		*s = COMMIT_IN_DOUBT;
		return SOURCE_STAYS_STOPPED;
	default:
		return SOURCE_GOES_ON;	/* too late to give up */
	}
}

enum commit_source_action commit_source(enum commit_state *s, enum commit_source_event event)
{
	switch (*s) {
	case COMMIT_PREPARED:
		return commit_source_prepared(s, event);
	case COMMIT_SENT:
	case COMMIT_IN_DOUBT:
		return commit_source_sent(s, event);
	case COMMIT_RUNS:
		return SOURCE_IS_DONE;
	default:
		return SOURCE_ROLLS_BACK;	/* a second rollback finds nothing to undo */
	}
}

static enum commit_destination_action
commit_destination_prepared(enum commit_state *s, enum commit_destination_event event)
{
	if (event == DESTINATION_GETS_END) {
		*s = COMMIT_SENT;
		return DESTINATION_LOADS_STATE;
	}
	*s = COMMIT_DEAD;
	return DESTINATION_SAYS_DEAD;
}

static enum commit_destination_action commit_destination_sent(enum commit_state *s,
							      enum commit_destination_event event)
{
	switch (event) {
	case DESTINATION_SEES_RUN:
		*s = COMMIT_RUNS;
		return DESTINATION_SAYS_RUNS;
	case DESTINATION_SEES_FAILED:
	case DESTINATION_SEES_DEATH:
		*s = COMMIT_DEAD;
		return DESTINATION_SAYS_DEAD;
	case DESTINATION_SEES_NOTHING:
		*s = COMMIT_IN_DOUBT;
		return DESTINATION_FREEZES;
	default:
		return DESTINATION_GOES_ON;
	}
}

enum commit_destination_action commit_destination(enum commit_state *s,
						  enum commit_destination_event event)
{
	switch (*s) {
	case COMMIT_PREPARED:
		return commit_destination_prepared(s, event);
	case COMMIT_SENT:
	case COMMIT_IN_DOUBT:
		return commit_destination_sent(s, event);
	case COMMIT_RUNS:
		return DESTINATION_SAYS_RUNS;
	default:
		return DESTINATION_SAYS_DEAD;
	}
}
