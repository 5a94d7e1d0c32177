// SPDX-License-Identifier: GPL-2.0-only
/* One round, over all streams. The receiver acknowledges it later. */
#include <errno.h>

#include "base/clock.h"
#include "dirty/maps.h"
#include "send/sender_internal.h"

/*
 * Rounds on their way. Each takes at least as long as its bytes, so few are enough to keep the link
 * busy; and a receiver that says nothing is noticed.
 */
#define UNACKED_MAX	4u

/* Each look for what was written again stops the streams from taking more while it goes on. */
#define LOOK_NS		100000000ull
#define LOOK_RESTS	4u

/*
 * With --pause each page goes once, and with --postcopy on only once before the receiver empties
 * it: there auto sees no use in it. Without a codec no page gets hashes, but that may change.
 */
static bool sender_wants_delta(const struct sender *s)
{
	if (s->o->delta == DELTA_ON)
		return true;
	return s->o->delta == DELTA_AUTO && !s->o->pause &&
	       s->limits.postcopy < POSTCOPY_ON && s->features & WIRE_DELTAS;
}

int sender_open_delta(struct sender *s, struct err *e)
{
	uint64_t pages[WIRE_BLOCKS_MAX];

	if (!sender_wants_delta(s) || !s->o->delta_mib)
		return 0;
	if (!(s->features & WIRE_DELTAS))
		return err_set(e, GW_VERSION, EPROTONOSUPPORT, "the receiver's godwit is too old for --delta on: give auto or off, or install the same version at both ends");
	for (unsigned int i = 0; i < s->vm.nblocks; i++)
		pages[i] = s->vm.blocks[i].pages;
	s->delta = delta_new(pages, s->vm.nblocks, (uint64_t)s->o->delta_mib << 20);
	if (s->delta || s->o->delta == DELTA_AUTO)
		return 0;
	return err_set(e, GW_INTERNAL, ENOMEM, "no memory for --delta: give off, or free memory");
}

#define INDEX_NS	5000000000ull	/* at most, until the receiver has read its file */
#define INDEX_NAP_NS	20000000ull

/* What is known so far, into the report. */
static void sender_report_reuse(struct sender *s)
{
	struct report *rep = s->report;

	if (!s->reuse.table)
		return;
	rep->reuse.entries = reuse_table_entries(s->reuse.table);
	rep->reuse.left_out = s->reuse.left_out;
	rep->reuse.memory = reuse_table_memory(s->reuse.table);
	rep->reuse.index_ns = s->reuse.index_ns;
	rep->reuse.refused_pages = s->reuse.refused_pages;
}

/*
 * The receiver reads its file much faster than a link carries the guest, so it is worth a moment.
 * What has not been read by then becomes known while rounds go on (sender_idle()).
 */
static int sender_await_index(struct sender *s, struct err *e)
{
	const uint64_t until = now_ns() + INDEX_NS;
	int r = 0;

	while (!r && s->reuse.table && !s->reuse.complete && now_ns() < until && !s->hurries) {
		const uint64_t before = reuse_table_entries(s->reuse.table);

		r = referring_ask(&s->reuse, s->ch, e);
		while (!r && s->reuse.asked)
			r = sender_listen(s, e);
		if (!r && reuse_table_entries(s->reuse.table) - before < WIRE_ENTRIES_FRAME &&
		    !s->reuse.complete)
			r = channel_pause(s->ch, now_ns() + INDEX_NAP_NS, e);
		sender_progress(s);
	}
	return r;
}

int sender_send_ahead(struct sender *s, struct err *e)
{
	bool again;
	int r;

	do {
		again = false;
		r = send_save_ahead(s, e);
		if (!r)
			r = sender_ask_reuse(s, e);
		if (!r)
			r = sender_await_index(s, e);
		if (r) {
			r = connect_again(s, r, e);
			again = !r;
		}
	} while (again);
	sender_report_reuse(s);
	return r;
}

int sender_end_reuse(struct sender *s, struct err *e)
{
	int r = 0;

	/* As long as it takes: PONGs show that the receiver writes, and without them this ends. */
	while (!r && s->reuse.table &&
	       (s->reuse.asked || atomic_load(&s->stripes.acked) != s->announced))
		r = sender_listen(s, e);
	sender_report_reuse(s);
	return r;
}

bool sender_may_announce(const struct sender *s)
{
	return s->announced + 1 - atomic_load(&s->stripes.acked) < UNACKED_MAX;
}

