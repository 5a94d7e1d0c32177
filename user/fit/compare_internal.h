/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Inside of fit_compare(): two values and what their difference means (compare.c), vCPUs
 * (compare_cpu.c), devices and what is in them (compare_devices.c).
 */
#ifndef GODWIT_COMPARE_INTERNAL_H
#define GODWIT_COMPARE_INTERNAL_H

#include <stdbool.h>

#include "fit/compare.h"

/**
 * struct fit_thing - what two values belong to
 * @type: of the device, for the policy
 * @name: as the operator knows it: "disk0 (virtio-blk-pci at pcie.0/05.0)"
 */
struct fit_thing {
	enum policy_part part;
	enum fit_class class;
	const char *type;
	const char *name;
};

/* Are they alike? In objects only common keys count: one version may know more (smp's modules). */
bool fit_alike(const json_t *a, const json_t *b);
/* Adds the finding for two values that differ, by the row; NULL: no row matches. */
void fit_judge(const struct fit_thing *t, const struct policy_row *row, const char *property,
	       const json_t *a, const json_t *b, struct findings *f);
/* Compares all properties that both have. */
void fit_compare_props(const struct fit_thing *t, const json_t *src, const json_t *dst,
		       const struct policy *p, struct findings *f);
/* A text in an object, or NULL. */
const char *fit_text(const json_t *object, const char *key);

void fit_compare_cpu(const json_t *src, const json_t *dst, const struct policy *p,
		     struct findings *f);
void fit_compare_devices(const json_t *src, const json_t *dst, const struct policy *p,
			 struct findings *f);

#endif
