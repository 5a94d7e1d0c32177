/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Source and destination side by side, of one machine until a test changes one. Include after
 * cmocka.h.
 */
#ifndef GODWIT_FIT_BOTH_H
#define GODWIT_FIT_BOTH_H

#include <stdlib.h>
#include <string.h>

#include "fit/compare.h"
#include "fit/view.h"

static const char machine[] =
	"{\"machine\": {\"type\": \"pc-q35-7.2-machine\", \"hpet\": true},"
	" \"vcpus\": {\"count\": 1, \"model\": \"max-x86_64-cpu\", \"accelerator\": \"kvm\"},"
	" \"cpu\": {\"avx2\": true, \"fma\": true, \"sse4.1\": true,"
	"  \"sse4-1\": true, \"sse4_1\": true, \"x2apic\": false},"
	" \"ram\": {\"ram0\": {\"address\": 0}},"
	" \"devices\": {"
	"  \"pcie.0/03.0\": {\"type\": \"virtio-blk-pci\", \"id\": \"disk0\","
	"   \"plugged\": true, \"props\": {\"serial\": \"a\"}},"
	"  \"pcie.0/04.0\": {\"type\": \"virtio-scsi-pci\", \"plugged\": true, \"props\": {}},"
	"  \"pcie.0/04.0/virtio/scsi-hd lun=0\": {"
	"   \"type\": \"scsi-hd\", \"plugged\": true, \"props\": {}},"
	"  \"unattached/hpet\": {\"type\": \"hpet\", \"plugged\": false, \"props\": {}}},"
	" \"disks\": {\"pcie.0/03.0\": {\"medium\": true,"
	"  \"bytes\": 1048576, \"read-only\": false}},"
	" \"virtio\": {\"pcie.0/03.0\": {\"guest\": [\"VIRTIO_F_VERSION_1\", \"VIRTIO_BLK_F_MQ\"],"
	"   \"host\": [\"VIRTIO_F_VERSION_1\", \"VIRTIO_BLK_F_MQ\", \"VIRTIO_BLK_F_DISCARD\"]}}}";

struct both {
	json_t *src, *dst;
	struct findings f;
};

static inline int setup(void **state)
{
	struct both *b = calloc(1, sizeof(*b));

	b->src = json_loads(machine, 0, NULL);
	b->dst = json_loads(machine, 0, NULL);
	*state = b;
	return !b->src || !b->dst;
}

static inline int teardown(void **state)
{
	struct both *b = *state;

	json_decref(b->src);
	json_decref(b->dst);
	findings_free(&b->f);
	free(b);
	return 0;
}

static inline json_t *at(json_t *view, const char *a, const char *b)
{
	json_t *found = json_object_get(json_object_get(view, a), b);

	assert_non_null(found);
	return found;
}

static inline void compare(struct both *b)
{
	fit_compare(b->src, b->dst, &policy, &b->f);
}

/* There is exactly one difference of that kind with these words. */
static inline void assert_found(const struct both *b, enum fit_class class,
				enum fit_severity severity, const char *words)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < findings_kept(&b->f); i++)
		n += b->f.rows[i].class == class && b->f.rows[i].severity == severity &&
		     strstr(b->f.rows[i].text, words);
	for (unsigned int i = 0; n != 1 && i < findings_kept(&b->f); i++)
		print_error("%s\n", b->f.rows[i].text);
	assert_int_equal(n, 1);
}

#define TEST(fn)	cmocka_unit_test_setup_teardown(fn, setup, teardown)

#endif
