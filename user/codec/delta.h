/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What of a page that is sent again has changed since it was sent last. Without I/O, but for
 * getrandom().
 *
 * Of a page that was sent with its bytes the sender keeps a hash of each part (WIRE_PART bytes): 64
 * bytes a page, 1.6 % of what has them, where a cache of pages would have to hold all that the
 * guest writes in a round to be of use. The page goes again as the parts whose hash is another one
 * now, and not at all if there is none.
 *
 * The receiver must have, when the parts arrive, just what the hashes are of:
 *
 *	The hash is of the bytes that leave. The guest may write to its page while the sender reads
 *	it, so the sender copies the page, hashes the copy, and sends the copy.
 *
 *	All that is sent of a page passes here, in the order in which the receiver places it: pages
 *	of one byte make the hashes void (delta_forget()). Rounds may be under way at once on
 *	several streams, but dirty/stripes.h has it that nothing of a stripe leaves on one while
 *	an older byte of it is under way on another one. So each page's versions arrive in the order
 *	in which they were sent: on one connection, or the older ones were acknowledged as placed
 *	before the newer one left. Nothing else writes these pages: the receiver's QEMU waits.
 *
 *	What may not have arrived has no hashes: stripes_lost() forgets whatever it marks as dirty.
 *	Of all other stripes it has shown that the receiver has the newest bytes.
 *
 * A stripe is written to by the thread alone that sends it in a round. In the last round, where
 * several threads may share one, nothing is noted and nothing forgotten, as nothing follows.
 *
 * A part that has changed and has the same hash would stay as it was, and only --verify would see
 * that. A hash is XXH3-64 twice (codec/twofold.h), with secrets that never leave the process. One
 * would do for a guest that means no harm. docs/threat-model.md has the numbers.
 */
#ifndef GODWIT_DELTA_H
#define GODWIT_DELTA_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "wire/extent.h"

#define DELTA_STRIPE_PAGES	64u	/* as dirty/stripes.h has them */
#define DELTA_STRIPE_BYTES	(DELTA_STRIPE_PAGES * WIRE_PAGE_PARTS * 8u)
#define DELTA_ALL		((1u << WIRE_PAGE_PARTS) - 1)

/* --delta */
enum delta_wish { DELTA_AUTO, DELTA_ON, DELTA_OFF };

struct delta;

/* "auto", "on", "off". Errors: GW_USAGE */
int delta_parse(const char *text, enum delta_wish *out, struct err *e);
/**
 * delta_new() - no page has hashes yet
 * @pages: of each block
 * @memory: bytes for hashes, at most. They are used up by the stripes that are sent first: later
 *	ones get none, and are sent whole each time. Beside that 16 bytes a stripe, 64 KiB a GiB
 * Return: NULL: no memory, or no random bytes
 */
struct delta *delta_new(const uint64_t *pages, unsigned int blocks, uint64_t memory);
void delta_free(struct delta *d);	/* NULL is fine */
/* Has the page hashes? With @make: or may it get some, by delta_changed()? */
bool delta_takes(struct delta *d, unsigned int block, uint64_t page, bool make);
/**
 * delta_changed() - compare a page with what was sent last
 * @bytes: of the page, which nothing changes: a copy that is sent, but for the parts that are equal
 * @note: these are what was sent last from now on
 * Return: a bit for each part that differs, part 0 in bit 0; DELTA_ALL if there are no hashes.
 * Only for a page that delta_takes().
 */
unsigned int delta_changed(struct delta *d, unsigned int block, uint64_t page, const uint8_t *bytes,
			   bool note);
/* These pages are sent in another way, or what was sent may be lost. */
void delta_forget(struct delta *d, unsigned int block, uint64_t first, uint64_t count);

#endif
