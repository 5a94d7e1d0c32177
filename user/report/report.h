/* SPDX-License-Identifier: GPL-2.0-only */
/* What a migration does while it runs, and has done when it has ended. */
#ifndef GODWIT_REPORT_H
#define GODWIT_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/speed.h"

#define REPORT_ROWS	256u
#define REPORT_CODECS	3u
#define REPORT_TEXT	24u	/* bytes of a name */

/* As in the rows: "lz4", "zstd", "zlib". */
extern const char *const report_codecs[REPORT_CODECS];

/**
 * struct report_row - one round, or several that follow each other
 * @first: number of the first round in the row
 * @count: how many rounds the row stands for
 * @streams: connections that carried the round
 * @blackout: the guest was stopped
 * @late: it ran, and was to be stopped any moment: see late_rounds.c
 * @start_ns: since the migration began
 * @end_ns: when the receiver acknowledged the round, or when it failed
 * @bytes: sent over the link during the round, all connections; until the round has ended, what had
 *	been sent before
 * @data_pages: sent with their bytes
 * @zero_pages: found to be all zeros
 * @same_pages: found to be of one byte, which is not 0
 * @packed_pages: of @data_pages, those that lz4, zstd and zlib packed
 * @page_bytes: what @data_pages took on the link
 * @delta_pages: of @data_pages, those of which only the parts that had changed were sent:
 *	@delta_bytes, before they were packed
 * @unchanged_pages: dirty, and as the destination had them: not sent
 * @reused_pages: sent as references to what the receiver has in a file: @reused_bytes on the link
 * @pending_pages: dirty, at the harvest after the round
 * @dirty_rate: pages per second that the guest wrote during the round
 * @rate: bytes per second that the link takes, as measured up to the end of the round
 * @predicted_ns: downtime predicted after the round
 * @throttle: per cent of the time that vCPUs stood still (--throttle)
 */
struct report_row {
	unsigned int first;
	unsigned int count;
	unsigned int streams;
	bool blackout, late;
	uint64_t start_ns;
	uint64_t end_ns;
	uint64_t bytes;
	uint64_t data_pages;
	uint64_t zero_pages;
	uint64_t same_pages;
	uint64_t packed_pages[REPORT_CODECS];
	uint64_t page_bytes;
	uint64_t delta_pages;
	uint64_t delta_bytes;
	uint64_t unchanged_pages;
	uint64_t reused_pages;
	uint64_t reused_bytes;
	uint64_t pending_pages;
	uint64_t dirty_rate;
	uint64_t rate;
	uint64_t predicted_ns;
	unsigned int throttle;
};

/**
 * struct report_link - of the rounds before the switchover, zeros where TCP does not carry them
 * @rtt_ns: the shortest round trip
 * @segments: of TCP, that were sent with data, @again: of these, those that were lost before
 * @loss_ns: of the predicted downtime, what such losses are expected to add
 * @busy_ns: how long a stream had something to send, on average; of that, for @window_ns the
 *	receiver's window was full, and for @buffer_ns this host's buffer
 */
struct report_link {
	uint64_t rtt_ns;
	uint64_t segments, again;
	uint64_t loss_ns;
	uint64_t busy_ns, window_ns, buffer_ns;
};

/**
 * struct report - counted by the sender
 * @started_realtime_ns: when, by CLOCK_REALTIME
 * @phase: "connect", "pre-copy", "switchover", "device state", "post-copy", "done"
 * @streams: connections that carry RAM
 * @reconnects: how often the link was lost, and came back (--reconnect)
 * @throttle: per cent of the time that vCPUs stand still, or stood up to the switchover;
 *	@throttled_ns: how long each vCPU has in all, on average
 * @round: the round under way, from 1
 * @total_pages: guest RAM, 4 KiB pages
 * @data_pages: sent with their bytes; a page sent twice counts twice
 * @zero_pages: found to be all zeros
 * @same_pages, @packed_pages, @page_bytes, @delta_pages, @delta_bytes, @unchanged_pages,
 *	@reused_pages, @reused_bytes: as in a row, of all rounds
 * @untouched_pages: not allocated at the source: at the end of the migration, until then at its
 *	beginning
 * @pending_pages: dirty, at the last harvest; before the first harvest, the allocated pages
 * @remaining_pages: the same now: falls while a round is sent
 * @dirty_rate: pages per second that the guest wrote during the last whole round
 * @bytes: sent over the link, headers and device state included
 * @device_bytes: in migrate mode, QEMU's own stream; in save mode, the saved state and the private
 *	RAM
 * @zero_copies: sends that asked for zero-copy, and that the receiver's host has acknowledged
 * @zero_copies_copied: of these, those that the kernel copied nevertheless
 * @speed: of the last whole round; of the first one while that runs
 * @limit_ns: the downtime that is allowed, as of the last decision
 * @predicted_ns: downtime predicted at the last decision
 * @downtime_ns: the source's STOP to the destination's RESUME, by QEMU's own timestamps
 * @clock_error_ns: how far the comparison of the two hosts' clocks may be off
 * @total_ns: from the first connection to the destination's RESUME
 * @setup_ns: of that, before the first round
 * @link: what rounds have shown of it
 * @blackout: the parts of the downtime
 * @postcopy: what came after the guest, as the receiver said last
 * @reuse: what the receiver has in a file; @image: the file that the sender leaves (--leave-image)
 * @save_mode: the device state travelled in save mode
 * @encrypted: by TLS, with @cipher; @kernel_tls: this kernel makes the records
 * @nr_rows: of @rows, which are sorted by time. When all are used each two become one, so that
 *	their number is bounded and they still cover the whole migration.
 */
