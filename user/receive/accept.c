// SPDX-License-Identifier: GPL-2.0-only
/*
 * Accepts a sender: the first peer that connects and sends BLOCKS. A peer that sends CHECK or ASK
 * gets its answer, and any other peer is rejected.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/say.h"
#include "base/stop.h"
#include "claim/own_ram.h"
#include "claim/owners.h"
#include "fit/fit.h"
#include "net/address.h"
#include "net/sock.h"
#include "peer/hello.h"
#include "plan/link.h"
#include "receive/receiver_internal.h"
#include "vmm/mtree.h"

#define GREETING_MS	5000u
#define VIEWS_MAX	3u	/* WIRE_GLANCE, WIRE_BRIEF, and all features if that differs */

/* A UNIX socket of ours is for its owner only; one that was passed has whatever mode it has. */
static bool accept_lets_others_in(const struct receiver *r)
{
	const char *path = address_path(r->o->listen);
	struct stat st;

	return path && r->o->listen_fd >= 0 && (stat(path, &st) || st.st_mode & 0066);
}

static int accept_open_listener(struct receiver *r, struct err *e)
{
	int local = address_is_local(r->o->listen);

	if (local < 0)
		return err_set(e, GW_USAGE, EINVAL, "\"%s\" is not " ADDRESS_FORM, r->o->listen);
	if (accept_lets_others_in(r) && !r->o->insecure && !r->o->tls)
		return err_set(e, GW_USAGE, EPERM,
			       "other users can connect to %s, and without credentials the connection is neither encrypted nor authenticated: set SocketMode=0600 in the socket unit, give credentials (--tls-psk, --tls-creds), or --insecure",
			       r->o->listen);
	if (!local && !r->o->insecure && !r->o->tls)
		return err_set(e, GW_USAGE, EPERM,
			       "other hosts can reach %s, and without credentials the connection is neither encrypted nor authenticated: " TLS_HOW "; or listen on a loopback address or a UNIX socket and tunnel (ssh -L), or give --insecure on a network that you trust",
			       r->o->listen);
	r->lfd = r->o->listen_fd >= 0 ? r->o->listen_fd : address_listen(r->o->listen);
	if (r->lfd < 0)
		return err_set(e, GW_UNREACHABLE, -r->lfd, "cannot listen on %s: %s", r->o->listen,
			       address_error(r->lfd));
	return 0;
}

static void accept_say_where(const struct receiver *r)
{
	say_out("listening on %s", r->o->listen);
}

int receiver_listen(struct receiver *r, struct err *e)
{
	int ret = accept_open_listener(r, e);

	if (!ret)
		accept_say_where(r);
	return ret;
}

/* A peer that connects and sends nothing keeps other peers out meanwhile. */
static unsigned int accept_timeout_ms(const struct receiver *r, uint64_t until_ns)
{
	/* A stranger could make the round trip long, so that counts for less than GREETING_MS. */
	unsigned int ms = receiver_patience_ms(r) < GREETING_MS ? receiver_patience_ms(r) :
								  GREETING_MS;
	uint64_t left_ms, now = now_ns();

	if (!r->waits)
		return ms;
	/* A stranger that comes last must not prolong the wait for the sender. */
	left_ms = until_ns > now ? (until_ns - now) / 1000000 + 1 : 1;
	return left_ms < ms ? (unsigned int)left_ms : ms;
}

unsigned int receiver_patience_ms(const struct receiver *r)
{
	return link_patience_ms(r->o->timeout_ms, r->rtt_ns);
}

/* Waits until a peer connects, or until then. Return: the descriptor. */
static int accept_connection(struct receiver *r, uint64_t until_ns, struct err *e)
{
	int fd = -EAGAIN;

	while (fd == -EAGAIN) {
		/* When the migration is over the verdict stands if QEMU exits, too. */
		struct pollfd p[] = {
			{ .fd = r->lfd, .events = POLLIN },
			{
				.fd = r->commit == COMMIT_PREPARED ? r->vm.pidfd : -1,
				.events = POLLIN,
			},
		};

		poll(p, 2, STOP_SLICE_NS / 1000000);
		if (until_ns && now_ns() > until_ns)
			return -ETIMEDOUT;
		if (stop_requested())
			fd = stop_err(e);
		else if (p[1].revents)
			fd = err_set(e, GW_VM_GONE, ESRCH, "the destination QEMU has exited");
		else if (p[0].revents)
			fd = sock_accept(r->lfd);
	}
	if (fd < 0)
		return err_set(e, GW_UNREACHABLE, -fd, "cannot accept a connection: %s", strerror(-fd));
	r->rtt_ns = sock_least_rtt_ns(fd);
	sock_tune(fd, receiver_patience_ms(r));
	return fd;
}

