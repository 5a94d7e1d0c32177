/* SPDX-License-Identifier: GPL-2.0-only */
/* What a migration did, while it runs and afterwards. */
#ifndef GODWIT_REPORT_H
#define GODWIT_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#define REPORT_ROWS	256u

/**
 * struct report_row - one round, or several that follow each other
 * @first: number of the first round in it
 * @count: how many rounds it stands for
 * @streams: connections that carried it
 * @blackout: the guest stood still
 * @start_ns: since the migration began
 * @end_ns: when it was acknowledged, or failed
 * @bytes: sent over the link meanwhile, all connections; until it has ended, what had been sent before
 * @data_pages: sent with their bytes
 * @zero_pages: found to be all zeros
 * @pending_pages: written and not sent yet, at the harvest after it
 * @dirty_rate: pages per second that the guest wrote meanwhile
 * @rate: bytes per second that the link is known to take, after it
 * @predicted_ns: downtime foreseen after it
 */
struct report_row {
	unsigned int first;
	unsigned int count;
	unsigned int streams;
	bool blackout;
	uint64_t start_ns;
	uint64_t end_ns;
	uint64_t bytes;
	uint64_t data_pages;
	uint64_t zero_pages;
	uint64_t pending_pages;
	uint64_t dirty_rate;
	uint64_t rate;
	uint64_t predicted_ns;
};

/**
 * struct report - counted by the sender
 * @started_realtime_ns: when, by CLOCK_REALTIME
 * @phase: "connect", "pre-copy", "switchover", "device state", "done"
 * @streams: connections that carry RAM
 * @round: the round under way, from 1
 * @total_pages: guest RAM, 4 KiB pages
 * @data_pages: sent with their bytes; a page sent twice counts twice
 * @zero_pages: found to be all zeros
 * @untouched_pages: never allocated at the source: at the end, until then at the beginning
 * @pending_pages: written and not sent yet, at the last harvest; before the first, what is allocated
 * @remaining_pages: the same now: falls while a round is sent
 * @dirty_rate: pages per second written by the guest during the last whole round
 * @bytes: sent over the link, headers and device state included
 * @device_bytes: QEMU's own stream, or what was saved in its place and its private RAM
 * @zero_copies: sends that were to go out of the sender's own pages, and have been acknowledged
 * @zero_copies_copied: of these, what the kernel copied after all
 * @rate: bytes per second of the last whole round
 * @limit_ns: the downtime that is allowed
 * @predicted_ns: downtime foreseen at the last decision
 * @downtime_ns: the source's STOP to the destination's RESUME, by QEMU's own timestamps
 * @clock_error_ns: how far the comparison of the two hosts' clocks may be off
 * @total_ns: from the first connection to the destination's RESUME
 * @setup_ns: of that, before the first round
 * @blackout: the parts of the downtime
 * @saved: the device state was saved by QEMU, not migrated
 * @nr_rows: of @rows, which are sorted by time. When they are all used, two and two become one, so that their number
 * is bounded and they still tell of the whole migration.
 */
struct report {
	uint64_t started_realtime_ns;
	const char *phase;
	unsigned int streams;
	unsigned int round;
	uint64_t total_pages;
	uint64_t data_pages;
	uint64_t zero_pages;
	uint64_t untouched_pages;
	uint64_t pending_pages;
	uint64_t remaining_pages;
	uint64_t dirty_rate;
	uint64_t bytes;
	uint64_t device_bytes;
	uint64_t zero_copies;
	uint64_t zero_copies_copied;
	uint64_t rate;
	uint64_t limit_ns;
	uint64_t predicted_ns;
	uint64_t downtime_ns;
	uint64_t clock_error_ns;
	uint64_t total_ns;
	uint64_t setup_ns;
	struct {
		uint64_t stop_ns;	/* STOP until pre-switchover was seen */
		uint64_t harvest_ns;
		uint64_t ram_ns;	/* the last round, acknowledged */
		uint64_t verify_ns;
		uint64_t save_ns;	/* COMMIT until QEMU had written all of its device state */
		uint64_t load_ns;	/* from there until the destination's RESUME: sent, loaded, running */
	} blackout;
	bool guest_was_paused;
	bool verified;
	bool saved;
	unsigned int nr_rows;
	struct report_row rows[REPORT_ROWS];
};

typedef void (*report_fn)(const struct report *r, void *arg);

/* Round r->round begins, with r->bytes sent and r->remaining_pages to send. */
void report_round_begin(struct report *r, bool blackout, uint64_t now_ns);
/* It has ended, well or not: r->bytes are sent. */
void report_round_end(struct report *r, uint64_t data_pages, uint64_t zero_pages, uint64_t now_ns);
/* The harvest after it: what r says of pages, rates and the downtime is now as that round has left it. */
void report_round_left(struct report *r);

#endif
