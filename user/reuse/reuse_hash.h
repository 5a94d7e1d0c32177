/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The hash of a page by which content is reused (wire/reuse.h), 128 bits.
 *
 * The secret is the receiver's, new for each receiver. The file is older than that: who wrote it
 * did not know the secret. If that was this guest, it can only fool itself, and twofold XXH3 is
 * fast. Another guest may want this one to find a page of its choice, where it knows what the page
 * is to be at the source: then the hash is a keyed cryptographic one, at a fifth of the speed.
 */
#ifndef GODWIT_REUSE_HASH_H
#define GODWIT_REUSE_HASH_H

#include <stdbool.h>
#include <stdint.h>

#include "codec/twofold.h"
#include "wire/reuse.h"

/* @secret: WIRE_REUSE_SECRET bytes, for whatever @kind */
struct reuse_key {
	enum wire_reuse_kind kind;
	struct twofold secret;
};

/* For one thread. @hmac: GnuTLS's, of a key that needs it */
struct reuse_hasher {
	const struct reuse_key *key;
	void *hmac;
};

/* false: there are no random bytes. */
bool reuse_key_random(struct reuse_key *key, enum wire_reuse_kind kind);
/* false: no memory. reuse_hasher_close() also then, and zeros are fine for it. */
bool reuse_hasher_open(struct reuse_hasher *h, const struct reuse_key *key);
void reuse_hasher_close(struct reuse_hasher *h);
/* Of PAGE_BYTES. false: GnuTLS failed, and what it left says nothing of the page. */
bool reuse_hash(const struct reuse_hasher *h, const void *page, uint64_t hash[2]);
/* Would it be worth it? A page of one byte costs as much on the link as a reference. */
bool reuse_worth(const uint8_t *page);

#endif
