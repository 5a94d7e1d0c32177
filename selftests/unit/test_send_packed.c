// SPDX-License-Identifier: GPL-2.0-only
/* RAM that is packed on its way, with the receiver's streams at the other end. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <cmocka.h>

#include "base/clock.h"
#include "each_engine.h"
#include "ram_rig.h"

struct changer {
	_Atomic uint32_t *compress;
	atomic_bool stop;
};

/* The operator, who cannot decide. */
static void *change(void *arg)
{
	static const char *const ways[] = { "lz4", "off", "zstd:3", "zlib", "auto" };
	struct changer *c = arg;

	for (unsigned int i = 0; !atomic_load(&c->stop); i++) {
		struct codec_wish wish;
		struct err e = { 0 };

		assert_int_equal(codec_parse(ways[i % 5], &wish, &e), 0);
		atomic_store(c->compress, codec_wish_word(&wish));
		nap(1);
	}
	return NULL;
}

/* Another codec at any frame: the pages arrive as they were, and what streams show is what they have sent. */
static void the_codec_changes_in_the_middle(void **state)
{
	struct rig *rig = *state;
	struct changer c = { .compress = &rig->compress };
	struct round_count sum = { .data_pages = 0 }, shown;
	unsigned int rounds = 0;
	pthread_t thread;

	rig->features = WIRE_FILL | WIRE_LZ4 | WIRE_ZSTD | WIRE_ZLIB | WIRE_LOADS;
	rig_connect(rig, engine, engine, 3, 0);
	assert_int_equal(pthread_create(&thread, NULL, change, &c), 0);
	do {
		for (unsigned int p = 0; p < PAGES; p++) {
			rig_write(rig, p, (int)(p + rounds) % 7);
			/* Every other page is not of one byte, and packs well. */
			if (p % 2)
				memcpy(rig->ram + p * PAGE_BYTES, &p, sizeof(p));
		}
		rig_round(rig, ROUND_PRECOPY);
		rig_assert_equal(rig);
		round_count_add(&sum, &rig->count);
	} while (++rounds < 200 && (!sum.packed_pages[0] || !sum.packed_pages[1] || !sum.packed_pages[2] ||
				    sum.packed_pages[0] + sum.packed_pages[1] + sum.packed_pages[2] == sum.data_pages));
	atomic_store(&c.stop, true);
	pthread_join(thread, NULL);
	assert_in_range(rounds, 1, 199);
	assert_int_equal(sum.data_pages, (uint64_t)rounds * PAGES / 2);
	assert_int_equal(sum.zero_pages + sum.same_pages, (uint64_t)rounds * PAGES / 2);
	assert_true(sum.page_bytes < sum.data_pages * PAGE_BYTES);
	shown = send_streams_counts(rig->streams);
	assert_memory_equal(&shown, &sum, sizeof(sum));
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(the_codec_changes_in_the_middle, rig_setup, rig_teardown),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
