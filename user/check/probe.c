// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "check/probe.h"
#include "net/sock.h"
#include "peer/hello.h"

int probe_open(const struct probe_question *question, struct channel **out,
	       struct probe_answer *answer, struct err *e)
{
	struct wire_header h;
	const struct hello_peer peer = {
		.addr = question->addr, .tls = question->tls, .engine = question->engine,
		.timeout_ms = question->timeout_ms,
	};
	uint64_t features = 0;
	uint8_t body[8];
	int r = hello(&peer, out, &features, e);

	answer->features = features;
	if (!r && features & WIRE_VIEWS)
		r = fit_ask(*out, question->qmp, question->vm, question->fit, e);
	if (!r)
		r = fit_choose_mode(question->fit, question->wish, question->qmp, question->vm,
				    question->running, question->mode, question->private, e);
	if (!r)
		r = hello_blocks(*out, WIRE_CHECK, features, question->vm, question->private, e);
	if (!r)
		r = channel_expect(*out, WIRE_CHECKED, &h, e);
	if (!r)
		r = channel_body(*out, body, sizeof(body), e);
	if (r)
		return r;
	if ((h.flags & WIRE_SAVE_MODE) && !question->private->n)
		return err_set(e, GW_BAD_PEER, EPROTO, "the receiver agrees to save mode, which was not offered");
	answer->streams = h.arg;
	answer->save_mode = h.flags & WIRE_SAVE_MODE;
	answer->qemu_version = (unsigned int)wire_get_u64(body);
	return 0;
}

int probe_delay(struct channel *ch, uint64_t *rtt_ns, int64_t *offset_ns, struct err *e)
{
	struct hello_pong best = { 0 };
	int r = hello_clocks(ch, &best, e);

	*rtt_ns = best.rtt_ns;
	*offset_ns = best.offset_ns;
	return r;
}

/* getrandom() gives up to 256 bytes whole; of more, a signal (also io_uring's) may cut it short. */
static int probe_random_bytes(uint8_t *to, size_t len)
{
	size_t n = 0;

	for (size_t at = 0; at < len; at += n) {
		n = len - at < 256 ? len - at : 256;
		if (getrandom(to + at, n, 0) != (ssize_t)n)
			return -errno;
	}
	return 0;
}

static void probe_loss(const struct sock_sent *before, const struct sock_sent *now,
		       struct loss *loss)
{
	struct losses l = { 0 };

	losses_add(&l, now->segments - before->segments, (int64_t)(now->again - before->again));
	*loss = (struct loss) { .share = losses_share(&l), .segment = now->segment };
}

int probe_speed(struct channel *ch, unsigned int ms, uint64_t *bytes_per_s, struct loss *loss,
		struct err *e)
{
	struct wire_header h = { .type = WIRE_PROBE, .length = WIRE_PROBE_MAX };
	uint8_t *body = malloc(WIRE_PROBE_MAX);
	uint64_t begin = now_ns(), sent = 0, ns;
	struct sock_sent before = { 0 }, after;
	struct hello_pong pong;
	int r = 0;

	/* Random bytes, as bytes that a tunnel can compress would measure the tunnel. */
	if (!body || probe_random_bytes(body, WIRE_PROBE_MAX))
		r = err_set(e, GW_INTERNAL, ENOMEM, "out of memory, or cannot get random numbers");
	while (!r && (!sent || now_ns() < begin + ms * 1000000ull)) {
		r = channel_send(ch, &h, body, e);
		sent += WIRE_HEADER + WIRE_PROBE_MAX;
		if (now_ns() < begin + ms * 500000ull)
			before = sock_sent(channel_fd(ch));
	}
	if (!r)
		r = hello_ping(ch, 0, &pong, e);
	ns = now_ns() - begin;
	after = sock_sent(channel_fd(ch));
	probe_loss(&before, &after, loss);
	*bytes_per_s = (uint64_t)((double)sent * 1e9 / (double)(ns ? ns : 1));
	free(body);
	return r;
}
