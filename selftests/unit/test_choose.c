// SPDX-License-Identifier: GPL-2.0-only
/*
 * The choice of codecs over simulated links, against each fixed choice. A stream's frames of 64 pages are read, packed and
 * queued by a sender, carried by a link behind a socket buffer, unpacked and written by a receiver, one thing at a time each;
 * costs are those of the images in docs/benchmarking.md.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "codec/choose.h"
#include "wire/wire.h"

#define FRAME		(256.0 * 1024)
#define FRAMES		8192u		/* 2 GiB */
#define SOCKET		(4.0 * 1024 * 1024)
#define WINDOW		(3.0 * 1024 * 1024)	/* what the receiver's socket holds */
#define QUEUE		4u
#define GIB		(1024.0 * 1024 * 1024)
#define ALL		(WIRE_LZ4 | WIRE_ZSTD | WIRE_ZLIB | WIRE_LOADS)

/* Of each step: bytes out for one in, GiB/s to pack and to unpack. */
struct image {
	const char *name;
	double out[CHOOSE_STEPS], pack[CHOOSE_STEPS], unpack[CHOOSE_STEPS];
};

static const struct image images[] = {
	{ "program", { 1, .46, .32, .31 }, { 1e9, .48, .31, .17 }, { 1e9, 3.0, 1.1, 1.1 } },
	{ "database", { 1, .24, .15, .15 }, { 1e9, 1.07, .65, .41 }, { 1e9, 4.5, 1.8, 1.8 } },
	{ "random", { 1, 1, 1, 1 }, { 1e9, 8, 2.4, 1.2 }, { 1e9, 1e9, 1e9, 1e9 } },
};

struct host {
	double read, send;	/* s/GiB: of pages, of what goes over the link */
	double place, receive;
};

static const struct host sender_bound = { .05, .45, .20, .10 }, receiver_bound = { .05, .30, .75, .15 };

/* What the frame costs each of the three, seconds. */
struct costs {
	double make, carry, take, bytes;
};

static struct costs costs_of(const struct image *m, unsigned int step, const struct host *h, double rate)
{
	double gib = FRAME / GIB, out = m->out[step];

	return (struct costs) {
		.make = gib * (h->read + 1 / m->pack[step] + h->send * out), .carry = FRAME * out / rate,
		.take = gib * (h->place + (out < 1 ? 1 / m->unpack[step] : 0) + h->receive * out), .bytes = FRAME * out,
	};
}

static double left[FRAMES], came[FRAMES], taken[FRAMES], size[FRAMES];

/* Frames that end before t, of those in [from, to). */
static unsigned int ended(const double *when, unsigned int from, unsigned int to, double t)
{
	while (from < to && when[from] <= t)
		from++;
	return from;
}

