/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Is the destination the machine that the guest was started on? Pure: two views and a table in,
 * differences out.
 *
 * A view is a JSON object; each end makes one of its QEMU (view.h):
 *
 *	machine		property: value
 *	vcpus		count, accelerator, the topology of each; model
 *	cpu		property: value, of one vCPU
 *	ram		RAM block: { address }
 *	private		block of QEMU's own RAM: bytes
 *	devices		place: { type, id, props: { property: value } }
 *	user-networks	how many
 *	usb		"BUS port PORT": what is plugged in there
 *	disks		place of the drive: { medium, bytes, read-only }
 *	virtio		place: { guest: features that it has taken, host: features that are offered }
 *	host		see host.h
 *
 * What one end does not say, an older QEMU or a hostile peer, is not compared. Whatever stands in
 * the destination's view, the worst that comes of it is a wrong refusal, or none.
 */
#ifndef GODWIT_COMPARE_H
#define GODWIT_COMPARE_H

#include <jansson.h>

#include "fit/findings.h"
#include "fit/policy.h"

/*
 * Two views that were made in brief: do their vCPUs differ, or may they, in what only a view with
 * all features has? Then those are to be made.
 */
bool fit_needs_features(const json_t *src, const json_t *dst);
void fit_compare(const json_t *src, const json_t *dst, const struct policy *p, struct findings *f);

#endif
