/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Frames over one TCP connection, by an engine (engine.h). A channel belongs to the thread that
 * made it.
 *
 * Sending RAM is asynchronous: up to CHANNEL_FRAMES frames wait or are under way while the next is
 * prepared; all other frames go out after them, in order. Every wait for a whole header or body
 * ends at the channel's timeout (GW_TIMEOUT), when the peer closes (GW_LINK_LOST), on a signal
 * (GW_CANCELLED), or when it is interrupted (-ECANCELED, and *e is left alone: the caller that
 * interrupts knows why); after any error the channel only serves channel_last_words(),
 * channel_abort() and channel_free().
 */
#ifndef GODWIT_CHANNEL_H
#define GODWIT_CHANNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"
#include "net/engine.h"
#include "page/page.h"
#include "tls/tls.h"
#include "wire/extent.h"
#include "wire/wire.h"

#define CHANNEL_FRAMES	4
#define CHANNEL_OPEN	2	/* frames under construction at once, at most */
/*
 * Page bytes of a frame, less than the protocol allows: what pread() has put there should still be
 * in the CPU's cache when the socket takes it.
 */
#define FRAME_BYTES	(256u << 10)
#define FRAME_PAGES	(FRAME_BYTES / PAGE_BYTES)
#define FRAME_PARTS	(FRAME_BYTES / WIRE_PART)	/* pages of which it can hold a part */

struct channel;

/**
 * struct ram_frame - a RAM frame under construction
 * @extents: described so far
 * @iov: the page bytes of the WIRE_DATA and WIRE_PARTS extents, in @buf or where they stay as long
 * @bytes: sum of iov; @pages: that they are of, whole or in part
 * @used: bytes of @buf that hold them, or could, and what lies between them
 * @buf: FRAME_BYTES, until the frame has been pushed
 * @same: pages of the extents of one byte
 * @parts: of each page of the WIRE_PARTS extents, which parts; @nr_parts: if any, a DELTA frame
 * @codec: 0, or its number: a frame whose block is in @packed, so it is PACKED or DELTA
 * @packed: as many bytes as @buf, for as long
 * @references: as many are in @buf, and the frame is of these and nothing else; 0: a RAM frame
 */
struct ram_frame {
	unsigned int nr;
	unsigned int nr_iov;
	uint32_t bytes;
	uint32_t used;
	struct wire_extent extents[WIRE_EXTENTS_MAX];
	struct iovec iov[FRAME_PAGES];
	uint8_t *buf;
	uint32_t same;
	unsigned int pages, nr_parts;
	uint8_t parts[FRAME_PARTS];
	unsigned int codec, references;
	uint32_t packed_bytes;
	uint8_t *packed;
};

/*
 * Takes fd over. timeout_ms: how long the peer may be silent when it should speak, or refuse to
 * listen.
 */
int channel_new(int fd, const struct engine_ops *engine, unsigned int timeout_ms,
		struct channel **out, struct err *e);
/*
 * The same with a TLS session whose handshake is done, which is taken over too, also when this
 * fails. NULL: none.
 */
int channel_new_tls(int fd, struct tls *tls, const struct engine_ops *engine,
		    unsigned int timeout_ms, struct channel **out, struct err *e);
const struct tls *channel_tls(const struct channel *ch);
/* From the next wait on. */
void channel_set_timeout(struct channel *ch, unsigned int timeout_ms);
/* From then on each wait fails (-ETIMEDOUT, *e is left alone), whatever comes; 0: no such limit. */
void channel_set_end(struct channel *ch, uint64_t until_ns);
/* The same, within a timeout from now: what is still to come is no more than a confirmation. */
void channel_set_last(struct channel *ch);
void channel_free(struct channel *ch);		/* NULL is fine; ends what is under way */
int channel_fd(const struct channel *ch);	/* for poll */
uint64_t channel_sent(const struct channel *ch);	/* bytes, headers included */
/* Before the first frame; without it, and with TLS, none is zero-copy. */
void channel_zero_copy(struct channel *ch, enum engine_zero_copy how);
/*
 * Zero-copy sends that the peer has acknowledged; copied: those that the kernel copied after all.
 */
