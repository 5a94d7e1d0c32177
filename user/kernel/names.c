// SPDX-License-Identifier: GPL-2.0-only
/* Names of the numbers in <linux/godwit.h>. "?": a number that only a newer module knows. */
#include <assert.h>
#include <stddef.h>

#include "kernel/netlink.h"

static const char *const states[] = {
	[GODWIT_STATE_NEW] = "new",
	[GODWIT_STATE_ATTACHED] = "attached",
	[GODWIT_STATE_STARTED] = "started",
	[GODWIT_STATE_RETIRING] = "retiring",
};
static_assert(sizeof(states) / sizeof(states[0]) == GODWIT_STATES, "a state has no name");

static const char *const events[] = {
	[GODWIT_CMD_UNSPEC] = "?",
	[GODWIT_CMD_GET_SESSION] = "?",
	[GODWIT_CMD_SESSION] = "?",
	[GODWIT_CMD_ATTACHED] = "attached",
	[GODWIT_CMD_SLOTS_CHANGED] = "slots-changed",
	[GODWIT_CMD_VM_GONE] = "vm-gone",
	[GODWIT_CMD_RETIRED] = "retired",
};
static_assert(sizeof(events) / sizeof(events[0]) == GODWIT_CMDS, "a message has no name");

static const char *const rows[] = {
	[GODWIT_ROW_VCPU] = "vcpu",
	[GODWIT_ROW_MAPPING] = "mapping",
	[GODWIT_ROW_BLOCK] = "block",
	[GODWIT_ROW_UNMAP] = "unmap",
	[GODWIT_ROW_CHANGE] = "change",
};
static_assert(sizeof(rows) / sizeof(rows[0]) == GODWIT_ROWS, "a row has no name");

static const char *const phases[] = {
	[GODWIT_PHASE_SLOTS] = "slots",
	[GODWIT_PHASE_VCPU] = "vcpu",
	[GODWIT_PHASE_MAPPING] = "mapping",
	[GODWIT_PHASE_COLLECT] = "collect",
	[GODWIT_PHASE_CLEAR] = "clear",
	[GODWIT_PHASE_RETIRE] = "retire",
};
static_assert(sizeof(phases) / sizeof(phases[0]) == GODWIT_PHASES, "a phase has no name");

const char *session_state_name(uint32_t state)
{
	return state < GODWIT_STATES ? states[state] : "?";
}

const char *session_event_name(uint32_t cmd)
{
	return cmd < GODWIT_CMDS ? events[cmd] : "?";
}

const char *ledger_row_name(unsigned int row)
{
	return row < GODWIT_ROWS ? rows[row] : "?";
}

const char *harvest_phase_name(unsigned int phase)
{
	return phase < GODWIT_PHASES ? phases[phase] : "?";
}
