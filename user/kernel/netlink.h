/* SPDX-License-Identifier: GPL-2.0-only */
/* godwit.ko's generic netlink family: who is at work, and what happens. The contract is in <linux/godwit.h>. */
#ifndef GODWIT_NETLINK_H
#define GODWIT_NETLINK_H

#include <linux/godwit.h>
#include <stdbool.h>
#include <stdint.h>

#include "err.h"

struct netlink;

/**
 * struct session_info - a session of godwit.ko, as GODWIT_CMD_SESSION tells it
 * @vm_pid: 0 while it has no VM; then what follows is 0 too
 * @pages: reported, by enum godwit_row
 * @ns: spent, by enum godwit_phase
 */
struct session_info {
	uint32_t id;
	uint32_t state;
	uint32_t owner_pid;
	char owner_comm[32];
	uint32_t vm_pid;
	uint32_t memslots;
	uint32_t changes;
	uint64_t harvests;
	uint64_t clears;
	uint64_t pages[GODWIT_ROWS];
	uint64_t ns[GODWIT_PHASES];
};

/**
 * struct session_event - a message of the multicast group
 * @cmd: GODWIT_CMD_ATTACHED, ..._SLOTS_CHANGED, ..._VM_GONE, ..._RETIRED
 */
struct session_event {
	uint32_t cmd;
	uint32_t id;
	uint32_t vm_pid;
	uint32_t owner_pid;
	uint32_t changes;
};

/* Errors of all: GW_NO_MODULE (not loaded, or not root), GW_INTERNAL. */
int netlink_open(struct netlink **out, struct err *e);
void netlink_close(struct netlink *nl);
/* Calls each() for every session. */
int netlink_sessions(struct netlink *nl, void (*each)(const struct session_info *s, void *arg), void *arg, struct err *e);
/* Events come from here on. */
int netlink_subscribe(struct netlink *nl, struct err *e);
/* Waits until a signal (stop_requested()), calling each() for every event. -ENOBUFS: some were lost; go on. */
int netlink_watch(struct netlink *nl, void (*each)(const struct session_event *ev, void *arg), void *arg, struct err *e);

const char *session_state_name(uint32_t state);	/* "started" */
const char *session_event_name(uint32_t cmd);	/* "retired" */
const char *ledger_row_name(unsigned int row);	/* "mapping" */
const char *harvest_phase_name(unsigned int phase);	/* "slots" */

#endif
