// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the sender exchanges beside its rounds, with the receiver, with QEMU and with the operator.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/stop.h"
#include "peer/hello.h"
#include "send/answers.h"
#include "send/sender_internal.h"

#define COUNTED_PAGES	1024u
#define FRAMES_MAX	16u	/* that are taken at once, however many come */

uint64_t sender_bytes(const struct sender *s)
{
	return s->bytes_before + (s->ch ? channel_sent(s->ch) : 0) + send_streams_sent(s->streams);
}

struct round_count sender_counts(const struct sender *s)
{
	struct round_count sum = send_streams_counts(s->streams);

	round_count_subtract(&sum, &s->counts_before);
	round_count_add(&sum, &s->counts_lost);
	return sum;
}

void sender_report_sent(struct sender *s, const struct round_count *c)
{
	struct report_sent sent = {
		.data_pages = c->data_pages, .zero_pages = c->zero_pages,
		.same_pages = c->same_pages, .page_bytes = c->page_bytes,
		.delta_pages = c->delta_pages, .delta_bytes = c->delta_bytes,
		.unchanged_pages = c->unchanged_pages,
		.reused_pages = c->reused_pages, .reused_bytes = c->reused_bytes,
	};

	static_assert(REPORT_CODECS == CODECS, "the report has a count for each codec");
	memcpy(sent.packed_pages, c->packed_pages, sizeof(sent.packed_pages));
	report_round_sent(s->report, &sent);
}

/*
 * Of the first round while it runs: until a whole round has been measured that is the best guess. A
 * few pages say little.
 */
static void sender_count_speed(struct sender *s, const struct round_count *c)
{
	struct report *rep = s->report;
	uint64_t start_ns = rep->rows[0].start_ns, start_bytes = rep->rows[0].bytes;

	if (s->again_ns) {
		start_ns = s->again_ns - s->started_ns;
		start_bytes = s->again_bytes;
	}
	/* References are few bytes, and take CPUs long. */
	if (rep->round != 1 || rep->total_ns <= start_ns || c->reused_pages > c->data_pages)
		return;
	rep->speed.rate = (uint64_t)((double)(rep->bytes - start_bytes) * 1e9 /
				     (double)(rep->total_ns - start_ns));
	if (c->data_pages >= COUNTED_PAGES || (c->data_pages && rep->speed.page <= 0))
		rep->speed.page = round_count_page(c);
}

/* Of the round under way. */
static void sender_count_round(struct sender *s)
{
	const struct round_count c = sender_counts(s);
	struct report *rep = s->report;
	uint64_t taken = s->taken + round_taken(s->round) + s->rewritten.left_out;

	sender_report_sent(s, &c);
	/*
	 * The size of the last round is known only after its harvest: the one before is the guess.
	 */
	rep->remaining_pages = rep->pending_pages > taken ? rep->pending_pages - taken : 0;
	sender_count_speed(s, &c);
}

void sender_count(struct sender *s)
{
	struct report *rep = s->report;
	struct zero_copy_count zc = send_streams_zero_copies(s->streams);

	rep->total_ns = now_ns() - s->started_ns;
	rep->bytes = sender_bytes(s);
	rep->zero_copies = s->zero_copies_before.sends + zc.sends;
	rep->zero_copies_copied = s->zero_copies_before.copied + zc.copied;
	if (s->round)
		sender_count_round(s);
}

void sender_progress(struct sender *s)
{
	sender_count(s);
	if (s->o->progress)
		s->o->progress(s->report, s->o->progress_arg);
}

/*
 * The receiver acknowledges each round that was announced, one after the other, and not the last.
 */
static int sender_take_ack(struct sender *s, uint32_t round, struct err *e)
{
	uint32_t acked = atomic_load(&s->stripes.acked);

	if (round != acked + 1 || round > s->announced)
		return err_set(e, GW_BAD_PEER, EPROTO,
			       "the receiver sent ACK %u after ACK %u, and round %u was the latest",
			       round, acked, s->announced);
	atomic_store(&s->stripes.acked, round);
	s->stands = round;
	s->lost_ns = 0;
	return 1;
}