/* Sends ROUND once all streams have sent theirs. */
static int sender_announce_round(struct sender *s, struct err *e)
{
	struct wire_header h = { .type = WIRE_ROUND, .arg = s->number };
	int r = channel_send(s->ch, &h, NULL, e);

	s->announced = s->number;
	while (!r && s->announced - atomic_load(&s->stripes.acked) >= UNACKED_MAX)
		r = sender_listen(s, e);
	while (!r && channel_readable(s->ch))
		r = sender_listen(s, e);
	return r;
}

static void sender_report_round(struct sender *s, bool blackout)
{
	struct report *rep = s->report;

	/* The first round sends all that is allocated. */
	if (++rep->round == 1) {
		rep->pending_pages = vm_allocated_pages(&s->vm);
		rep->remaining_pages = rep->pending_pages;
		rep->untouched_pages = rep->total_pages - rep->pending_pages;
	}
	sender_count(s);
	report_round_begin(rep, blackout, rep->total_ns);
}

/*
 * Of a huge page that a process beside the VMM writes (vhost-user) the kernel says only that it is
 * dirty: a frame's buffer of 2 KiB makes 2 MiB of the last round. With hashes it is what changed.
 * On a tmpfs with huge pages that is so where the process has mapped a whole one.
 */
static bool sender_huge_pages_are_shared(const struct sender *s)
{
	bool huge = s->streams && send_streams_read_huge(s->streams);

	for (unsigned int i = 0; i < s->vm.nblocks; i++)
		huge |= s->vm.blocks[i].page_size > PAGE_BYTES;
	return huge && s->source->beside;
}

struct hot_pages *sender_hot_pages(struct sender *s, enum round_kind kind)
{
	/* Without the module there are none. */
	if (s->o->pause || kind == ROUND_LAST || s->watches)
		return NULL;
	return kind == ROUND_LATE && s->delta && sender_huge_pages_are_shared(s) ? NULL : &s->hot;
}

/* A round, or the next part of it: what is dirty. */
static void sender_part_begin(struct sender *s, enum round_kind kind)
{
	struct round *rd = &s->the_round;

	s->stripes.round = ++s->number;
	round_begin(rd, &s->vm, s->source, kind, sender_hot_pages(s, kind), &s->stripes);
	if (kind == ROUND_PRECOPY)
		round_divide(rd, s->report->pending_pages, s->report->streams);
	if (kind == ROUND_LAST && s->spread)
		rd->spread = true;
	if (s->watches)
		rd->rewritten = &s->rewritten;
	s->part_over = false;
	s->part_end_ns = 0;
	if (s->keeps && kind == ROUND_PRECOPY)
		s->part_end_ns = now_ns() + (s->number == 1 ? FIRST_PART_NS : PART_NS);
	s->round = rd;
	if (s->hurries)
		round_cut(rd);
	if (sender_huge_pages_are_shared(s))
		send_streams_hash_all(s->streams);
	sender_ask_load(s);
	send_streams_begin(s->streams, rd, s->number);
}

void sender_round_begin(struct sender *s, enum round_kind kind)
{
	sender_report_round(s, kind == ROUND_LAST || s->o->pause);
	/* In the first round all pages are dirty, which tells nothing about hot ones. */
	if (kind == ROUND_PRECOPY && s->report->round > 1 && !s->o->pause && !s->watches)
		hot_pages_hold(&s->hot, s->source);
	s->taken = 0;
	s->again_ns = 0;
	s->counts_before = send_streams_counts(s->streams);
	s->counts_lost = (struct round_count) { .data_pages = 0 };
	sender_part_begin(s, kind);
}

void sender_look(struct sender *s)
{
	const uint64_t began_ns = now_ns();
	struct err ignored = { 0 };
	uint64_t took_ns;

	if (!s->watches || !s->round || began_ns < s->look_ns)
		return;
	/* What a harvest that fails has found is marked. The one behind the round says why. */
	if (round_look(s->round, &ignored)) {
		s->look_ns = UINT64_MAX;
		return;
	}
	took_ns = now_ns() - began_ns;
	s->look_ns = now_ns() + (took_ns > LOOK_NS / LOOK_RESTS ? LOOK_RESTS * took_ns : LOOK_NS);
}

void sender_end_part(struct sender *s)
{
	if (!s->round || !s->part_end_ns || now_ns() < s->part_end_ns)
		return;
	s->part_end_ns = 0;
	s->part_over = true;
	round_cut(s->round);
}

int sender_flush(struct sender *s, struct err *e)
{
	return send_streams_wait(s->streams, NULL, e);
}

