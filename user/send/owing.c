// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/say.h"
#include "base/stop.h"
#include "net/sock.h"
#include "peer/owed_frames.h"
#include "peer/postcopy_ask.h"
#include "send/answers.h"
#include "send/sender_internal.h"
#include "wire/owed.h"

#define EARLY_RUNS	1024u	/* of pages: the receiver empties as many in 3 to 6 ms */

/* Nothing was asked, or it is no error: why there is no post-copy is told when it is asked for. */
static int owing_cannot(struct sender *s, enum gw_exit exit, const char *why)
{
	err_set(&s->owing.why_not, exit, EOPNOTSUPP, "%.900s", why);
	return 0;
}

/* What the receiver itself has against it. */
static int owing_refused(struct sender *s, int r, const struct err *why, struct err *e)
{
	if (s->limits.postcopy == POSTCOPY_AUTO && (r == -EOPNOTSUPP || r == -EPROTONOSUPPORT))
		return owing_cannot(s, why->exit, why->text);
	*e = *why;
	return r;
}

int owing_ask(struct sender *s, struct err *e)
{
	struct err why = { 0 };
	int r;

	if (s->limits.postcopy == POSTCOPY_OFF)
		return owing_cannot(s, GW_VM_STATE, "this migration began with --postcopy off: begin another with auto");
	if (s->o->pause && s->limits.postcopy == POSTCOPY_AUTO)
		return owing_cannot(s, GW_USAGE, "with --pause there are no rounds that might not help: give --postcopy on");
	if (s->o->verify)
		return owing_cannot(s, GW_USAGE, "--verify compares all RAM before the guest runs at the destination");
	r = doubt_reserve(&s->note, s->vm.pid, &why);
	if (!r)
		r = postcopy_ask_send(s->ch, s->features, &why);
	s->owing.asked = !r;
	return r ? owing_refused(s, r, &why, e) : 0;
}

int owing_hear(struct sender *s, struct err *e)
{
	struct err why = { 0 };
	int r;

	if (!s->owing.asked)
		return 0;
	r = postcopy_ask_take(s->ch, s->owing.unit, s->vm.nblocks, &why);
	s->owing.agreed = !r;
	return r ? owing_refused(s, r, &why, e) : 0;
}

static int owing_closed(struct err *e)
{
	return err_set(e, GW_LINK_LOST, ECONNRESET, "the connection for page faults was closed");
}

bool owing_wanted(const struct sender *s)
{
	return s->owing.agreed && (s->owing.chosen || s->limits.postcopy >= POSTCOPY_ON);
}

int owing_choose(struct sender *s, struct err *e)
{
	int r = 0;

	if (s->owing.chosen)
		return 0;
	/* Else the link is as good as lost, while it may come back. */
	if (!sock_is_open(s->owing.fd))
		return owing_closed(e);
	/* An answer to the SWITCHOVER before must not be taken for one to this. */
	if (s->asked)
		r = sender_await_switchover(s, e);
	if (r)
		return r;
	s->owing.chosen = true;
	s->asked = s->answered = false;
	if (s->limits.postcopy == POSTCOPY_AUTO)
		say("rounds do not help, so the guest goes on at the destination before all of its RAM is there. Until it is, the loss of either host, or of either QEMU, would cost the guest (--postcopy off: never)");
	return 0;
}

void owing_connection(struct sender *s, int fd, struct tls *tls)
{
	tls_free(s->owing.tls);
	if (s->owing.fd >= 0)
		close(s->owing.fd);
	s->owing.fd = fd;
	s->owing.tls = tls;
}

int owing_check(const struct sender *s, struct err *e)
{
	return !s->owing.chosen || sock_is_open(s->owing.fd) ? 0 : owing_closed(e);
}

static int owing_init(const struct sender *s, struct owed *owed, struct err *e)
{
	uint64_t pages[WIRE_BLOCKS_MAX];

	for (unsigned int i = 0; i < s->vm.nblocks; i++)
		pages[i] = s->vm.blocks[i].pages;
	return owed_init(owed, pages, s->owing.unit, s->vm.nblocks, e);
}

/*
 * What is dirty and there: the same walk as that of a round. Units are owed whole, also where two
 * runs meet in one. runs: counts those that are not all owed yet, and takes nothing from the map;
 * NULL: takes all, and each page once.
 */
