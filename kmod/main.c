// SPDX-License-Identifier: GPL-2.0-only
/*
 * godwit: a companion to KVM for live migration.
 *
 * It answers one question (which pages of a VM's RAM files changed since I asked last, whatever
 * wrote them?) and keeps one promise (however a session ends, the VM gets back the memslot flags it
 * had). The contract is in uapi/linux/godwit.h, the argument why no write is missed in harvest.c.
 */
#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/module.h>

#include "compat.h"
#include "internal.h"

/* The tracepoints are made here. */
#define CREATE_TRACE_POINTS
#include "trace.h"

struct workqueue_struct *godwit_wq;

#ifdef GODWIT_TESTS
static unsigned int unsafe_rows_off;
module_param(unsafe_rows_off, uint, 0600);
MODULE_PARM_DESC(unsafe_rows_off, "for tests: bit mask of writer-ledger rows to switch off (bits 5 to 8: safeguards of row mapping: TLB flush, rmap lock, dirty folio, MADV_FREE); pages WILL be missed, stores lost");

static unsigned int pause_in_harvest, paused_in_harvest;
module_param(pause_in_harvest, uint, 0600);
MODULE_PARM_DESC(pause_in_harvest, "for tests: harvests pause here until this changes: 1 between the look at the memslots and their logs, 2 before and 3 behind the last look at one whose flags change");
module_param(paused_in_harvest, uint, 0400);
MODULE_PARM_DESC(paused_in_harvest, "for tests: where a harvest pauses now; 0: nowhere");

static unsigned int pause_before_flush_ms;
module_param(pause_before_flush_ms, uint, 0600);
MODULE_PARM_DESC(pause_before_flush_ms, "for tests: between dirty bits that are taken and the flush");
static unsigned int paused_before_flush;
module_param(paused_before_flush, uint, 0400);
MODULE_PARM_DESC(paused_before_flush, "for tests: 1 while a sweep is in that pause");

static atomic_t flushed_cpus;
module_param_named(flushed_cpus, flushed_cpus.counter, int, 0400);
MODULE_PARM_DESC(flushed_cpus, "for tests: flushes of the module's so far, each once for each CPU that it has flushed");

/* The process that writes it sleeps so long, and holds its own mmap_lock. */
static int hold_mmap_lock(const char *val, const struct kernel_param *kp)
{
	unsigned int ms;
	int r = kstrtouint(val, 10, &ms);

	if (r || !current->mm)
		return r;
	mmap_write_lock(current->mm);
	kernel_param_unlock(THIS_MODULE);	/* others may write it, too */
	msleep(ms);
	mmap_write_unlock(current->mm);
	kernel_param_lock(THIS_MODULE);
	return 0;
}

static const struct kernel_param_ops hold_mmap_lock_ops = { .set = hold_mmap_lock };
module_param_cb(hold_mmap_lock_ms, &hold_mmap_lock_ops, NULL, 0200);
MODULE_PARM_DESC(hold_mmap_lock_ms, "for tests: the process that writes this holds its own mmap_lock so long");

bool godwit_row_on(unsigned int row)
{
	return !(READ_ONCE(unsafe_rows_off) & BIT(row));
}

void godwit_pause_in_harvest(enum godwit_pause where)
{
	unsigned int looks = 1500;	/* half a minute: whoever was to end it may have died */

	while (READ_ONCE(pause_in_harvest) == where && looks--) {
		WRITE_ONCE(paused_in_harvest, where);
		msleep(20);
	}
	WRITE_ONCE(paused_in_harvest, 0);
}

void godwit_pause_before_flush(void)
{
	unsigned int ms = READ_ONCE(pause_before_flush_ms);

	if (!ms)
		return;
	WRITE_ONCE(paused_before_flush, 1);
	msleep(ms);
	WRITE_ONCE(paused_before_flush, 0);
}

void godwit_cpu_flushed(void)
{
	atomic_inc(&flushed_cpus);
}
#endif

static int __init godwit_init(void)
{
	int r;

	/*
	 * A job runs on the caller's CPU, which is free while the caller waits, and
	 * not on a vCPU's. It may take long, or wait long for a VMM's locks, and must
	 * not hold up any other work.
	 */
	godwit_wq = alloc_workqueue("godwit", WQ_PERCPU | WQ_HIGHPRI | WQ_CPU_INTENSIVE, 0);
	if (!godwit_wq)
		return -ENOMEM;
	r = godwit_netlink_init();
	if (r)
		goto destroy_wq;
	r = godwit_chardev_init();
	if (r)
		goto exit_netlink;
	/* Until this is there, open() answers EAGAIN. */
	r = godwit_stats_init(godwit_chardev_device());
	if (r)
		goto exit_chardev;
	return 0;

exit_chardev:
	godwit_chardev_exit();
exit_netlink:
	godwit_netlink_exit();
destroy_wq:
	destroy_workqueue(godwit_wq);
	return r;
}

static void __exit godwit_exit(void)
{
	/*
	 * No file is open, and none can be opened any more; sessions that still retire
	 * are hurried and waited for.
	 */
	godwit_sessions_drain();
	godwit_keeps_exit();
	godwit_stats_exit();
	godwit_chardev_exit();
	godwit_netlink_exit();
	destroy_workqueue(godwit_wq);
	/* mmu_notifier_unregister() and the probes of block.c have waited for their own readers. */
}

module_init(godwit_init);
module_exit(godwit_exit);
MODULE_LICENSE("GPL");
MODULE_AUTHOR("The Godwit authors");
MODULE_DESCRIPTION("Dirty page harvesting for live migration of KVM guests");
MODULE_VERSION(GODWIT_VERSION);
