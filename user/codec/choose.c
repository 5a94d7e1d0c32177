// SPDX-License-Identifier: GPL-2.0-only
#include "codec/choose.h"
#include "page/page.h"
#include "wire/wire.h"

#define SEC_NS		1000000000ull
#define SHARE		2u		/* a frame may take this part of the time that there is */
#define READ_NS		500u		/* to read a page takes about so long, besides */
#define LEARN		4u		/* a frame changes what is known by this part of it */
#define SPIKE		4u		/* so many times what was known a frame may cost */
#define FORGET		512u		/* a step gets cheaper so, until it is tried */
#define QUEUED		2u		/* frames that are a queue */
#define WINDOW_NS	5000000ull	/* the least that tells how fast the link is */
#define BOUND		900u		/* per mille: the receiver hardly ever waits */
#define SLOW_LINK	200000000u	/* bytes per second: a receiver with a CPU takes more */
#define PENALTY_NS	1000000000ull
#define PENALTY_MAX_NS	(30 * PENALTY_NS)

/* Until a step has been tried: of programs, on one core of 2022. */
static const uint64_t choose_guess_ns[CHOOSE_STEPS] = { 0, 8000, 13000, 23000 };

unsigned int codec_steps(const struct codec_wish *wish, uint64_t features,
			 struct codec_choice steps[CHOOSE_STEPS])
{
	const struct codec_choice all[] = {
		{ &codec_lz4, 1 }, { &codec_zstd, 1 }, { &codec_zstd, 3 },
	};
	unsigned int n = 1;

	steps[0] = wish->kind == CODEC_FIXED ? wish->choice : (struct codec_choice) { NULL, 0 };
	/* Without LOAD a slow receiver would look like a slow link. */
	if (wish->kind != CODEC_AUTO || !(features & WIRE_LOADS))
		return n;
	for (unsigned int i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].codec->feature & features)
			steps[n++] = all[i];
	return n;
}

void codec_chooser_init(struct codec_chooser *c, const struct codec_wish *wish, uint64_t features)
{
	*c = (struct codec_chooser) { .ceiling = CHOOSE_STEPS, .penalty_ns = PENALTY_NS };
	c->n = codec_steps(wish, features, c->steps);
	/* Where a codec is not offered the guesses are of other steps, and soon corrected. */
	for (unsigned int i = 0; i < CHOOSE_STEPS; i++)
		c->page_ns[i] = choose_guess_ns[i];
}

/* A new LOAD. What a step down changes shows in the one after it, so one step for each. */
static void choose_heed(struct codec_chooser *c, const struct codec_seen *seen)
{
	const unsigned int highest = c->highest;

	c->loads = seen->loads;
	c->highest = 0;
	c->bound = seen->load >= BOUND;
	if (!c->bound)
		return;
	c->ceiling = highest ? highest - 1 : 0;
	/* Nothing was refused, and nothing is tried as long as it says so. */
	if (!highest)
		return;
	c->ceiling_ns = seen->now_ns + c->penalty_ns;
	if (c->penalty_ns < PENALTY_MAX_NS)
		c->penalty_ns *= 2;
}

static void choose_count_from(struct codec_chooser *c, const struct codec_seen *seen)
{
	c->since_ns = seen->acked ? seen->now_ns : 0;
	c->since_acked = seen->acked;
	c->dry = !seen->waiting;
	c->since_made_ns = 0;
}

/*
 * How fast does the link take bytes, while some wait? Where none do, it can take as many as it did
 * at least, and probably more where packing is all that takes time: else a link that has become
 * fast would be thought slow as long as all is packed well.
 */