/* What the peer says first, which stays there. */
static enum tls_greeting accept_peek(int fd, uint64_t deadline)
{
	enum tls_greeting says;

	while ((says = tls_peek(fd)) == TLS_SAYS_NOTHING && now_ns() < deadline &&
	       !stop_requested()) {
		uint64_t slice = now_ns() + STOP_SLICE_NS;

		/* A few bytes that say nothing stay, and poll() tells of them at once. */
		if (!sock_wait(fd, POLLIN, slice < deadline ? slice : deadline) &&
		    tls_peek(fd) == TLS_SAYS_NOTHING)
			nap_ms(10);
	}
	return says;
}

/*
 * The handshake, if there is to be one. *out NULL: the peer is spoken to in the clear, also to tell
 * it what is wrong.
 */
static int accept_secure(struct receiver *r, int fd, uint64_t deadline, struct tls **out,
			 struct err *e)
{
	enum tls_greeting says = accept_peek(fd, deadline);
	int ret;

	*out = NULL;
	if (says == TLS_SAYS_NOTHING)
		return err_set_silent(e, "it said nothing");
	if (!r->o->tls)
		return says != TLS_SAYS_HELLO ? 0 :
		       err_set(e, GW_TLS, EPROTO, "the sender uses TLS, and this receiver does not: give it --tls-creds or --tls-psk, or leave TLS out at the sender with --insecure on a network that you trust");
	if (says == TLS_SAYS_GODWIT)
		return err_set(e, GW_TLS, EPROTO, "this receiver uses TLS, and the sender does not: give it --tls-creds or --tls-psk");
	if (says != TLS_SAYS_HELLO)
		return err_set(e, GW_TLS, EPROTO, "it does not speak TLS");
	ret = tls_open(r->o->tls, fd, out, e);
	return ret ? ret : tls_handshake(out, 1, deadline, e);
}

/* A channel on the connection that has just come. One time limit for the handshake and HELLO. */
static int accept_channel(struct receiver *r, int fd, unsigned int ms, struct err *e)
{
	uint64_t now, deadline = deadline_ms(ms);
	struct err none = { 0 };
	struct tls *tls;
	int ret = accept_secure(r, fd, deadline, &tls, e);

	if (ret && (tls || e->exit == GW_TIMEOUT)) {
		tls_free(tls);
		/* It has been told, by an alert; but one that is silent is not waited for again. */
		if (e->exit == GW_TIMEOUT)
			close(fd);
		else
			sock_close_read(fd);
		return ret;
	}
	now = now_ns();
	ms = deadline > now ? (unsigned int)((deadline - now) / 1000000) + 1 : 1;
	if (channel_new_tls(fd, tls, r->o->engine, ms, &r->ch, &none) && !ret) {
		*e = none;
		ret = -ENOMEM;
	}
	return ret;
}

/*
 * Decides on save mode: if this QEMU cannot load a saved state the sender uses migrate mode, or
 * gives up.
 */
static int accept_private_ram(struct receiver *r, const struct wire_header *h, struct err *e)
{
	struct err why = { 0 };
	int ret;

	/* An earlier connection may have filled it. */
	private_ram_free(&r->private);
	ret = private_ram_find(r->qmp, &r->vm, &r->private, &why);

	if (ret)
		r->private.has_addresses = false;
	ret = private_ram_compare(r->ch, h, &r->private, &r->save_mode, &why, e);
	if (!ret && r->save_mode)
		ret = mtree_query(r->qmp, &r->vm, e);
	if (!ret && r->save_mode)
		r->save_mode = !mtree_check(&r->vm, &why);
	if (!ret && !r->save_mode)
		say_out("this QEMU cannot load a device state in save mode: %s", why.text);
	return ret;
}

static void accept_reject(struct receiver *r, const struct err *why)
{
	/* The sender's ABORT says why: the guest does not fit here, or the operator cancelled. */
	bool gave_up = r->ch && channel_aborted(r->ch);

	if (r->ch)
		channel_abort(r->ch, why);
	channel_free(r->ch);
	r->ch = NULL;
	say_out("%s: %s",
	       gave_up ? "a sender gave up before the migration began" :
	       why->exit == GW_TLS || why->exit == GW_GUEST_LOST || why->exit == GW_NO_MIGRATION ?
	       "rejected a connection" :
	       "rejected a connection that is not a godwit sender", why->text);
}