static int owing_collect_block(struct sender *s, unsigned int block, struct owed *owed,
			       uint64_t *runs, struct err *e)
{
	const uint64_t pages = s->vm.blocks[block].pages, unit = s->owing.unit[block];
	struct bitmap_runs walk = { .map = s->source->map[block], .nbits = pages };
	struct run data = { 0, 0 }, run = { 0, 0 };
	uint64_t done = 0;
	int r;

	while ((r = source_next_dirty(s->source, block, run.first + run.count, &walk, &data, &run,
				      e)) > 0) {
		uint64_t first = run.first - run.first % unit, end = run.first + run.count;
		const bool goes_on = done && first <= done;

		end += end % unit ? unit - end % unit : 0;
		if (end > pages)
			end = pages;
		if (first < done)
			first = done;
		if (runs) {
			if (first < end)
				*runs += owed_add_new(owed, block, first, end - first) && !goes_on;
			/* If it goes in a round after all, the receiver has no page to change. */
			if (s->delta)
				delta_forget(s->delta, block, run.first, run.count);
		} else {
			bitmap_clear(s->source->map[block], run.first, run.count);
			if (first < end && owed_add(owed, block, first, end - first))
				return err_set(e, GW_INTERNAL, EEXIST, "a page is owed twice");
		}
		done = end > done ? end : done;
	}
	return r;
}

int owing_collect(struct sender *s, struct err *e)
{
	const struct frame_out to = sender_any_stream(s);
	uint64_t sum = 0;
	int r = owing_init(s, &s->owing.owed, e);

	push_init(&s->owing.push, &s->owing.owed);
	s->owing.collected = true;
	for (unsigned int i = 0; i < s->vm.nblocks && !r; i++)
		r = owing_collect_block(s, i, &s->owing.owed, NULL, e);
	if (!r)
		r = owed_frames_send(&s->owing.owed, &to, &sum, e);
	s->report->pending_pages = sum;
	s->report->postcopy.owed_pages = sum;
	return r;
}

/* Names it to the receiver, and waits until that has emptied it. */
static int owing_name_early(struct sender *s, const struct owed *early, struct err *e)
{
	const struct frame_out to = { .send = frame_out_to_channel, .arg = s->ch };
	int r = owed_frames_send(early, &to, &s->report->postcopy.early_pages, e);

	/* It may take seconds. */
	s->asked = s->answered = s->fits = false;
	if (!r)
		r = sender_ask_switchover(s, e);
	return r ? r : sender_await_switchover(s, e);
}

/*
 * What is dirty, and named with what was before. Rounds may follow, so only pages that are dirty
 * may go: no huge pages, which are emptied as a whole.
 */
static int owing_find_early(struct sender *s, struct owed *early, uint64_t *runs, struct err *e)
{
	int r = 0;

	*runs = 0;
	for (unsigned int i = 0; i < s->vm.nblocks && !r; i++)
		if (s->owing.unit[i] == 1)
			r = owing_collect_block(s, i, early, runs, e);
	return r;
}

int owing_early(struct sender *s, struct err *e)
{
	uint64_t runs, before = UINT64_MAX, ns;
	struct owed early = { .blocks = 0 };
	int r;

	if (!(s->features & WIRE_EARLY))
		return 0;
	r = sender_await_switchover(s, e);
	if (!r)
		r = owing_init(s, &early, e);
	/* At first the map is of the last round's end. */
	if (!r)
		r = owing_find_early(s, &early, &runs, e);
	while (!r && runs >= EARLY_RUNS && runs <= before / 2) {
		before = runs;
		r = owing_name_early(s, &early, e);
		if (!r)
			r = sender_harvest(s, &ns, e);
		if (!r)
			r = owing_find_early(s, &early, &runs, e);
	}
	owed_free(&early);
	return r;
}

