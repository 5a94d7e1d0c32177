/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A link that is lost in post-copy again and again may come back, and still carry no RAM: a path
 * that drops large packets lets small ones through. --recover-timeout is for that as well as for
 * one that does not come back: from the first loss on, until RAM has come.
 */
#ifndef GODWIT_STALLED_H
#define GODWIT_STALLED_H

#include <stdint.h>

/**
 * struct stalled - zeros at first
 * @since_ns: the first loss since RAM has come, by base/clock.h; 0: none
 * @left: units that were owed at the latest loss
 */
struct stalled {
	uint64_t since_ns, left;
};

/*
 * The link was lost at lost_ns, with so many units owed. More than before: another receiver has
 * taken over, and names all that may be missing, so nothing tells that no RAM has come. Return:
 * @since_ns.
 */
static inline uint64_t stalled_since(struct stalled *s, uint64_t left, uint64_t lost_ns)
{
	if (!s->since_ns || left != s->left)
		s->since_ns = lost_ns;
	s->left = left;
	return s->since_ns;
}

#endif