int sender_take(void *arg, const struct wire_header *h, struct err *e)
{
	struct sender *s = arg;
	uint8_t body[8];
	int r;

	s->silent_ns = deadline_ms(connect_patience_ms(s));
	switch (h->type) {
	case WIRE_COMPLETE:
		if (!s->owing.collected || s->owing.complete || s->commit != COMMIT_RUNS)
			return 0;
		s->owing.complete = true;
		/* There may be more to push: a guest that has ended needs none of it. */
		push_stop(&s->owing.push);
		return 1;
	case WIRE_FAULTS:
		return s->owing.collected ? owing_take_faults(s, e) : 0;
	case WIRE_PONG:
		r = channel_body(s->ch, body, sizeof(body), e);
		return r ? r : 1;
	case WIRE_ACK:
		return sender_take_ack(s, h->arg, e);
	case WIRE_LOAD:
		if (!(s->features & WIRE_LOADS) || !s->streams)
			return 0;
		send_streams_load(s->streams, h->arg);
		return 1;
	case WIRE_HASHES:
	case WIRE_REFUSED:
		/* What it refuses comes before the ACK, or before it answers SWITCHOVER. */
		if (h->type == WIRE_REFUSED && s->answered &&
		    atomic_load(&s->stripes.acked) == s->announced)
			return 0;
		r = referring_take(&s->reuse, s->ch, h, e);
		if (r > 0 && !s->round)
			referring_again(&s->reuse, s->delta, s->source->map);
		return r;
	case WIRE_SWITCHOVER:
		if (!s->asked || s->answered)
			return 0;
		s->answered = true;
		return 1;
	default:
		return 0;
	}
}

int sender_listen(struct sender *s, struct err *e)
{
	struct wire_header h;
	int r = channel_recv(s->ch, &h, false, e);

	if (r)
		return r;
	r = sender_take(s, &h, e);
	if (!r)
		r = err_set(e, GW_BAD_PEER, EPROTO, "the receiver sent %s when no frame was due",
			    wire_type_name(h.type));
	return r < 0 ? r : 0;
}

int sender_ask_switchover(struct sender *s, struct err *e)
{
	struct wire_header h = {
		.type = WIRE_SWITCHOVER, .flags = s->owing.chosen ? WIRE_OWING : 0,
	};

	if (s->asked)
		return 0;
	s->asked = true;
	return channel_send(s->ch, &h, NULL, e);
}

int sender_await_switchover(struct sender *s, struct err *e)
{
	int r = 0;

	/* ACKs and PONGs prolong the wait: the receiver may have much RAM to write first. */
	while (!r && !s->answered)
		r = sender_listen(s, e);
	return r;
}

int sender_hear_reuse(struct sender *s, struct err *e)
{
	uint64_t pages[WIRE_BLOCKS_MAX];
	int r;

	for (unsigned int i = 0; i < s->vm.nblocks; i++)
		pages[i] = s->vm.blocks[i].pages;
	r = referring_begin(&s->reuse, s->ch, pages, s->vm.nblocks,
			    (uint64_t)s->o->reuse_mib << 20, e);
	/* The answer comes behind all that was sent on this connection. */
	if (!r)
		s->state_there = s->report->device_bytes;
	return r;
}

int sender_ask_reuse(struct sender *s, struct err *e)
{
	int r;

	/* What the receiver has said stays known. */
	if (!(s->features & WIRE_REUSES) || !s->o->reuse_mib || s->reuse.table || s->reuse_soon)
		return 0;
	r = referring_want(s->ch, e);
	return r ? r : sender_hear_reuse(s, e);
}

/* Each PONG brings a LOAD. */
static uint64_t sender_ping_ns(const struct sender *s)
{
	return s->round && s->limits.compress.kind == CODEC_AUTO && s->features & WIRE_LOADS ?
		       LOAD_NS : PING_NS;
}

void sender_ask_load(struct sender *s)
{
	uint64_t soon_ns = now_ns() + sender_ping_ns(s);

	if (s->next_ping_ns > soon_ns)
		s->next_ping_ns = soon_ns;
}

int sender_keep_alive(struct sender *s, struct err *e)
{
	if (now_ns() <= s->next_ping_ns)
		return 0;
	s->next_ping_ns = now_ns() + sender_ping_ns(s);
	return hello_send_ping(s->ch, ++s->ping_serial, realtime_ns(), e);
}

int sender_renew_lease(struct sender *s, struct err *e)
{
	return s->lease ? foreign_renew(&s->foreign, e) : 0;
}