int owing_begin(struct sender *s, struct err *e)
{
	const struct answers_options o = {
		.vm = &s->vm, .owed = &s->owing.owed, .push = &s->owing.push,
		.engine = s->o->engine, .fd = s->owing.fd, .tls = s->owing.tls,
		.timeout_ms = connect_patience_ms(s),
	};
	int r;

	s->owing.fd = -1;
	s->owing.tls = NULL;
	r = answers_start(&o, &s->owing.answers, e);
	if (r)
		return r;
	/* --bandwidth was for the time until here; the guest waits for these. */
	pace_set(&s->pace, 0);
	sender_push_begin(s);
	return 0;
}

int owing_take_faults(struct sender *s, struct err *e)
{
	struct report *rep = s->report;
	uint8_t body[WIRE_FAULTS_BYTES];
	int r = channel_body(s->ch, body, sizeof(body), e);
	struct wire_faults f;

	if (r)
		return r;
	wire_get_faults(body, &f);
	if (s->owing.begun_ns)
		rep->postcopy.time_ns = now_ns() - s->owing.begun_ns;
	rep->postcopy.faults = f.seen;
	rep->postcopy.zero_faults = f.zeros;
	rep->postcopy.asked = f.asked;
	rep->postcopy.mean_ns = f.mean_ns;
	rep->postcopy.p99_ns = f.p99_ns;
	rep->postcopy.worst_ns = f.worst_ns;
	return 1;
}

/* Waits for what the receiver says, or a moment. */
static int owing_wait(struct sender *s, struct err *e)
{
	struct pollfd p = { .fd = channel_fd(s->ch), .events = POLLIN };

	s->report->postcopy.time_ns = now_ns() - s->owing.begun_ns;

	poll(&p, 1, channel_readable(s->ch) ? 0 : STOP_SLICE_NS / 1000000);
	return sender_idle(s, e);
}

int owing_finish(struct sender *s, struct err *e)
{
	struct wire_header done = { .type = WIRE_DONE };
	struct err ignored = { 0 };
	int r;

	commit_source(&s->commit, SOURCE_LEARNS_RUNS);
	sender_note_doubt(s);
	s->report->phase = "post-copy";
	if (!s->owing.begun_ns)
		s->owing.begun_ns = now_ns();
	s->next_renew_ns = 0;
	s->silent_ns = deadline_ms(connect_patience_ms(s));
	s->owing.follows = true;
	r = sender_push_end(s, e);
	while (!r && !s->owing.complete)
		r = owing_wait(s, e);
	s->owing.follows = false;
	s->report->postcopy.time_ns = now_ns() - s->owing.begun_ns;
	if (r)
		return r;
	/* As in the switchover: first the note. */
	sender_note_doubt(s);
	channel_send(s->ch, &done, NULL, &ignored);
	return 0;
}

#define LAST_WORDS_MS	1000u

/* Does the receiver say that its QEMU has exited? A stream may have broken before that was read. */
static bool owing_is_lost(struct sender *s, struct err *e)
{
	struct err said = { 0 };

	if (!s->ch)
		return false;
	if (e->exit == GW_LINK_LOST && !channel_aborted(s->ch))
		channel_last_words(s->ch, LAST_WORDS_MS, &said);
	if (channel_aborted(s->ch) && said.exit)
		*e = said;
	return channel_abort_status(s->ch) == GW_GUEST_LOST;
}

int owing_settle(struct sender *s, int r, struct err *e)
{
	const bool owed = s->owing.collected && !s->owing.complete;
	bool lost = false;

	/* By a verdict. */
	if (owed)
		sender_note_doubt(s);
	while (owed && !s->owing.complete) {
		lost = owing_is_lost(s, e);
		if (lost || owing_recover(s, r ? r : -EIO, e))
			break;
		r = s->owing.complete ? 0 : owing_finish(s, e);
	}
	if (!owed || s->owing.complete)
		return 0;
	/* Said in answer to RECOVER, or before by the verdict. */
	lost |= e->exit == GW_GUEST_LOST || s->owing.lost;
	return owing_give_up(s, r, lost, e);
}

void owing_disconnect(struct sender *s)
{
	answers_free(s->owing.answers);
	s->owing.answers = NULL;
	owing_connection(s, -1, NULL);
}

void owing_reset(struct owing *o)
{
	if (!o->collected)
		return;
	push_free(&o->push);
	owed_free(&o->owed);
	o->collected = false;
}

void owing_free(struct sender *s)
{
	owing_disconnect(s);
	owing_reset(&s->owing);
}
