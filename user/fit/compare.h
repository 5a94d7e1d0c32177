/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Is the destination the machine that the guest was started on? Pure: two views and a table go in,
 * differences come out.
 *
 * A view is a JSON object; each end makes one of its QEMU (view.h):
 *
 *	machine		property: value
 *	vcpus		count, accelerator, the topology of each; model
 *	cpu		property: value, of one vCPU
 *	ram		RAM block: { address }
 *	private		block of QEMU's private RAM: bytes
 *	devices		place: { type, id, props: { property: value } }
 *	user-networks	how many
 *	usb		"BUS port PORT": what is plugged in there
 *	disks		place of the drive: { medium, bytes, read-only }
 *	virtio		place: { guest: features that it uses, host: features that are offered }
 *	host		see host.h
 *
 * What one end does not say, because its QEMU is older or its godwit hostile, is not compared.
 * Whatever stands in the destination's view, the worst effect is a refusal that is wrong, or
 * missing.
 */
#ifndef GODWIT_COMPARE_H
#define GODWIT_COMPARE_H

#include <jansson.h>

#include "fit/findings.h"
#include "fit/policy.h"

/*
 * Given two brief views: do their vCPUs differ, or may they differ, in what only a view with all
 * features has? Then such views must be made.
 */
bool fit_needs_features(const json_t *src, const json_t *dst);
void fit_compare(const json_t *src, const json_t *dst, const struct policy *p, struct findings *f);

#endif
