// SPDX-License-Identifier: GPL-2.0-only
/*
 * The choice of codecs over simulated links, against each fixed choice. A stream's frames of 64 pages are read, packed and
 * queued by a sender, carried by a link behind a socket buffer, unpacked and written by a receiver, one thing at a time each;
 * costs are those of the images in docs/benchmarking/links.md.
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
#define FEW		800u		/* 200 MiB */
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

/* What is between both ends. */
struct path {
	const char *name;
	double rate;	/* bytes per second */
	double room;	/* bytes that the socket takes, and the network before the link */
	double hiccup;	/* seconds for which the sender has no CPU, in every 20th of the first 400 frames */
	unsigned int round;	/* frames of a round after the first, which has FEW and is not counted; 0: there is one */
	double idle;	/* seconds between rounds; not counted */
	double faster;	/* after a quarter of the frames the link is so many times faster; 0: no */
};

#define PATH(n, r, b, ...)	{ .name = n, .rate = r, .room = b, __VA_ARGS__ }

/* chooser: NULL: always this step. Return: seconds until the receiver has written all. */
static double run(const struct image *m, const struct host *h, const struct path *p, struct codec_chooser *chooser,
		  unsigned int step, unsigned int frames, unsigned int used[CHOOSE_STEPS])
{
	unsigned int arrived = 0, done = 0, frames_then = 0;
	double t = 0, next_load = .08, busy = 0, acked = 0, idle = 0;
	struct codec_seen seen = { .pages = 64 };

	memset(used, 0, CHOOSE_STEPS * sizeof(*used));
	for (unsigned int i = 0; i < frames; i++) {
		const double rate = p->rate * (p->faster && i >= frames / 4 ? p->faster : 1);
		double waiting = 0, pack;
		unsigned int queued = 0;
		struct costs c;

		if (chooser)
			step = (unsigned int)(codec_chosen(chooser) - chooser->steps);
		used[step]++;
		c = costs_of(m, step, h, rate);
		pack = FRAME / GIB / m->pack[step];
		if (i < 400 && i % 20 == 19)
			pack += p->hiccup;
		t += FRAME / GIB * h->read + pack;
		for (unsigned int n = ended(came, arrived, i, t); arrived < n; arrived++)
			acked += size[arrived];
		done = ended(taken, done, i, t);
		for (unsigned int k = arrived; k < i; k++)
			waiting += (came[k] - t) * rate < size[k] ? (came[k] - t) * rate : size[k];
		/* What the socket and the network do not hold is queued. */
		for (double ahead = 0; queued < i - arrived; queued++) {
			ahead += size[i - 1 - queued];
			if (waiting - ahead < p->room - 1)
				break;
		}
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
		seen.bytes = (uint64_t)c.bytes;
		seen.waiting = seen.acked = 0;
		if (chooser && codec_chooser_asks(chooser, queued, seen.pages, seen.bytes)) {
			seen.waiting = (uint64_t)waiting;
			seen.acked = (uint64_t)acked;
		}
		seen.made_ns = (uint64_t)(pack * 1e9);
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

			while (k && ahead <= p->room + QUEUE * size[i])
				ahead += size[--k];
			if (k && came[k - 1] > t)
				t = came[k - 1];
		}
		if (p->round && i + 1 >= FEW && !((i + 1 - FEW) % p->round) && i + 1 < frames) {
			t = taken[i] + p->idle;
			idle += i + 1 == FEW ? t : p->idle;
		}
	}
	return taken[frames - 1] - idle;
}

/* Also of each fixed choice: of raw, and of the best. */
static double compare(const struct image *m, const struct host *h, const struct path *p, unsigned int frames, double *raw, double *best)
{
	const struct codec_wish wish = { .kind = CODEC_AUTO };
	unsigned int used[CHOOSE_STEPS], ignored[CHOOSE_STEPS];
	struct codec_chooser c;
	double own;

	codec_chooser_init(&c, &wish, ALL);
	assert_int_equal(c.n, CHOOSE_STEPS);
	own = run(m, h, p, &c, 0, frames, used);
	*best = 1e9;
	for (unsigned int s = 0; s < CHOOSE_STEPS; s++) {
		double fixed = run(m, h, p, NULL, s, frames, ignored);

		*raw = s ? *raw : fixed;
		*best = fixed < *best ? fixed : *best;
	}
	print_message("%-8s %-20s %s: %7.3f s, raw %7.3f, best %7.3f (%u %u %u %u)\n", m->name, p->name,
		      h == &sender_bound ? "sender  " : "receiver", own, *raw, *best, used[0], used[1], used[2], used[3]);
	return own;
}

#define NEAR	(192.0 * 1024)		/* what sock_tune() lets wait, and a short queue in the network */
#define BLOAT	(4.0 * 1024 * 1024)	/* as much as the socket may have in flight */

