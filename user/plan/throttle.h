/* SPDX-License-Identifier: GPL-2.0-only */
/* How far vCPUs must be slowed for rounds to converge. Pure. */
#ifndef GODWIT_THROTTLE_H
#define GODWIT_THROTTLE_H

#include <stdint.h>

#define THROTTLE_MAX	99u	/* per cent of the time that a vCPU stands still */
#define THROTTLE_AUTO	100u	/* as a limit: as much as it takes */

/**
 * throttle_next() - after a round that did not help
 * @percent: in force during the round
 * @send_ns: what the link needs for all that the guest wrote in it
 * @round_ns: what the round took
 * Return: a share, at least @percent, with which the guest writes about half as fast as the link
 * sends: then each round leaves half of what the one before did.
 */
unsigned int throttle_next(unsigned int percent, uint64_t send_ns, uint64_t round_ns);

#endif