struct zero_copy_count {
	uint64_t sends, copied;
};
struct zero_copy_count channel_zero_copies(const struct channel *ch);
/* Waits end when *flag is true, within STOP_SLICE_NS. NULL: no more. */
void channel_interrupt(struct channel *ch, const atomic_bool *flag);

/* An empty frame; waits for one to become free. The caller has CHANNEL_OPEN of them at most. */
int channel_frame(struct channel *ch, struct ram_frame **out, struct err *e);
/* Sends a frame that channel_frame() gave. An empty one is dropped. */
int channel_push(struct channel *ch, struct ram_frame *f, struct err *e);
/* Frames that wait for the socket, or are under way. */
unsigned int channel_queued(const struct channel *ch);
/* Their bytes, but for what has left of the first of them. */
uint64_t channel_queued_bytes(const struct channel *ch);
/* Waits until then, in CLOCK_MONOTONIC; what is under way goes on. */
int channel_pause(struct channel *ch, uint64_t until_ns, struct err *e);
/* Sends what is queued as far as it goes without waiting: for a thread that computes for long. */
int channel_go_on(struct channel *ch, struct err *e);
/* Waits until all frames are with the kernel. */
int channel_flush(struct channel *ch, struct err *e);
/* One other frame; h->length bytes of body. */
int channel_send(struct channel *ch, const struct wire_header *h, const void *body, struct err *e);

/*
 * The next header, checked; an ABORT is read whole and becomes the error. patient: the peer may
 * take any time it likes, only the end of the connection or a signal ends the wait.
 */
int channel_recv(struct channel *ch, struct wire_header *h, bool patient, struct err *e);
/*
 * For frames that may come unasked, as PONG: take() serves one (1, or -errno), or leaves it (0).
 */
void channel_unasked(struct channel *ch,
		     int (*take)(void *arg, const struct wire_header *h, struct err *e), void *arg);
/*
 * channel_recv() of the first frame that take() leaves; those that it takes prolong the wait, up to
 * four timeouts.
 */
int channel_recv_asked(struct channel *ch, struct wire_header *h, struct err *e);
/* The same, and it must be this type. */
int channel_expect(struct channel *ch, enum wire_type type, struct wire_header *h, struct err *e);
int channel_body(struct channel *ch, void *buf, size_t len, struct err *e);
/* Scatters; iov is used up. */
int channel_bodyv(struct channel *ch, struct iovec *iov, unsigned int n, struct err *e);
/*
 * From now on what has come is not searched for an ABORT when a send fails, and channel_recv() goes
 * on with it.
 */
void channel_keep_unread(struct channel *ch);
/* Was an error the peer's ABORT? */
bool channel_aborted(const struct channel *ch);
/* The exit status that it gave, whatever that means on this side; 0: it was not. */
uint32_t channel_abort_status(const struct channel *ch);
/* Has the peer said something, or closed? Does not wait. */
bool channel_readable(const struct channel *ch);

/*
 * Something else failed, and the peer may be saying why: waits so long for its ABORT, or for its
 * end, and sets *e. Other frames are dropped. What the peer says has left with the end of the
 * connection that has failed, and is as long on its way: the round trip does not count.
 */
void channel_last_words(struct channel *ch, unsigned int ms, struct err *e);
/*
 * Tells the peer why we give up, if that is possible, and lets it read that before the connection
 * goes. Return: the peer has confirmed (DONE) that it has read that.
 */
bool channel_abort(struct channel *ch, const struct err *why);
/* The same where nothing waits: the peer, or a link that is busy, may take so long. */
bool channel_abort_within(struct channel *ch, unsigned int ms, const struct err *why);

#endif
