// SPDX-License-Identifier: GPL-2.0-only
/* Tunables, and one count, in /sys/class/misc/godwit/; docs/abi-sysfs.txt describes each. */
#include <linux/device.h>
#include <linux/sysfs.h>

#include "internal.h"

struct godwit_tunables godwit_tunables = {
	.retire_delay_ms = 100,
	.retire_pause_ms = 10,
	.retire_busy_percent = 90,
	.retire_busy_wait_ms = 1000,
};

/**
 * struct tunable - one file
 * @value: what it reads and writes
 * @max: from 0 to this
 */
struct tunable {
	struct device_attribute attr;
	unsigned int *value;
	unsigned int max;
};

static ssize_t tunable_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(*container_of(attr, struct tunable, attr)->value));
}

static ssize_t tunable_store(struct device *dev, struct device_attribute *attr, const char *buf,
			     size_t count)
{
	struct tunable *t = container_of(attr, struct tunable, attr);
	unsigned int v;
	int r = kstrtouint(buf, 10, &v);

	if (r)
		return r;
	if (v > t->max)
		return -ERANGE;
	WRITE_ONCE(*t->value, v);
	return count;
}

#define TUNABLE(_name, _max)						\
static struct tunable _name = {						\
	.attr = __ATTR(_name, 0644, tunable_show, tunable_store),	\
	.value = &godwit_tunables._name,				\
	.max = _max,							\
}

TUNABLE(retire_delay_ms, 60000);
TUNABLE(retire_pause_ms, 60000);
TUNABLE(retire_busy_percent, 100);
TUNABLE(retire_busy_wait_ms, 60000);

static ssize_t kept_userfaultfds_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", godwit_keep_count());
}

static DEVICE_ATTR_RO(kept_userfaultfds);

static struct attribute *godwit_attrs[] = {
	&retire_delay_ms.attr.attr,
	&retire_pause_ms.attr.attr,
	&retire_busy_percent.attr.attr,
	&retire_busy_wait_ms.attr.attr,
	&dev_attr_kept_userfaultfds.attr,
	NULL
};

static const struct attribute_group godwit_group = { .attrs = godwit_attrs };

const struct attribute_group *godwit_sysfs_groups[] = { &godwit_group, NULL };
