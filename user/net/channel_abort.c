// SPDX-License-Identifier: GPL-2.0-only
/* The last that is said on a connection, and how it gets there. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/stop.h"
#include "net/channel_internal.h"
#include "net/sock.h"

/*
 * Waits until the peer has closed its end, and drops what comes before that: closing with unread
 * data resets the connection, and the peer would never read the text. True: the last that came was
 * DONE.
 */
static bool channel_confirmed(struct channel *ch, uint64_t deadline)
{
	uint8_t buf[WIRE_HEADER + 4096];
	struct wire_header h;
	size_t kept = 0;	/* of a header, at the beginning of buf */

	while (now_ns() < deadline) {
		struct pollfd p = { .fd = ch->fd, .events = POLLIN };
		ssize_t n;

		if (!channel_readable(ch) && poll(&p, 1, 100) <= 0)
			continue;
		n = ch->engine->ops->take(ch->engine, buf + kept, sizeof(buf) - kept);
		if (n == -EAGAIN)
			continue;
		if (n <= 0)
			break;
		kept += (size_t)n;
		if (kept > WIRE_HEADER) {
			memmove(buf, buf + kept - WIRE_HEADER, WIRE_HEADER);
			kept = WIRE_HEADER;
		}
	}
	return kept == WIRE_HEADER && !wire_get_header(buf, &h) && h.type == WIRE_DONE;
}

#define ABORT_TURNS_NS	3000000000ull

/* There and back, twice; but a peer that is slow to acknowledge does not make it last for ever. */
static uint64_t channel_abort_turns_ns(const struct channel *ch)
{
	const uint64_t ns = 2 * sock_rtt_ns(ch->fd);

	return ns < ABORT_TURNS_NS ? ns : ABORT_TURNS_NS;
}

bool channel_abort_within(struct channel *ch, unsigned int ms, const struct err *why)
{
	uint8_t buf[WIRE_HEADER + WIRE_TEXT_MAX];
	size_t len = strnlen(why->text, WIRE_TEXT_MAX);
	struct wire_header h = { .type = WIRE_ABORT, .arg = why->exit, .length = (uint32_t)len };
	uint64_t deadline = deadline_ms(ms) + channel_abort_turns_ns(ch);
	struct err ignored = { 0 };

	/*
	 * In the middle of a frame the text would be taken for its body: end it first, if the peer
	 * still reads.
	 */
	while (!ch->broken && ch->queued && now_ns() < deadline)
		if (channel_engine_wait(ch, STOP_SLICE_NS, &ignored) || channel_reap(ch, &ignored))
			break;
	if (ch->broken || ch->queued)
		return false;
	wire_put_header(buf, &h);
	memcpy(buf + WIRE_HEADER, why->text, len);
	if (ch->engine->ops->say(ch->engine, buf, WIRE_HEADER + len, deadline))
		return false;
	if (ch->tls)
		tls_bye(ch->tls);
	shutdown(ch->fd, SHUT_WR);
	return channel_confirmed(ch, deadline);
}

bool channel_abort(struct channel *ch, const struct err *why)
{
	/*
	 * Less than a second is all that a cancellation may take, and the source still stands; but
	 * the text must get there, and the end of the connection come back.
	 */
	return channel_abort_within(ch, 400, why);
}
