// SPDX-License-Identifier: GPL-2.0-only
/*
 * What each session has done, read-only, in /sys/class/misc/godwit/sessions/ID/;
 * docs/abi-sysfs.txt describes each file.
 *
 * The files take no lock: session->lock may be held for long, and is held by the task that removes
 * them. Numbers that belong together may be a harvest apart.
 */
#include <linux/device.h>
#include <linux/kobject.h>
#include <linux/ktime.h>
#include <linux/sysfs.h>

#include "internal.h"

static struct kobject *directory;

static const char *const state_names[GODWIT_STATES] = {
	[GODWIT_STATE_NEW] = "new",
	[GODWIT_STATE_ATTACHED] = "attached",
	[GODWIT_STATE_STARTED] = "started",
	[GODWIT_STATE_RETIRING] = "retiring",
};

/**
 * struct counter - one file
 * @offset: of a u64 in struct godwit_stats
 */
struct counter {
	struct kobj_attribute attr;
	size_t offset;
};

static struct godwit_session *session_of(struct kobject *kobj)
{
	return container_of(kobj, struct godwit_session, kobj);
}

static ssize_t counter_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	const struct counter *c = container_of(attr, struct counter, attr);
	const u64 *value = (void *)&session_of(kobj)->stats + c->offset;

	return sysfs_emit(buf, "%llu\n", READ_ONCE(*value));
}

#define COUNTER(_name, _member)						\
static struct counter _name = {						\
	.attr = __ATTR(_name, 0400, counter_show, NULL),			\
	.offset = offsetof(struct godwit_stats, _member),		\
}

COUNTER(harvests, harvests);
COUNTER(clears, clears);
COUNTER(pages_vcpu, pages[GODWIT_ROW_VCPU]);
COUNTER(pages_mapping, pages[GODWIT_ROW_MAPPING]);
COUNTER(pages_block, pages[GODWIT_ROW_BLOCK]);
COUNTER(pages_unmap, pages[GODWIT_ROW_UNMAP]);
COUNTER(pages_change, pages[GODWIT_ROW_CHANGE]);
COUNTER(slots_ns, ns[GODWIT_PHASE_SLOTS]);
COUNTER(vcpu_ns, ns[GODWIT_PHASE_VCPU]);
COUNTER(mapping_ns, ns[GODWIT_PHASE_MAPPING]);
COUNTER(collect_ns, ns[GODWIT_PHASE_COLLECT]);
COUNTER(clear_ns, ns[GODWIT_PHASE_CLEAR]);
COUNTER(retire_ns, ns[GODWIT_PHASE_RETIRE]);

static ssize_t state_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", state_names[godwit_session_state(session_of(kobj))]);
}

static ssize_t owner_pid_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", session_of(kobj)->owner_pid);
}

static ssize_t vm_pid_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%d\n", READ_ONCE(session_of(kobj)->vm_pid));
}

static ssize_t changes_show(struct kobject *kobj, struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(session_of(kobj)->changes));
}

static struct kobj_attribute state = __ATTR_RO_MODE(state, 0400);
static struct kobj_attribute owner_pid = __ATTR_RO_MODE(owner_pid, 0400);
static struct kobj_attribute vm_pid = __ATTR_RO_MODE(vm_pid, 0400);
static struct kobj_attribute changes = __ATTR_RO_MODE(changes, 0400);

static struct attribute *session_attrs[] = {
	&state.attr,
	&owner_pid.attr,
	&vm_pid.attr,
	&changes.attr,
	&harvests.attr.attr,
	&clears.attr.attr,
	&pages_vcpu.attr.attr,
	&pages_mapping.attr.attr,
	&pages_block.attr.attr,
	&pages_unmap.attr.attr,
	&pages_change.attr.attr,
	&slots_ns.attr.attr,
	&vcpu_ns.attr.attr,
	&mapping_ns.attr.attr,
	&collect_ns.attr.attr,
	&clear_ns.attr.attr,
	&retire_ns.attr.attr,
	NULL
};
ATTRIBUTE_GROUPS(session);

const struct kobj_type godwit_session_ktype = {
	.release = godwit_session_free,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = session_groups,
};

/* Adds the time since *since_ns, and sets that to now. Context: under session->lock. */
void godwit_stats_spent(struct godwit_session *s, enum godwit_phase phase, u64 *since_ns)
{
	u64 now = ktime_get_ns();

	s->stats.ns[phase] += now - *since_ns;
	*since_ns = now;
}

/* -EAGAIN: too early, see godwit_init(). The directory goes with kobject_del(). */
int godwit_stats_publish(struct godwit_session *s)
{
	struct kobject *parent = smp_load_acquire(&directory);	/* pairs with godwit_stats_init() */

	return parent ? kobject_add(&s->kobj, parent, "%u", s->id) : -EAGAIN;
}

int godwit_stats_init(struct device *dev)
{
	struct kobject *made = kobject_create_and_add("sessions", &dev->kobj);

	if (!made)
		return -ENOMEM;
	smp_store_release(&directory, made);	/* pairs with godwit_stats_publish() */
	return 0;
}

void godwit_stats_exit(void)
{
	kobject_put(directory);
}
