// SPDX-License-Identifier: GPL-2.0-only
/* One round, over all streams. The receiver acknowledges it later. */
#include <errno.h>

#include "base/clock.h"
#include "send/sender_internal.h"

/*
 * Rounds on their way. Each takes at least as long as its bytes, so few are enough to keep the link
 * busy; and a receiver that says nothing is noticed.
 */
#define UNACKED_MAX	4u

/* Sends ROUND once all streams have sent theirs. */
static int sender_announce_round(struct sender *s, struct err *e)
{
	struct wire_header h = { .type = WIRE_ROUND, .arg = s->report->round };
	int r = channel_send(s->ch, &h, NULL, e);

	s->announced = s->report->round;
	while (!r && s->announced - atomic_load(&s->stripes.acked) >= UNACKED_MAX)
		r = sender_listen(s, e);
	while (!r && channel_readable(s->ch))
		r = sender_listen(s, e);
	return r;
}

static void sender_report_round(struct sender *s, bool last)
{
	struct report *rep = s->report;

	/* The first round sends all that is allocated. */
	if (++rep->round == 1) {
		rep->pending_pages = vm_allocated_pages(&s->vm);
		rep->remaining_pages = rep->pending_pages;
		rep->untouched_pages = rep->total_pages - rep->pending_pages;
	}
	sender_count(s);
	report_round_begin(rep, last, rep->total_ns);
}

void sender_round_begin(struct sender *s, enum round_kind kind)
{
	struct round *rd = &s->the_round;

	sender_report_round(s, kind == ROUND_LAST);
	/* In the first round all pages are dirty, which tells nothing about hot ones. */
	if (kind == ROUND_PRECOPY && s->report->round > 1)
		hot_pages_hold(&s->hot, s->source);
	s->stripes.round = s->report->round;
	round_begin(rd, &s->vm, s->source, kind, kind == ROUND_PRECOPY ? &s->hot : NULL,
		    &s->stripes);
	if (kind == ROUND_LAST && s->spread)
		round_spread(rd);
	s->round = rd;
	if (s->out_of_time)
		round_cut(rd);
	send_streams_begin(s->streams, rd, s->report->round);
}

int sender_flush(struct sender *s, struct err *e)
{
	return send_streams_wait(s->streams, NULL, e);
}

int sender_round_end(struct sender *s, struct err *e)
{
	struct round_count sent = { 0, 0 };
	int r = send_streams_wait(s->streams, &sent, e);

	if (!r && s->round->kind == ROUND_PRECOPY)
		r = sender_announce_round(s, e);
	/* After a failure, or a cut, some of the round is not sent. */
	sender_count(s);
	if (!r)
		s->report->remaining_pages = 0;
	s->round = NULL;
	round_end(&s->the_round);
	report_round_end(s->report, sent.data_pages, sent.zero_pages, s->report->total_ns);
	return r;
}

int sender_round(struct sender *s, struct err *e)
{
	sender_round_begin(s, ROUND_PRECOPY);
	return sender_round_end(s, e);
}