static int accept_hello(struct receiver *r, int fd, uint64_t until_ns, struct wire_header *h,
			struct err *e)
{
	unsigned int ms = accept_timeout_ms(r, until_ns);
	int ret = accept_channel(r, fd, ms, e);

	if (!ret)
		ret = hello_exchange(r->ch, &r->features, e);
	if (ret)
		return ret;
	channel_set_timeout(r->ch, ms);
	return channel_recv(r->ch, h, false, e);
}

/*
 * The receiver rejects a peer that does not say HELLO as we do (a port scan, a godwit of another
 * version), and goes on listening: the peer has changed nothing, and a sender may be about to
 * connect. A peer's ABORT ends only its own connection, even one that says "cancelled".
 */
int receiver_greet(struct receiver *r, struct wire_header *h, uint64_t come_ns, uint64_t until_ns,
		   struct err *e)
{
	for (;;) {
		struct err why = { 0 };
		int fd = accept_connection(r, come_ns, e);

		if (fd < 0)
			return fd;
		if (!accept_hello(r, fd, until_ns, h, &why))
			return 0;
		if (stop_requested())
			return stop_err(e);
		accept_reject(r, &why);
	}
}

/*
 * The peer's request: BLOCKS, CHECK or ASK, which ASK_VIEW, RAM_FILES and PRIVATE_BLOCKS may
 * precede.
 */
static int accept_request(struct receiver *r, struct wire_header *h, struct err *e)
{
	int ret = 0;

	r->save_mode = false;
	r->source_ram = NULL;
	for (unsigned int asked = 0; !ret && asked < VIEWS_MAX && h->type == WIRE_ASK_VIEW;
	     asked++) {
		/* The sender views its own QEMU meanwhile, and compares afterwards. */
		channel_set_timeout(r->ch, receiver_patience_ms(r));
		ret = fit_answer(r->ch, r->qmp, &r->vm, &r->known, h->flags, e);
		if (!ret)
			ret = channel_recv(r->ch, h, false, e);
	}
	if (ret)
		return ret;
	if (h->type == WIRE_RAM_FILES) {
		ret = own_ram_receive(r->ch, h, &r->vm, &r->source_ram, e);
		if (!ret)
			ret = channel_recv(r->ch, h, false, e);
	}
	if (ret)
		return ret;
	if (h->type == WIRE_PRIVATE_BLOCKS) {
		ret = accept_private_ram(r, h, e);
		if (!ret)
			ret = channel_recv(r->ch, h, false, e);
	}
	if (h->type == WIRE_RECOVER)
		return ret ? ret : recover_refuse(r, e);	/* 0: r->ch is closed */
	if (h->type == WIRE_RECONNECT)
		return err_set(e, GW_NO_MIGRATION, ESRCH, "this receiver waits for no sender that has lost its link: the receiver that did has ended, begin the migration anew");
	if (!ret && h->type != WIRE_BLOCKS && h->type != WIRE_CHECK && h->type != WIRE_ASK)
		ret = err_set(e, GW_BAD_PEER, EPROTO, "the sender sent %s after HELLO",
			      wire_type_name(h->type));
	return ret;
}

/* Serves peers until one wants to migrate: *h is BLOCKS. */
static int accept_migration(struct receiver *r, struct wire_header *h, struct err *e)
{
	int ret;

	while (!(ret = receiver_greet(r, h, 0, 0, e))) {
		struct err why = { 0 };

		if (accept_request(r, h, &why)) {
			if (stop_requested())
				return stop_err(e);
			accept_reject(r, &why);
		} else if (h->type == WIRE_CHECK) {
			check_reply(r, h);
		} else if (h->type == WIRE_ASK) {
			verdict_reply(r);
		} else if (h->type != WIRE_RECOVER) {
			channel_set_timeout(r->ch, receiver_patience_ms(r));
			r->verdicts = r->features & WIRE_VERDICTS;
			break;
		}
	}
	return ret;
}

/*
 * A sender that has come meanwhile waits, and what fails here fails again when it asks. -EINTR: a
 * stop request came meanwhile.
 */
static int accept_learn(struct receiver *r, struct err *e)
{
	struct err ignored = { 0 };

	view_learn(r->qmp, &r->known, &ignored);
	return stop_requested() ? stop_err(e) : 0;
}

/* It learns before it says that it listens: then it serves senders and stop requests at once. */
int accept_sender(struct receiver *r, struct err *e)
{
	struct wire_header h;
	int ret = accept_open_listener(r, e);

	if (!ret)
		ret = accept_learn(r, e);
	if (!ret) {
		accept_say_where(r);
		ret = accept_migration(r, &h, e);
	}
	return ret ? ret : agree_ram(r, &h, e);
}
