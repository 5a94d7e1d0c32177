// SPDX-License-Identifier: GPL-2.0-only
/* What a receiver refuses of what was referred to: no more than there is, and nothing that was not. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "channel_rig.h"
#include "peer/referring.h"

#define BLOCKS	2u

static const uint64_t ram[BLOCKS] = { 1000, 500 };

static void say_frame(struct link *l, const struct wire_header *h, const void *body)
{
	uint8_t head[WIRE_HEADER];

	wire_put_header(head, h);
	assert_int_equal(write(l->peer, head, sizeof(head)), sizeof(head));
	assert_int_equal(write(l->peer, body, h->length), h->length);
}

static void begin(struct link *l, struct referring *r)
{
	uint8_t body[WIRE_REUSE_HEAD + WIRE_REUSE_SECRET] = { 0 };
	const struct wire_header h = { .type = WIRE_REUSE, .arg = WIRE_REUSE_XXH3, .length = sizeof(body) };

	wire_put_u64(body, 100);
	say_frame(l, &h, body);
	assert_int_equal(referring_begin(r, l->ch, ram, BLOCKS, 1 << 20, &l->e), 0);
	assert_non_null(r->table);
}

static int refuses(struct link *l, struct referring *r, const struct wire_extent *x, unsigned int n)
{
	struct wire_header h = { .type = WIRE_REFUSED, .arg = n, .length = n * WIRE_EXTENT };
	uint8_t body[WIRE_REFUSED_MAX * WIRE_EXTENT];

	for (unsigned int i = 0; i < n; i++)
		wire_put_extent(body + i * WIRE_EXTENT, &x[i]);
	say_frame(l, &h, body);
	assert_int_equal(channel_recv(l->ch, &h, false, &l->e), 0);
	return referring_take(r, l->ch, &h, &l->e);
}

static void what_was_not_sent_is_not_refused(void **state)
{
	static const struct wire_extent x = { .kind = WIRE_DATA, .first = 7, .pages = 3 };
	struct referring r = { .blocks = 0 };
	struct link *l = *state;

	begin(l, &r);
	assert_int_equal(refuses(l, &r, &x, 1), 0);
	assert_int_equal(r.refused_pages, 0);
	assert_false(r.waiting);
	referring_free(&r);
}

static void a_page_is_named_once(void **state)
{
	static const struct wire_extent all[] = {
		{ .block = 0, .kind = WIRE_DATA, .pages = 1000 }, { .block = 1, .kind = WIRE_DATA, .pages = 500 },
	};
	static const struct wire_extent more[] = {
		{ .block = 0, .kind = WIRE_DATA, .pages = 1000 }, { .block = 0, .kind = WIRE_DATA, .pages = 501 },
	};
	struct referring r = { .blocks = 0 };
	struct link *l = *state;

	begin(l, &r);
	atomic_store(&r.referred, true);
	assert_int_equal(refuses(l, &r, all, 2), 1);
	assert_int_equal(r.refused_pages, 1500);
	assert_true(r.waiting);
	/* Behind a lost link all of it comes again. */
	assert_int_equal(refuses(l, &r, all, 2), 1);
	assert_int_equal(r.refused_pages, 1500);
	assert_int_equal(refuses(l, &r, more, 2), -EPROTO);
	assert_int_equal(l->e.exit, GW_BAD_PEER);
	referring_free(&r);
}

#define TEST(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)
static const struct CMUnitTest tests[] = {
	TEST(what_was_not_sent_is_not_refused), TEST(a_page_is_named_once),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
