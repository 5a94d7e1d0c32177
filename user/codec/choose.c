// SPDX-License-Identifier: GPL-2.0-only
#include "codec/choose.h"
#include "wire/wire.h"

#define QUEUED		2u		/* frames that are a queue */
#define UNSENT		(64u << 10)	/* bytes that are next to nothing */
#define BOUND		900u		/* per mille: the receiver hardly ever waits */
#define PATIENCE	8u		/* frames */
#define PATIENCE_MAX	1024u
#define IDLE		2u		/* frames that found nothing before them: a step down */
#define HASTY		16u		/* frames: a step up that ends before was wrong */
#define SETTLED		64u		/* frames: one that lasts so long was right */
#define PENALTY_NS	1000000000ull
#define PENALTY_MAX_NS	(30 * PENALTY_NS)

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
	*c = (struct codec_chooser) {
		.patience = PATIENCE, .ceiling = CHOOSE_STEPS, .penalty_ns = PENALTY_NS,
	};
	c->n = codec_steps(wish, features, c->steps);
}

static void choose_move(struct codec_chooser *c, unsigned int to)
{
	c->at = to;
	c->held = c->behind = c->idle = 0;
	c->behind_bytes = 0;
}

/* A new LOAD. What a step down changes shows in the one after it, so one step for each. */
static void choose_heed(struct codec_chooser *c, const struct codec_seen *seen)
{
	c->loads = seen->loads;
	c->bound = seen->load >= BOUND;
	if (!c->bound || !c->at)
		return;
	choose_move(c, c->at - 1);
	c->ceiling = c->at;
	c->ceiling_ns = seen->now_ns + c->penalty_ns;
	if (c->penalty_ns < PENALTY_MAX_NS)
		c->penalty_ns *= 2;
}

static void choose_up(struct codec_chooser *c, const struct codec_seen *seen)
{
	if (seen->now_ns >= c->ceiling_ns)
		c->ceiling = CHOOSE_STEPS;
	if (c->behind < c->patience || c->behind_bytes < seen->unsent)
		return;
	if (!c->loads || c->bound || c->at + 1 >= c->n || c->at >= c->ceiling)
		return;
	choose_move(c, c->at + 1);
}

static void choose_down(struct codec_chooser *c)
{
	c->behind = 0;
	c->behind_bytes = 0;
	if (!c->at || ++c->idle < IDLE)
		return;
	if (c->held <= HASTY && c->patience < PATIENCE_MAX)
		c->patience *= 2;
	choose_move(c, c->at - 1);
}

const struct codec_choice *codec_chosen(const struct codec_chooser *c)
{
	return &c->steps[c->at];
}

void codec_choose(struct codec_chooser *c, const struct codec_seen *seen)
{
	if (c->n == 1)
		return;
	c->held++;
	if (c->at && c->held == SETTLED)
		c->patience = PATIENCE;
	if (seen->loads != c->loads)
		choose_heed(c, seen);
	if (seen->paced || seen->queued >= QUEUED) {
		c->behind++;
		c->behind_bytes += seen->bytes;
		c->idle = 0;
		choose_up(c, seen);
	} else if (!seen->queued && seen->unsent < UNSENT) {
		choose_down(c);
	} else {
		c->idle = 0;
	}
}
