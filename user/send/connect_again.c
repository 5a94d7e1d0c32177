// SPDX-License-Identifier: GPL-2.0-only
/*
 * The link is lost in pre-copy, and the receiver has been told to wait (KEEP): the sender connects
 * again, for --reconnect S, as receive/reconnect.c expects it.
 *
 * No page may be lost with the link. The answer to RECONNECT names the round that stands at the
 * receiver. What went later may have been placed or not, and is dirty again (stripes.h); so is what
 * was taken for a stream that failed. The receiver reads no old connection once it has answered, so
 * no old byte is placed after a newer one.
 *
 * What was sent beside RAM is not sent again once a round has begun: QEMU's private RAM goes before
 * the rounds in save mode, and the first part of QEMU's stream before the round of --pause. On each
 * connection that was before the end of a round, so the receiver has it if it has acknowledged one,
 * or has answered what was asked behind it; until then a loss ends the migration. Ahead of the
 * first round there is only the private RAM, which goes again (send_save_ahead()).
 */
#include <errno.h>

#include "base/clock.h"
#include "base/say.h"
#include "base/stop.h"
#include "peer/hello.h"
#include "proc/proc_io.h"
#include "send/sender_internal.h"

#define AGAIN_MS	500u	/* between two tries to connect again */
#define LEAST_MS	1000u	/* for the last of them */

/* Was anything sent beside RAM that may not have come? A frame of that is never empty. */
static bool connect_may_lack_state(const struct sender *s)
{
	return s->number && s->report->device_bytes > s->state_there &&
	       !atomic_load(&s->stripes.acked);
}

/* Has the link been lost, and does the receiver wait for us? Not if it has said why it gives up. */
static bool connect_may(struct sender *s, struct err *e)
{
	struct err said = { 0 };

	if (!s->keeps || !err_is_link(e) || stop_requested())
		return false;
	if (connect_may_lack_state(s))
		return false;
	if (!s->ch)
		return true;
	if (!channel_aborted(s->ch))
		channel_last_words(s->ch, 1000, &said);
	if (channel_aborted(s->ch) && said.exit)
		*e = said;
	return !channel_aborted(s->ch);
}

/*
 * The receiver may have got rounds whose ACK was lost. Of those before the last loss it never gets
 * one again.
 */
static bool connect_may_stand(const struct sender *s, uint32_t round)
{
	return round == s->stands ||
	       (round > atomic_load(&s->stripes.acked) && round <= s->announced);
}

static int connect_once(struct sender *s, unsigned int ms, uint32_t *stands, struct err *e)
{
	struct wire_header h = {
		.type = WIRE_RECONNECT, .arg = s->number, .length = WIRE_SECRET,
	};
	const struct hello_peer peer = {
		.addr = s->peer, .tls = s->o->tls, .engine = s->o->engine, .timeout_ms = ms,
	};
	uint8_t secret[WIRE_SECRET];
	uint64_t features = 0;
	int r = hello(&peer, &s->ch, &features, e);

	if (!r && !(features & WIRE_RECONNECTS))
		r = err_set(e, GW_VERSION, EPROTO, "another receiver listens there now, of an older version");
	if (!r)
		r = codec_check(&s->limits.compress, features, e);
	/* Until then "set" is answered by what was offered before. */
	if (!r)
		s->features = features;
	if (!r)
		r = channel_send(s->ch, &h, s->token, e);
	if (!r)
		r = channel_expect(s->ch, WIRE_RECONNECT, &h, e);
	if (!r)
		r = channel_body(s->ch, secret, sizeof(secret), e);
	if (!r && !connect_may_stand(s, h.arg))
		r = err_set(e, GW_BAD_PEER, EPROTO, "the receiver says that it has round %u, after round %u, and round %u was the latest",
			    h.arg, s->stands, s->announced);
	if (r)
		return r;
	*stands = h.arg;
	return connect_open_streams(s, secret, s->report->streams, e);
}

/*
 * The link is back, and the receiver reads no old connection any more. What it may lack is dirty
 * again (stripes.h), so as far as rounds go nothing is under way.
 */
static void connect_resume(struct sender *s, uint32_t stands)
{
	stripes_lost(&s->stripes, s->delta, stands, s->source->map);
	s->stands = stands;
	s->announced = s->number;
	atomic_store(&s->stripes.acked, s->number);
	s->asked = s->answered = s->fits = false;
	channel_unasked(s->ch, sender_take, s);
	s->report->reconnects++;
	s->again_ns = now_ns();
	s->again_bytes = sender_bytes(s);
	say("connected again");
}

bool connect_nap(struct sender *s, bool needs_qemu, uint64_t deadline)
{
	uint64_t end = deadline_ms(AGAIN_MS);

	while (now_ns() < end) {
		if (stop_requested() || now_ns() > deadline)
			return false;
		if (needs_qemu && proc_ended(s->vm.pidfd))
			return false;
		sender_progress(s);
		nap_ms(AGAIN_MS / 5);
	}
	return true;
}

/* Tries until it is connected again: 0. */
static int connect_try(struct sender *s, uint32_t *stands, struct err *e)
{
	uint64_t deadline, now = now_ns();
	int r;

	/*
	 * A link that comes back, and carries no round, is as good as lost. The time is the
	 * operator's, round trips included: both ends keep to the same.
	 */
	if (!s->lost_ns)
		s->lost_ns = now;
	deadline = s->lost_ns + s->o->reconnect_s * 1000000000ull;
	if (now > deadline) {
		sender_disconnect(s);
		return err_set(e, GW_LINK_LOST, ETIME, "the link came back, but carried no round");
	}
	do {
		unsigned int ms = s->o->timeout_ms;

		sender_disconnect(s);
		now = now_ns();
		if (now + ms * 1000000ull > deadline)
			ms = now < deadline ? (unsigned int)((deadline - now) / 1000000) : 0;
		*e = (struct err) { 0 };
		r = connect_once(s, ms > LEAST_MS ? ms : LEAST_MS, stands, e);
		if (!r)
			return 0;
	} while ((e->exit == GW_UNREACHABLE || e->exit == GW_LINK_LOST || e->exit == GW_TIMEOUT) &&
		 connect_nap(s, true, deadline));
	sender_disconnect(s);
	return r;
}

int connect_again(struct sender *s, int r, struct err *e)
{
	struct err lost, why = { 0 };
	uint32_t stands = 0;

	if (!connect_may(s, e))
		return r;
	lost = *e;
	*e = (struct err) { 0 };
	say("%s: trying to connect again for %u s", lost.text,
		s->o->reconnect_s);
	if (!connect_try(s, &stands, &why)) {
		connect_resume(s, stands);
		return 0;
	}
	if (stop_requested())
		return stop_err(e);
	if (proc_ended(s->vm.pidfd))
		return err_set(e, GW_VM_GONE, ESRCH, "the source QEMU has exited");
	if (why.exit == GW_UNREACHABLE || why.exit == GW_TIMEOUT)
		why.exit = GW_LINK_LOST;
	return err_set(e, why.exit, EREMOTEIO, "%.400s; tried to connect again for up to %u s: %.400s",
		       lost.text, s->o->reconnect_s, why.text);
}