/* chooser: NULL: always this step. Return: seconds until the receiver has written all. */
static double run(const struct image *m, const struct host *h, double rate, struct codec_chooser *chooser, unsigned int step,
		  unsigned int used[CHOOSE_STEPS])
{
	unsigned int sent = 0, arrived = 0, done = 0, frames_then = 0;
	double t = 0, next_load = .1, busy = 0;
	struct codec_seen seen = { .now_ns = 1 };

	memset(used, 0, CHOOSE_STEPS * sizeof(*used));
	for (unsigned int i = 0; i < FRAMES; i++) {
		double room = 0, window = 0;
		struct costs c;

		if (chooser)
			step = (unsigned int)(codec_chosen(chooser) - chooser->steps);
		used[step]++;
		c = costs_of(m, step, h, rate);
		t += FRAME / GIB * (h->read + 1 / m->pack[step]);
		sent = ended(left, sent, i, t);
		arrived = ended(came, arrived, i, t);
		done = ended(taken, done, i, t);
		for (unsigned int k = arrived; k < i; k++)
			room += (came[k] - t) * rate < size[k] ? (came[k] - t) * rate : size[k];
		for (unsigned int k = done; k < arrived; k++)
			window += size[k];
		if (t >= next_load) {
			/* All that came in this time found the receiver busy, or not. */
			seen.loads++;
			seen.load = arrived > frames_then ? (unsigned int)(busy * 1000 / (arrived - frames_then)) : 0;
			if (seen.load > 1000)
				seen.load = 1000;
			busy = 0;
			frames_then = arrived;
			next_load = t + .1;
		}
		seen.now_ns = 1 + (uint64_t)(t * 1e9);
		/* What the socket does not take waits in the queue. */
		seen.queued = room > SOCKET ? (unsigned int)((room - SOCKET) / size[i - 1]) + 1 : 0;
		seen.unsent = (uint64_t)(room > 64 << 10 ? room - (64 << 10) : 0);
		seen.bytes = (uint32_t)c.bytes;
		if (chooser)
			codec_choose(chooser, &seen);
		t += c.make - FRAME / GIB * (h->read + 1 / m->pack[step]);
		size[i] = c.bytes;
		/* The link carries one after the other, and waits where the receiver's socket is full. */
		left[i] = i && left[i - 1] > t ? left[i - 1] : t;
		{
			double held = 0;
			unsigned int k = i;

			while (k && held < WINDOW)
				held += size[--k];
			if (k && taken[k - 1] > left[i])
				left[i] = taken[k - 1];
		}
		left[i] += c.carry;
		came[i] = left[i];
		taken[i] = (i && taken[i - 1] > came[i] ? taken[i - 1] : came[i]) + c.take;
		if (i && taken[i - 1] > came[i] + .0002)
			busy++;
		/* The queue and the socket are full: the sender waits. */
		{
			double ahead = 0;
			unsigned int k = i + 1;

			while (k && ahead <= SOCKET + QUEUE * size[i])
				ahead += size[--k];
			if (k && came[k - 1] > t)
				t = came[k - 1];
		}
	}
	return taken[FRAMES - 1];
}

static void test_links(void **state)
{
	static const struct {
		const char *name;
		double rate;
	} links[] = { { "loopback", 8e9 }, { "10 Gb/s", 1.18e9 }, { "1 Gb/s", .118e9 }, { "100 Mb/s", .0118e9 } };
	const struct host *const hosts[] = { &sender_bound, &receiver_bound };
	const struct codec_wish wish = { .kind = CODEC_AUTO };

	(void)state;
	for (size_t m = 0; m < sizeof(images) / sizeof(images[0]); m++)
		for (size_t l = 0; l < sizeof(links) / sizeof(links[0]); l++)
			for (int h = 0; h < 2; h++) {
				struct codec_chooser c;
				unsigned int used[CHOOSE_STEPS], ignored[CHOOSE_STEPS];
				double own, best = 1e9, raw = 0;

				codec_chooser_init(&c, &wish, ALL);
				assert_int_equal(c.n, CHOOSE_STEPS);
				own = run(&images[m], hosts[h], links[l].rate, &c, 0, used);
				for (unsigned int s = 0; s < CHOOSE_STEPS; s++) {
					double fixed = run(&images[m], hosts[h], links[l].rate, NULL, s, ignored);

					raw = s ? raw : fixed;
					best = fixed < best ? fixed : best;
				}
				print_message("%-8s %-8s %s: %7.2f s, raw %7.2f, best %7.2f (%u %u %u %u)\n", images[m].name,
					      links[l].name, h ? "receiver" : "sender  ", own, raw, best, used[0], used[1], used[2],
					      used[3]);
				assert_true(own <= 1.03 * raw);
				assert_true(own <= 1.05 * best);
			}
}

/* One frame after another that looks like this. */
static unsigned int steps_after(struct codec_chooser *c, unsigned int frames, struct codec_seen seen)
{
	for (unsigned int i = 0; i < frames; i++)
		codec_choose(c, &seen);
	return c->at;
}

