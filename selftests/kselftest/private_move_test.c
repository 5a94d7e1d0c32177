// SPDX-License-Identifier: GPL-2.0-only
/*
 * A private huge page that the host moves between its nodes is there all the time: NEXT_DATA, which
 * looks without the locks that keep such moves out, must never take its entry for a hole.
 */
#include <errno.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kst.h"
#include "priv.h"

#define LOOKS	20000
#define MOVES	20	/* at least, or the test has shown nothing */

FIXTURE(moved) {
	struct priv p;
	pthread_t mover;
};

FIXTURE_VARIANT(moved) {
	enum priv_kind kind;
	uint64_t bytes;
};

FIXTURE_VARIANT_ADD(moved, hugetlbfs_2m) { .kind = PRIV_2M, .bytes = 4 * MIB };

static volatile bool moving;
static unsigned int moves;

/* To the other node and back, for as long as it is let; a move that finds no page there is none. */
static void *move_pages_about(void *map)
{
	int node, status;

	for (node = 1; moving; node = !node)
		if (!syscall(SYS_move_pages, 0, 1UL, &map, &node, &status, MPOL_MF_MOVE) &&
		    status == node)
			moves++;
	return NULL;
}

FIXTURE_SETUP(moved)
{
	int node = -1, status = -ENODEV;
	void *map;

	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP(return, "one CPU");
	ASSERT_EQ(0, priv_map(&self->p, variant->kind, variant->bytes)) {
		TH_LOG("no huge pages: the lab wants --hugepages 2M:4");
	}
	memset(self->p.map, 1, variant->bytes);
	priv_begin(&self->p, 1, PAGE);
	map = self->p.map;
	node = 1;
	ASSERT_EQ(0, syscall(SYS_move_pages, 0, 1UL, &map, &node, &status, MPOL_MF_MOVE));
	ASSERT_EQ(1, status) {
		TH_LOG("no second node, or no huge page there: the lab wants numa=fake=2");
	}
	moves = 0;
	moving = true;
	ASSERT_EQ(0, pthread_create(&self->mover, NULL, move_pages_about, self->p.map));
}

FIXTURE_TEARDOWN(moved)
{
	if (self->p.map)
		priv_end(&self->p);
}

TEST_F(moved, is_never_a_hole)
{
	unsigned int i, holes = 0;
	uint64_t at, len;

	for (i = 0; i < LOOKS || (moves < MOVES && i < 100 * LOOKS); i++) {
		int r = session_next_data(&self->p.s, 0, 0, self->p.page / PAGE, &at, &len);

		holes += r || at;
	}
	moving = false;
	pthread_join(self->mover, NULL);
	TH_LOG("%u moves, %u looks, %u found a hole", moves, i, holes);
	PROOF(ASSERT_EQ(0, holes));
	ASSERT_GE(moves, MOVES);
}

KST_MAIN