struct report {
	uint64_t started_realtime_ns;
	const char *phase;
	unsigned int streams;
	unsigned int reconnects;
	unsigned int throttle;
	uint64_t throttled_ns;
	unsigned int round;
	uint64_t total_pages;
	uint64_t data_pages;
	uint64_t zero_pages;
	uint64_t same_pages;
	uint64_t packed_pages[REPORT_CODECS];
	uint64_t page_bytes;
	uint64_t delta_pages;
	uint64_t delta_bytes;
	uint64_t unchanged_pages;
	uint64_t reused_pages;
	uint64_t reused_bytes;
	uint64_t untouched_pages;
	uint64_t pending_pages;
	uint64_t remaining_pages;
	uint64_t dirty_rate;
	uint64_t bytes;
	uint64_t device_bytes;
	uint64_t zero_copies;
	uint64_t zero_copies_copied;
	struct speed speed;
	uint64_t limit_ns;
	uint64_t predicted_ns;
	uint64_t downtime_ns;
	uint64_t clock_error_ns;
	uint64_t total_ns;
	uint64_t setup_ns;
	struct report_link link;
	struct {
		uint64_t stop_ns;	/* STOP until the sender sees that it stands still */
		uint64_t harvest_ns;
		uint64_t check_ns;	/* around the harvest: may anything still write RAM? */
		uint64_t ram_ns;	/* the last round, acknowledged */
		uint64_t verify_ns;
		uint64_t save_ns;	/* COMMIT until QEMU had written all of its device state */
		uint64_t load_ns;	/* from there until the destination's RESUME */
	} blackout;
	struct {
		uint64_t time_ns;	/* RESUMED until the destination had all of the guest */
		uint64_t owed_pages;	/* when the guest was stopped */
		uint64_t early_pages;	/* that the destination emptied before that */
		uint64_t faults;	/* pages that the guest waited for */
		uint64_t zero_faults;	/* of these, pages that were not owed: zeros */
		uint64_t asked;		/* units that were asked for, and how long they took: */
		uint64_t mean_ns;
		uint64_t p99_ns;
		uint64_t worst_ns;
	} postcopy;
	struct {
		uint64_t entries;	/* pages that the receiver has said it has in a file */
		uint64_t left_out;	/* pages of the file that its memory had no room for */
		uint64_t index_ns;	/* how long it took the receiver to read the file */
		uint64_t memory;	/* bytes of the sender's for that */
		uint64_t refused_pages;	/* that the file did not have any more */
	} reuse;
	struct {
		char state[REPORT_TEXT];	/* "": not asked for; "writing", "left", "failed" */
		uint64_t bytes;
		uint64_t time_ns;
	} image;
	bool guest_was_paused;
	bool verified;
	bool save_mode;
	bool encrypted;
	bool kernel_tls;
	char cipher[REPORT_TEXT];
	unsigned int nr_rows;
	struct report_row rows[REPORT_ROWS];
};

typedef void (*report_fn)(const struct report *r, void *arg);

/* Round r->round begins, with r->bytes sent and r->remaining_pages to send. */
void report_round_begin(struct report *r, bool blackout, uint64_t now_ns);
/* The pages of a round; the members are a row's. */
struct report_sent {
	uint64_t data_pages, zero_pages, same_pages, page_bytes;
	uint64_t delta_pages, delta_bytes, unchanged_pages, reused_pages, reused_bytes;
	uint64_t packed_pages[REPORT_CODECS];
};
/* What the round has sent so far, or in all; any number of times. */
void report_round_sent(struct report *r, const struct report_sent *sent);
/* The round has ended, with success or not: r->bytes are sent. */
void report_round_end(struct report *r, uint64_t now_ns);
/* The harvest after the round: copies what r has of pages, rates and the downtime to its row. */
void report_round_left(struct report *r);

#endif
