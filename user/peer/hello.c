// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/say.h"
#include "base/stop.h"
#include "claim/own_ram.h"
#include "net/address.h"
#include "net/sock.h"
#include "peer/hello.h"
#include "plan/link.h"

#define PINGS_MAX	5
#define PINGS_MIN	HELLO_AT_ONCE
#define PINGS_NS	50000000ull

int hello_exchange(struct channel *ch, uint64_t *agreed, struct err *e)
{
	struct wire_header h = { .type = WIRE_HELLO,
				 .arg = WIRE_VERSION,
				 .length = WIRE_HELLO_BODY };
	uint8_t body[WIRE_HELLO_BODY];
	uint64_t lacking;
	int r;

	wire_put_u64(body, HELLO_FEATURES);
	wire_put_u64(body + 8, HELLO_NEEDS);
	r = channel_send(ch, &h, body, e);
	if (!r)
		r = channel_expect(ch, WIRE_HELLO, &h, e);
	if (!r)
		r = channel_body(ch, body, sizeof(body), e);
	if (r)
		return r;
	lacking = wire_get_u64(body + 8) & ~HELLO_FEATURES;
	if (lacking)
		return err_set(e, GW_VERSION, EPROTONOSUPPORT,
			       "the peer needs features that this godwit does not have (0x%llx): install the same version at both ends",
			       (unsigned long long)lacking);
	lacking = HELLO_NEEDS & ~wire_get_u64(body);
	if (lacking)
		return err_set(e, GW_VERSION, EPROTONOSUPPORT,
			       "the peer's godwit is older and does not have features that this one needs (0x%llx): install the same version at both ends",
			       (unsigned long long)lacking);
	*agreed = wire_get_u64(body) & HELLO_FEATURES;
	return 0;
}

static uint64_t hello_deadline(const struct hello_peer *peer, unsigned int ms)
{
	const uint64_t deadline = deadline_ms(ms);

	return peer->until_ns && peer->until_ns < deadline ? peer->until_ns : deadline;
}

/* The handshake, if there is to be one. An error closes fd, when the other end has read why. */
static int hello_secure(const struct hello_peer *peer, int fd, unsigned int ms, struct tls **out,
			struct err *e)
{
	int r;

	*out = NULL;
	if (!peer->tls)
		return 0;
	/* A path is no name that a certificate could have. */
	tls_creds_call(peer->tls, address_path(peer->addr) ? "localhost" : peer->addr);
	r = tls_open(peer->tls, fd, out, e);
	if (!r)
		r = tls_handshake(out, 1, hello_deadline(peer, ms), e);
	if (!r)
		return 0;
	tls_free(*out);
	*out = NULL;
	sock_close_read(fd);
	return r;
}

int hello(const struct hello_peer *peer, struct channel **out, uint64_t *agreed, struct err *e)
{
	unsigned int ms = peer->timeout_ms;
	int fd = address_connect(peer->addr, hello_deadline(peer, ms));
	struct tls *tls;
	int r;

	*out = NULL;
	if (fd == -EINVAL)
		return err_set(e, GW_USAGE, EINVAL, "\"%s\" is not " ADDRESS_FORM, peer->addr);
	if (fd == -EINTR)
		return stop_err(e);
	if (fd < 0)
		return err_set(e, GW_UNREACHABLE, -fd, "cannot connect to %s: %s; start \"godwit receive --listen\" there, or correct the address",
			       peer->addr, address_error(fd));
	ms = link_patience_ms(ms, sock_least_rtt_ns(fd));
	sock_tune(fd, ms);
	r = hello_secure(peer, fd, ms, &tls, e);
	if (!r)
		r = channel_new_tls(fd, tls, peer->engine, ms, out, e);
	if (r)
		return r;
	channel_set_end(*out, peer->until_ns);
	return hello_exchange(*out, agreed, e);
}

int hello_ready(struct channel *ch, uint64_t features, struct wire_header *h, struct err *e)
{
	uint8_t clock[8];
	bool told = false;
	int r = channel_recv(ch, h, false, e);

	while (!r && h->type == WIRE_PONG && features & WIRE_EMPTIES) {
		if (!told)
			say("the receiver empties the destination's RAM");
		told = true;
		r = channel_body(ch, clock, sizeof(clock), e);
		if (!r)
			r = channel_recv(ch, h, false, e);
	}
	if (!r && h->type != WIRE_READY)
		return err_set(e, GW_BAD_PEER, EPROTO, "the receiver sent %s where READY was due",
			       wire_type_name(h->type));
	return r;
}

int hello_send_ping(struct channel *ch, uint32_t serial, uint64_t realtime, struct err *e)
{
	struct wire_header h = { .type = WIRE_PING, .arg = serial, .length = 8 };
	uint8_t body[8];

	wire_put_u64(body, realtime);
	return channel_send(ch, &h, body, e);
}

/* What a PONG's body, which has just come, tells of a PING that left at these times. */
static struct hello_pong hello_pong_of(const uint8_t *body, uint64_t mono_ns, uint64_t real_ns)
{
	struct hello_pong pong = { .rtt_ns = now_ns() - mono_ns };