static void test_links(void **state)
{
	static const struct path paths[] = {
		PATH("loopback", 8e9, NEAR), PATH("10 Gb/s", 1.18e9, NEAR), PATH("10 Gb/s, bloated", 1.18e9, BLOAT),
		PATH("1 Gb/s", .118e9, NEAR), PATH("1 Gb/s, bloated", .118e9, BLOAT), PATH("100 Mb/s", .0118e9, NEAR),
		PATH("100 Mb/s, bloated", .0118e9, BLOAT),
	};
	const struct host *const hosts[] = { &sender_bound, &receiver_bound };

	(void)state;
	for (size_t m = 0; m < sizeof(images) / sizeof(images[0]); m++)
		for (size_t l = 0; l < sizeof(paths) / sizeof(paths[0]); l++)
			for (int h = 0; h < 2; h++) {
				double raw, best, own = compare(&images[m], hosts[h], &paths[l], FRAMES, &raw, &best);

				assert_true(own <= 1.03 * raw);
				assert_true(own <= 1.05 * best);
			}
}

/* Rounds of few frames, with the link idle between them: they are packed as well, the last one too. */
static void test_short_rounds(void **state)
{
	/* As many times as long as raw, and as the best, at most: over 1 Gb/s such a round takes a few ms. */
	static const struct { double rate, room, raw, best; } links[] = {
		{ 8e9, NEAR, 1.03, 1.03 }, { 1.18e9, NEAR, 1.03, 1.03 }, { .118e9, NEAR, 1.1, 1.2 }, { .0118e9, NEAR, 1.03, 1.1 },
		{ .0118e9, BLOAT, 1.03, 1.1 },
	};
	static const unsigned int rounds[] = { 1, 4, 30 };
	static const double gaps[] = { 0, .02, .3 };

	(void)state;
	for (size_t m = 0; m < sizeof(images) / sizeof(images[0]); m++)
		for (size_t l = 0; l < sizeof(links) / sizeof(links[0]); l++)
			for (int k = 0; k < 9; k++) {
				struct path p = PATH("", links[l].rate, links[l].room, .round = rounds[k / 3], .idle = gaps[k % 3]);
				double raw, best, own;
				char name[64];

				snprintf(name, sizeof(name), "%4.0f MB/s%s, %u, %.0f ms", p.rate / 1e6, p.room > NEAR ? " b." : "", p.round,
					 p.idle * 1e3);
				p.name = name;
				own = compare(&images[m], &sender_bound, &p, FEW + 480, &raw, &best);
				assert_true(own <= links[l].raw * raw);
				assert_true(own <= links[l].best * best);
			}
}

/* A link that becomes fast is not thought slow for long, however well all is packed meanwhile. */
static void test_faster(void **state)
{
	static const struct path paths[] = {
		PATH("100 Mb/s x 600", .0118e9, NEAR, .faster = 600), PATH("100 Mb/s x 10", .0118e9, NEAR, .faster = 10),
	};
	unsigned int ignored[CHOOSE_STEPS];

	(void)state;
	for (size_t m = 0; m < sizeof(images) / sizeof(images[0]); m++)
		for (size_t l = 0; l < sizeof(paths) / sizeof(paths[0]); l++) {
			const struct path slow = PATH("", paths[l].rate, NEAR), fast = PATH("", paths[l].rate * paths[l].faster, NEAR);
			double raw, best, own = compare(&images[m], &sender_bound, &paths[l], FRAMES, &raw, &best), ideal = 1e9, then = 1e9;

			for (unsigned int s = 0; s < CHOOSE_STEPS; s++) {
				double a = run(&images[m], &sender_bound, &slow, NULL, s, FRAMES / 4, ignored);
				double b = run(&images[m], &sender_bound, &fast, NULL, s, FRAMES - FRAMES / 4, ignored);

				ideal = a < ideal ? a : ideal;
				then = b < then ? b : then;
			}
			assert_true(own <= 1.05 * (ideal + then));
		}
}

/* Now and then the sender has no CPU while it packs: that says nothing of the step. */
static void test_hiccups(void **state)
{
	static const struct path paths[] = {
		PATH("1 Gb/s, hiccups", .118e9, NEAR, .hiccup = .3), PATH("100 Mb/s, hiccups", .0118e9, NEAR, .hiccup = .3),
	};

	(void)state;
	for (size_t m = 0; m < sizeof(images) / sizeof(images[0]); m++)
		for (size_t l = 0; l < sizeof(paths) / sizeof(paths[0]); l++) {
			double raw, best, own = compare(&images[m], &sender_bound, &paths[l], FRAMES, &raw, &best);

			assert_true(own <= 1.03 * raw);
			assert_true(own <= 1.05 * best);
		}
}

/*
 * A small guest is gone before long: the best step must be found by then, and what is packed before the receiver has said
 * anything counts.
 */
static void test_few(void **state)
{
	static const struct { struct path path; double best; } links[] = {
		{ PATH("100 Mb/s, 200 MiB", .0118e9, NEAR), 1.10 }, { PATH("1 Gb/s, 200 MiB", .118e9, NEAR), 1.05 },
		{ PATH("1 Gb/s, 200 MiB, b.", .118e9, BLOAT), 1.10 },
	};

	(void)state;
	for (size_t m = 0; m < sizeof(images) / sizeof(images[0]); m++)
		for (size_t l = 0; l < sizeof(links) / sizeof(links[0]); l++)
			for (int h = 0; h < 2; h++) {
				const struct host *host = h ? &receiver_bound : &sender_bound;
				double raw, best, own = compare(&images[m], host, &links[l].path, FEW, &raw, &best);

				assert_true(own <= links[l].best * best);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_links), cmocka_unit_test(test_short_rounds), cmocka_unit_test(test_faster),
		cmocka_unit_test(test_hiccups), cmocka_unit_test(test_few),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
