/* SPDX-License-Identifier: GPL-2.0-only */
/* What a migration did, while it runs and afterwards. */
#ifndef GODWIT_REPORT_H
#define GODWIT_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"

/**
 * struct report - counted by the sender
 * @phase: "connect", "pre-copy", "switchover", "device state", "done"
 * @streams: connections that carry RAM
 * @round: the round under way, from 1
 * @total_pages: guest RAM, 4 KiB pages
 * @data_pages: sent with their bytes; a page sent twice counts twice
 * @zero_pages: found to be all zeros
 * @untouched_pages: never allocated at the source, at the end
 * @pending_pages: written and not sent yet, at the last harvest
 * @dirty_rate: pages per second written by the guest during the last whole round
 * @bytes: sent over the link, headers and device state included
 * @device_bytes: QEMU's own stream
 * @rate: bytes per second of the last whole round
 * @predicted_ns: downtime foreseen at the last decision
 * @downtime_ns: the source's STOP to the destination's RESUME, by QEMU's own timestamps
 * @clock_error_ns: how far the comparison of the two hosts' clocks may be off
 * @total_ns: from the first connection to the destination's RESUME
 * @blackout: the parts of the downtime
 */
struct report {
	const char *phase;
	unsigned int streams;
	unsigned int round;
	uint64_t total_pages;
	uint64_t data_pages;
	uint64_t zero_pages;
	uint64_t untouched_pages;
	uint64_t pending_pages;
	uint64_t dirty_rate;
	uint64_t bytes;
	uint64_t device_bytes;
	uint64_t rate;
	uint64_t predicted_ns;
	uint64_t downtime_ns;
	uint64_t clock_error_ns;
	uint64_t total_ns;
	struct {
		uint64_t stop_ns;	/* STOP until pre-switchover was seen */
		uint64_t harvest_ns;
		uint64_t ram_ns;	/* the last round, acknowledged */
		uint64_t verify_ns;
		uint64_t device_ns;	/* migrate-continue until RESUMED was heard */
	} blackout;
	bool guest_was_paused;
	bool verified;
};

typedef void (*report_fn)(const struct report *r, void *arg);

/* The table at the end. */
void report_print(const struct report *r, const struct err *e);
/* The same as a JSON object in a file; status is the exit status by name. */
int report_write_json(const char *path, const struct report *r, const struct err *outcome, struct err *e);

#endif
