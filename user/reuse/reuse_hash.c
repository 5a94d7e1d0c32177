// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <string.h>

#include "reuse/reuse_hash.h"

#define HMAC_BYTES	32u

static_assert(sizeof(struct twofold) == WIRE_REUSE_SECRET, "the secret is the protocol");

bool reuse_key_random(struct reuse_key *key, enum wire_reuse_kind kind)
{
	key->kind = kind;
	return twofold_random(&key->secret);
}

bool reuse_hasher_open(struct reuse_hasher *h, const struct reuse_key *key)
{
	gnutls_hmac_hd_t hmac = NULL;

	*h = (struct reuse_hasher) { .key = key };
	if (key->kind != WIRE_REUSE_HMAC)
		return true;
	if (gnutls_hmac_init(&hmac, GNUTLS_MAC_SHA256, &key->secret, sizeof(key->secret)) < 0)
		return false;
	h->hmac = hmac;
	return true;
}

void reuse_hasher_close(struct reuse_hasher *h)
{
	if (h->hmac)
		gnutls_hmac_deinit(h->hmac, NULL);
	h->hmac = NULL;
}

bool reuse_hash(const struct reuse_hasher *h, const void *page, uint64_t hash[2])
{
	uint8_t mac[HMAC_BYTES] = { 0 };

	if (h->key->kind != WIRE_REUSE_HMAC) {
		twofold_hash(&h->key->secret, page, PAGE_BYTES, hash);
		return true;
	}
	if (gnutls_hmac(h->hmac, page, PAGE_BYTES) < 0)
		return false;
	/* It is as new after that. */
	gnutls_hmac_output(h->hmac, mac);
	hash[0] = wire_get_u64(mac);
	hash[1] = wire_get_u64(mac + 8);
	return true;
}

bool reuse_worth(const uint8_t *page)
{
	return !page_is_one_byte(page);
}