static int sender_part_end(struct sender *s, struct round_count *sum, struct err *e)
{
	struct round_count sent = { .data_pages = 0 };
	int r;

	/* QEMU's stream goes on beside a late round, whose end does not wait for it. */
	if (s->round->kind == ROUND_LATE)
		r = send_streams_wait_round(s->streams, &sent, e);
	else
		r = send_streams_wait(s->streams, &sent, e);
	if (!r && round_guest_runs(s->round))
		r = sender_announce_round(s, e);
	/*
	 * References of GiBs are on the link in no time, and the receiver reads for long: what it
	 * refuses is to be in the map before the next harvest, which a decision is made on, and its
	 * time is the round's.
	 */
	if (!r && sent.reused_pages)
		r = sender_end_reuse(s, e);
	round_count_add(sum, &sent);
	/* After a failure, or a cut, some of the round is not sent. */
	sender_count(s);
	s->taken += round_taken(s->round);
	if (r && round_guest_runs(s->round))
		round_drop(s->round);
	s->round = NULL;
	round_end(&s->the_round);
	referring_again(&s->reuse, s->delta, s->source->map);
	return r;
}

static void sender_round_done(struct sender *s, int r, const struct round_count *sent)
{
	if (!r)
		s->report->remaining_pages = 0;
	sender_report_sent(s, sent);
	report_round_end(s->report, s->report->total_ns);
}

void sender_push_begin(struct sender *s)
{
	struct round *rd = &s->the_round;

	s->taken = 0;
	s->number++;
	round_begin(rd, &s->vm, s->source, ROUND_PUSH, NULL, NULL);
	rd->push = &s->owing.push;
	s->round = rd;
	/*
	 * The answers to faults must not queue behind what is pushed. A rate that --bandwidth made
	 * would hold back what is pushed now, when nothing else does.
	 */
	send_streams_keep_short(s->streams, s->link_rate);
	send_streams_begin(s->streams, rd, s->number);
}

int sender_push_end(struct sender *s, struct err *e)
{
	struct round_count sent = { .data_pages = 0 };

	return sender_part_end(s, &sent, e);
}

int sender_round_end(struct sender *s, struct err *e)
{
	struct round_count sent = { .data_pages = 0 };
	int r = sender_part_end(s, &sent, e);

	sender_round_done(s, r, &sent);
	return r;
}

void sender_disconnect(struct sender *s)
{
	struct zero_copy_count zc = send_streams_zero_copies(s->streams);

	s->bytes_before = sender_bytes(s);
	s->zero_copies_before.sends += zc.sends;
	s->zero_copies_before.copied += zc.copied;
	if (s->streams) {
		s->counts_lost = sender_counts(s);
		s->counts_before = (struct round_count) { .data_pages = 0 };
	}
	owing_disconnect(s);
	referring_disconnect(&s->reuse);
	channel_free(s->ch);
	s->ch = NULL;
	send_streams_free(s->streams);
	s->streams = NULL;
}

/* The link is back: what is dirty now, and what was lost with it, is the rest of the round. */
static int sender_recount(struct sender *s, struct err *e)
{
	int r;

	/* What was postponed is part of it, and what is held no longer. */
	if (s->watches)
		dirty_maps_move(&s->vm, s->rewritten.postponed, s->source->map);
	s->rewritten.left_out = 0;
	r = source_pending(&s->vm, s->source, &s->report->pending_pages, e);
	s->taken = 0;
	s->report->remaining_pages = s->report->pending_pages;
	return r < 0 ? r : 0;
}

int sender_round(struct sender *s, struct err *e)
{
	struct round_count sent = { .data_pages = 0 };
	int r;

	/* What the guest writes again follows it, whether this round has sent it or not. */
	s->watches = !s->o->pause && owing_wanted(s);
	s->look_ns = now_ns() + LOOK_NS;
	sender_round_begin(s, ROUND_PRECOPY);
	for (;;) {
		bool lost = false;

		r = sender_part_end(s, &sent, e);
		if (r) {
			r = connect_again(s, r, e);
			lost = !r;
		}
		if (lost)
			r = sender_recount(s, e);
		/* What is left is for the last round, or follows the guest. */
		if (r || (!lost && !s->part_over) || s->hurries)
			break;
		sender_part_begin(s, ROUND_PRECOPY);
	}
	if (s->watches)
		rewritten_release(&s->rewritten, s->source);
	s->watches = false;
	sender_round_done(s, r, &sent);
	return r;
}
