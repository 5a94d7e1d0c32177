/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * godwit.ko's generic netlink family: its sessions and their events. <linux/godwit.h> is the
 * contract.
 */
#ifndef GODWIT_NETLINK_H
#define GODWIT_NETLINK_H

#include <linux/godwit.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct netlink;

/**
 * struct session_info - a session of godwit.ko, as GODWIT_CMD_SESSION describes it
 * @vm_pid: 0 while the session has no VM; then the members after it are 0 too
 * @pages: reported as dirty, by enum godwit_row
 * @ns: time spent, by enum godwit_phase
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

/* Errors of these functions: GW_NO_MODULE (not loaded, or not root), GW_INTERNAL. */
int netlink_open(struct netlink **out, struct err *e);
void netlink_close(struct netlink *nl);
/* Calls each() for every session. */
int netlink_sessions(struct netlink *nl, void (*each)(const struct session_info *s, void *arg),
		     void *arg, struct err *e);
/* From now on the kernel queues events. */
int netlink_subscribe(struct netlink *nl, struct err *e);
/*
 * Calls each() for every event until a stop is requested (stop_requested()). -ENOBUFS: the kernel
 * dropped events; call it again.
 */
int netlink_watch(struct netlink *nl, void (*each)(const struct session_event *ev, void *arg),
		  void *arg, struct err *e);

const char *session_state_name(uint32_t state);	/* "started" */
const char *session_event_name(uint32_t cmd);	/* "retired" */
const char *ledger_row_name(unsigned int row);	/* "mapping" */
const char *harvest_phase_name(unsigned int phase);	/* "slots" */

#endif
