// SPDX-License-Identifier: GPL-2.0-only
/* Tunables, in /sys/class/misc/godwit/; docs/abi-sysfs.txt describes each. */
#include <linux/device.h>
#include <linux/sysfs.h>

#include "internal.h"

#define TUNABLE_MAX_MS	60000

static unsigned int retire_delay_ms = 100;
static unsigned int retire_pause_ms = 10;

unsigned int godwit_retire_delay_ms(void)
{
	return READ_ONCE(retire_delay_ms);
}

unsigned int godwit_retire_pause_ms(void)
{
	return READ_ONCE(retire_pause_ms);
}

static ssize_t store_ms(unsigned int *value, const char *buf, size_t count)
{
	unsigned int v;
	int r = kstrtouint(buf, 10, &v);

	if (r)
		return r;
	if (v > TUNABLE_MAX_MS)
		return -ERANGE;
	WRITE_ONCE(*value, v);
	return count;
}

#define TUNABLE_MS(name)								\
static ssize_t name##_show(struct device *dev, struct device_attribute *attr, char *buf)	\
{											\
	return sysfs_emit(buf, "%u\n", READ_ONCE(name));				\
}											\
static ssize_t name##_store(struct device *dev, struct device_attribute *attr,		\
			    const char *buf, size_t count)				\
{											\
	return store_ms(&name, buf, count);						\
}											\
static DEVICE_ATTR_RW(name)

TUNABLE_MS(retire_delay_ms);
TUNABLE_MS(retire_pause_ms);

static struct attribute *godwit_attrs[] = {
	&dev_attr_retire_delay_ms.attr,
	&dev_attr_retire_pause_ms.attr,
	NULL
};

static const struct attribute_group godwit_group = { .attrs = godwit_attrs };

const struct attribute_group *godwit_sysfs_groups[] = { &godwit_group, NULL };