int sender_idle(void *arg, struct err *e)
{
	struct sender *s = arg;
	int r = 0;

	sender_progress(s);
	sender_end_part(s);
	if (stop_requested())
		return stop_err(e);
	/* Each PING brings two frames. */
	for (unsigned int i = 0; i < FRAMES_MAX && !r && channel_readable(s->ch); i++)
		r = sender_listen(s, e);
	if (!r)
		r = stop_checks_look(s, e);
	if (!r && s->owing.answers && !s->owing.complete)
		r = answers_check(s->owing.answers, e);
	/* Streams may be silent for longer: this connection shows whether the receiver lives. */
	if (!r && s->owing.follows && !s->owing.complete && now_ns() > s->silent_ns)
		r = err_set_silent(e, "the receiver says nothing any more");
	if (!r && s->owing.follows && !s->owing.complete && now_ns() >= s->next_renew_ns) {
		s->next_renew_ns = now_ns() + STOP_SLICE_NS;
		r = owing_check_source(s, e);
	}
	/* Each time is a question to QEMU, and the streams may have more calls of this. */
	if (!r && s->round && s->round->kind == ROUND_PRECOPY && now_ns() >= s->next_renew_ns) {
		s->next_renew_ns = now_ns() + STOP_SLICE_NS;
		r = s->lease ? foreign_renew_soon(&s->foreign, e) : 0;
	}
	if (!r)
		sender_look(s);
	/* In the switchover nothing is referred to any more. */
	if (!r && s->round && s->round->kind == ROUND_PRECOPY)
		r = referring_ask(&s->reuse, s->ch, e);
	/* Only the streams send now; the receiver must not time out on the control connection. */
	return r ? r : sender_keep_alive(s, e);
}

static int sender_post_first(void *arg, const struct wire_header *h, const void *body,
			     struct err *e)
{
	struct sender *s = arg;

	return send_streams_post(s->streams, h, body, true, e);
}

struct frame_out sender_first_stream(struct sender *s)
{
	return (struct frame_out) { .send = sender_post_first, .arg = s };
}

static int sender_post_any(void *arg, const struct wire_header *h, const void *body, struct err *e)
{
	struct sender *s = arg;

	return send_streams_post(s->streams, h, body, false, e);
}

struct frame_out sender_any_stream(struct sender *s)
{
	return (struct frame_out) { .send = sender_post_any, .arg = s };
}

int sender_device(struct sender *s, const uint8_t *p, size_t len, struct err *e)
{
	static uint8_t body[WIRE_PLACE + WIRE_DEVICE_MAX];
	size_t most = s->spread ? SPREAD_BYTES : WIRE_DEVICE_MAX;
	int r = 0;

	s->report->device_bytes += len;
	while (len && !r) {
		uint32_t n = (uint32_t)(len < most ? len : most);
		struct wire_header h = {
			.type = WIRE_DEVICE, .flags = s->held ? WIRE_HELD : 0,
			.length = WIRE_PLACE + n,
		};

		wire_put_u64(body, s->device_at);
		memcpy(body + WIRE_PLACE, p, n);
		r = sender_post_any(s, &h, body, e);
		s->device_at += n;
		p += n;
		len -= n;
	}
	return r;
}

int sender_events(struct sender *s, char *status, size_t len, struct err *e)
{
	struct qmp_event ev;
	int r;

	while ((r = qmp_event(s->qmp, 0, &ev, e)) > 0) {
		const char *st = json_string_value(json_object_get(ev.data, "status"));

		/* Behind the commit point it is another client's. */
		if (!strcmp(ev.name, "STOP") && s->commit == COMMIT_PREPARED)
			s->stop_realtime_ns = ev.realtime_ns;
		s->resumed |= !strcmp(ev.name, "RESUME");
		if (status && !strcmp(ev.name, "MIGRATION") && st &&
		    !migration_has_ended(status)) {
			strncpy(status, st, len - 1);
			status[len - 1] = '\0';
		}
	}
	return r;
}

int sender_wait_qemu(struct sender *s, int stream, unsigned int ms, struct err *e)
{
	struct pollfd p[] = {
		{ .fd = stream, .events = POLLIN },
		{ .fd = qmp_fd(s->qmp), .events = POLLIN },
		{ .fd = channel_fd(s->ch), .events = POLLIN },
		{ .fd = s->vm.pidfd, .events = POLLIN },
	};

	/* What has been read ahead no poll() tells of. */
	poll(p, sizeof(p) / sizeof(p[0]), channel_readable(s->ch) ? 0 : (int)ms);
	if (stop_requested())
		return stop_err(e);
	if (p[3].revents)
		return err_set(e, GW_VM_GONE, ESRCH, "the source QEMU has exited");
	if (channel_readable(s->ch))
		return sender_listen(s, e);
	/* QEMU may be silent for long; the receiver must not time out on the connection. */
	return sender_keep_alive(s, e);
}