	pong.offset_ns = (int64_t)(wire_get_u64(body) - real_ns - pong.rtt_ns / 2);
	return pong;
}

int hello_ping(struct channel *ch, uint32_t serial, struct hello_pong *pong, struct err *e)
{
	uint64_t mono = now_ns(), real = realtime_ns();
	struct wire_header h;
	uint8_t body[8];
	int r = hello_send_ping(ch, serial, real, e);

	if (!r)
		r = channel_expect(ch, WIRE_PONG, &h, e);
	if (!r)
		r = channel_body(ch, body, sizeof(body), e);
	if (!r)
		*pong = hello_pong_of(body, mono, real);
	return r;
}

int hello_clocks(struct channel *ch, struct hello_pong *best, struct err *e)
{
	uint64_t end = now_ns() + PINGS_NS;
	int r = 0;

	best->rtt_ns = UINT64_MAX;
	for (uint32_t i = 0; i < PINGS_MAX && !r && (i < PINGS_MIN || now_ns() < end); i++) {
		struct hello_pong pong;

		r = hello_ping(ch, i, &pong, e);
		if (!r && pong.rtt_ns < best->rtt_ns)
			*best = pong;
	}
	return r;
}

bool hello_is_long(uint64_t rtt_ns)
{
	return rtt_ns > PINGS_NS / PINGS_MAX;
}

int hello_ask_clocks(struct channel *ch, struct hello_asked *asked, struct err *e)
{
	int r = 0;

	for (asked->n = 0; !r && asked->n < HELLO_AT_ONCE; asked->n++) {
		asked->mono_ns[asked->n] = now_ns();
		asked->real_ns[asked->n] = realtime_ns();
		/* From 1 on: 0 is no PING's of these. */
		r = hello_send_ping(ch, asked->n + 1, asked->real_ns[asked->n], e);
	}
	return r;
}

int hello_take_pong(struct channel *ch, const struct wire_header *h, struct hello_asked *asked,
		    struct hello_pong *best, struct err *e)
{
	const uint32_t i = h->arg - 1;
	struct hello_pong pong;
	uint8_t body[8];
	int r = channel_body(ch, body, sizeof(body), e);

	if (r)
		return r;
	if (i >= HELLO_AT_ONCE || !asked->mono_ns[i])
		return err_set(e, GW_BAD_PEER, EPROTO, "the receiver sent PONG without a PING");
	pong = hello_pong_of(body, asked->mono_ns[i], asked->real_ns[i]);
	if (pong.rtt_ns < best->rtt_ns)
		*best = pong;
	asked->mono_ns[i] = 0;
	asked->n--;
	return 0;
}

static int hello_send_table(struct channel *ch, enum wire_type type, const struct wire_block *b,
			    unsigned int n, struct err *e)
{
	struct wire_header h = { .type = (uint16_t)type,
				 .arg = n,
				 .length = (uint32_t)wire_blocks_size(b, n) };
	uint8_t *body = malloc(h.length);
	int r;

	if (!body)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	wire_put_blocks(body, b, n);
	r = channel_send(ch, &h, body, e);
	free(body);
	return r;
}

int hello_read_table(struct channel *ch, const struct wire_header *h, const char *what,
		     struct wire_block **out, struct err *e)
{
	uint8_t *body = malloc(h->length);
	int r;

	*out = calloc(WIRE_BLOCKS_MAX, sizeof(**out));
	r = body && *out ? channel_body(ch, body, h->length, e) : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	if (!r && wire_get_blocks(body, h->length, *out, h->arg))
		r = err_set(e, GW_BAD_PEER, EPROTO, "the sender's table of %s is malformed", what);
	free(body);
	return r;
}

static int hello_send_private_ram(struct channel *ch, const struct private_ram *ram, struct err *e)
{
	struct wire_block *b = calloc(ram->n, sizeof(*b));
	int r;

	if (!b)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	for (unsigned int i = 0; i < ram->n; i++) {
		b[i].pages = ram->b[i].pages;
		b[i].address = WIRE_NO_ADDRESS;
		b[i].page_size = PAGE_BYTES;
		memcpy(b[i].name, ram->b[i].name, sizeof(b[i].name));
	}
	r = hello_send_table(ch, WIRE_PRIVATE_BLOCKS, b, ram->n, e);
	free(b);
	return r;
}

int hello_blocks(struct channel *ch, enum wire_type type, uint64_t features, const struct vm *vm,
		 const struct private_ram *ram, struct err *e)
{
	struct wire_block *b = calloc(vm->nblocks, sizeof(*b));
	int r = b ? 0 : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");

	if (!r && features & WIRE_OWN_RAM)
		r = own_ram_send(ch, vm, e);
	if (!r && ram->n)
		r = hello_send_private_ram(ch, ram, e);
	for (unsigned int i = 0; !r && i < vm->nblocks; i++) {
		b[i].pages = vm->blocks[i].pages;
		b[i].address = vm->blocks[i].address;
		b[i].page_size = vm->blocks[i].page_size;
		memcpy(b[i].name, vm->blocks[i].name, sizeof(b[i].name));
	}
	if (!r)
		r = hello_send_table(ch, type, b, vm->nblocks, e);
	free(b);
	return r;
}