static void test_rules(void **state)
{
	const struct codec_wish wish = { .kind = CODEC_AUTO };
	const struct codec_seen full = { .now_ns = 1, .queued = 4, .loads = 1 }, empty = { .now_ns = 1, .loads = 1 };
	const struct codec_seen between = { .now_ns = 1, .queued = 1, .loads = 1 };
	const struct codec_seen paced = { .now_ns = 1, .paced = true, .loads = 1 };
	const struct codec_seen loaded = { .now_ns = 1, .queued = 4, .loads = 1, .unsent = 1 << 20, .bytes = 64 << 10 };
	struct codec_seen bound = { .now_ns = 1, .queued = 4, .loads = 2, .load = 1000 };
	struct codec_chooser c;

	(void)state;
	codec_chooser_init(&c, &wish, ALL);
	/* Not before the receiver has said that it waits. */
	assert_int_equal(steps_after(&c, 100, (struct codec_seen) { .now_ns = 1, .queued = 4 }), 0);
	assert_int_equal(steps_after(&c, 7, full), 1);
	assert_int_equal(steps_after(&c, 100, full), 3);
	assert_int_equal(steps_after(&c, 1000, between), 3);
	assert_int_equal(steps_after(&c, 1, empty), 3);
	assert_int_equal(steps_after(&c, 1, empty), 2);
	assert_int_equal(steps_after(&c, 4, empty), 0);
	/* What was in the socket has to leave before the next step: 16 frames of 64 KiB. */
	codec_chooser_init(&c, &wish, ALL);
	assert_int_equal(steps_after(&c, 15, loaded), 0);
	assert_int_equal(steps_after(&c, 1, loaded), 1);
	assert_int_equal(steps_after(&c, 15, loaded), 1);
	assert_int_equal(steps_after(&c, 1, loaded), 2);
	/* --bandwidth is a link, too. */
	codec_chooser_init(&c, &wish, ALL);
	assert_int_equal(steps_after(&c, 100, paced), 3);
	/* A receiver that is behind: one step a LOAD, and not up again at once, but later. */
	assert_int_equal(steps_after(&c, 100, bound), 2);
	bound.loads++;
	assert_int_equal(steps_after(&c, 100, bound), 1);
	bound.loads++;
	bound.load = 0;
	assert_int_equal(steps_after(&c, 1000, bound), 1);
	/* Nor up at all, as long as it says so. */
	codec_chooser_init(&c, &wish, ALL);
	bound.load = 950;
	assert_int_equal(steps_after(&c, 1000, bound), 0);
	bound.loads++;
	bound.load = 500;
	assert_int_equal(steps_after(&c, 16, bound), 2);
	bound.loads++;
	bound.load = 1000;
	assert_int_equal(steps_after(&c, 1, bound), 1);
	bound.loads++;
	bound.load = 0;
	assert_int_equal(steps_after(&c, 1000, bound), 1);
	bound.now_ns += 3000000000ull;
	assert_int_equal(steps_after(&c, 1000, bound), 3);
}

static void test_what_is_offered(void **state)
{
	const struct codec_wish wish = { .kind = CODEC_AUTO }, off = { .kind = CODEC_OFF };
	const struct codec_wish fixed = { .kind = CODEC_FIXED, .choice = { &codec_zlib, 9 } };
	const struct codec_seen full = { .now_ns = 1, .queued = 4, .loads = 1 };
	struct codec_chooser c;

	(void)state;
	codec_chooser_init(&c, &wish, 0);
	codec_choose(&c, &full);
	assert_null(codec_chosen(&c)->codec);
	assert_int_equal(c.n, 1);
	codec_chooser_init(&c, &wish, ALL & ~WIRE_LOADS);
	assert_int_equal(c.n, 1);
	codec_chooser_init(&c, &wish, ALL & ~WIRE_ZSTD);
	assert_int_equal(c.n, 2);
	assert_ptr_equal(c.steps[1].codec, &codec_lz4);
	codec_chooser_init(&c, &wish, ALL & ~WIRE_LZ4);
	assert_int_equal(c.n, 3);
	assert_ptr_equal(c.steps[1].codec, &codec_zstd);
	codec_chooser_init(&c, &off, ALL);
	codec_choose(&c, &full);
	assert_null(codec_chosen(&c)->codec);
	codec_chooser_init(&c, &fixed, ALL);
	codec_choose(&c, &full);
	assert_ptr_equal(codec_chosen(&c)->codec, &codec_zlib);
	assert_int_equal(codec_chosen(&c)->level, 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_links), cmocka_unit_test(test_rules), cmocka_unit_test(test_what_is_offered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
