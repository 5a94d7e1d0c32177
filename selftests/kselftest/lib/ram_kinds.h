/* SPDX-License-Identifier: GPL-2.0-only */
/* Tests that run on each kind of RAM: one native page of it or more. Include after kst.h. */
#ifndef KST_RAM_KINDS_H
#define KST_RAM_KINDS_H

#include "rig.h"

/* The variants of a fixture. */
#define EACH_RAM_KIND(fixture)									\
FIXTURE_VARIANT(fixture) {									\
	enum ram_kind kind;									\
	uint64_t bytes;										\
};												\
FIXTURE_VARIANT_ADD(fixture, tmpfs_4k) { .kind = RAM_TMPFS, .bytes = 4 * MIB };			\
FIXTURE_VARIANT_ADD(fixture, tmpfs_huge) { .kind = RAM_THP, .bytes = 4 * MIB };			\
FIXTURE_VARIANT_ADD(fixture, hugetlbfs_2m) { .kind = RAM_2M, .bytes = 4 * MIB };		\
FIXTURE_VARIANT_ADD(fixture, hugetlbfs_1g) { .kind = RAM_1G, .bytes = GIB }

/* rig_ram() in their setup. */
#define ASSERT_RIG_RAM(rig)									\
	ASSERT_EQ(0, rig_ram(rig, variant->kind, variant->bytes)) {				\
		TH_LOG("no huge pages: the lab wants --hugepages 2M:4,1G:1");			\
	}

#endif /* KST_RAM_KINDS_H */