static void choose_learn_rate(struct codec_chooser *c, const struct codec_seen *seen)
{
	uint64_t ns = seen->now_ns - c->since_ns, rate;

	if (!c->since_ns || seen->acked < c->since_acked) {
		choose_count_from(c, seen);
		return;
	}
	c->dry |= !seen->waiting;
	c->since_made_ns += seen->made_ns;
	if (ns < WINDOW_NS || (seen->acked == c->since_acked && !c->dry))
		return;
	rate = (uint64_t)((double)(seen->acked - c->since_acked) * SEC_NS / (double)ns);
	if (c->dry && c->since_made_ns >= ns / 4 * 3 && rate < 2 * c->rate)
		rate = 2 * c->rate;
	if (!c->rate)
		c->rate = c->dry ? 0 : rate;
	else if (!c->dry || rate > c->rate)
		c->rate = c->rate - c->rate / LEARN + rate / LEARN;
	choose_count_from(c, seen);
}

static void choose_learn_step(struct codec_chooser *c, const struct codec_seen *seen)
{
	uint64_t *known = &c->page_ns[c->at], most = SPIKE * choose_guess_ns[c->at], ns;

	/* It had no CPU, or no slot? One such frame must not keep the step away for long. */
	if (most < SPIKE * *known)
		most = SPIKE * *known;
	if (seen->pages) {
		ns = seen->made_ns / seen->pages;
		*known = *known - *known / LEARN + (ns < most ? ns : most) / LEARN;
	}
	/* Where the link keeps up none is worth a try. */
	for (unsigned int i = 1; (seen->waiting || seen->paced_ns) && i < c->n; i++)
		if (i != c->at)
			c->page_ns[i] -= c->page_ns[i] / FORGET;
}

/* Until the link has sent so much. */
static uint64_t choose_time_ns(const struct codec_chooser *c, uint64_t bytes)
{
	return c->rate ? (uint64_t)((double)bytes * SEC_NS / (double)c->rate) : 0;
}

/*
 * What a frame counts: half of its pages at least. After one that was packed to almost nothing the
 * next would go raw, and take the link much longer than to pack it.
 */
static uint64_t choose_weight(const struct codec_seen *seen)
{
	const uint64_t half = seen->pages * PAGE_BYTES / 2;

	return seen->bytes > half ? seen->bytes : half;
}

static bool choose_fits(const struct codec_chooser *c, unsigned int step, unsigned int pages,
			uint64_t time_ns)
{
	return (READ_NS + c->page_ns[step]) * pages <= time_ns / SHARE;
}

/*
 * Is it the link that is slow? The receiver says that it is not it; before the first LOAD the rate
 * says it where it is so low, and --bandwidth where the stream waits for that alone. If that was
 * wrong the LOAD is there a few frames later.
 */
static bool choose_knows_link(const struct codec_chooser *c, const struct codec_seen *seen)
{
	return c->loads || (c->rate && c->rate < SLOW_LINK) || seen->paced_ns;
}

const struct codec_choice *codec_chosen(const struct codec_chooser *c)
{
	return &c->steps[c->at];
}

bool codec_chooser_asks(const struct codec_chooser *c, unsigned int queued, unsigned int pages,
			uint64_t bytes)
{
	return c->at || queued >= QUEUED || choose_fits(c, 1, pages, choose_time_ns(c, bytes));
}

void codec_choose(struct codec_chooser *c, const struct codec_seen *seen)
{
	uint64_t time_ns;

	if (c->n == 1)
		return;
	choose_learn_rate(c, seen);
	choose_learn_step(c, seen);
	if (c->at > c->highest)
		c->highest = c->at;
	if (seen->loads != c->loads)
		choose_heed(c, seen);
	if (seen->now_ns >= c->ceiling_ns && !c->bound)
		c->ceiling = CHOOSE_STEPS;
	time_ns = choose_time_ns(c, seen->waiting + choose_weight(seen));
	if (time_ns < seen->paced_ns)
		time_ns = seen->paced_ns;
	c->at = 0;
	for (unsigned int i = 1; choose_knows_link(c, seen) && i < c->n && i <= c->ceiling; i++)
		if (choose_fits(c, i, seen->pages, time_ns))
			c->at = i;
}
