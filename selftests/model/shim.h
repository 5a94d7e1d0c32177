/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What kmod/ledger/dirtylog.c and kmod/internal.h take from the kernel's headers, for user space.
 * The Makefile puts it in place of each of them.
 */
#ifndef SHIM_H
#define SHIM_H

#include <errno.h>
#include <linux/kvm.h>
#include <linux/types.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

typedef __u8 u8;
typedef __u32 u32;
typedef __u64 u64;
typedef struct { long counter; } atomic64_t;

#define __rcu

#define TASK_COMM_LEN		16
#define BITS_PER_LONG		64
#define BITS_TO_LONGS(n)	(((n) + BITS_PER_LONG - 1) / BITS_PER_LONG)
#define DECLARE_BITMAP(name, n)	unsigned long name[BITS_TO_LONGS(n)]
#define DIV_ROUND_UP(n, d)	(((n) + (d) - 1) / (d))
#define IS_ALIGNED(n, a)	(((n) & ((a) - 1)) == 0)
#define min(a, b)		({ __auto_type a_ = (a); __auto_type b_ = (b); a_ < b_ ? a_ : b_; })
#define max(a, b)		({ __auto_type a_ = (a); __auto_type b_ = (b); a_ > b_ ? a_ : b_; })
#define min3(a, b, c)		({ __auto_type c_ = (c); __auto_type m_ = min(a, b); m_ < c_ ? m_ : c_; })
#define min_t(type, a, b)	min((type)(a), (type)(b))
#define hweight_long(w)		((unsigned int)__builtin_popcountl(w))

/* vCPUs go on whenever the code looks at memory that they, or KVM for them, may change. */
void sim_step(void);
#define READ_ONCE(x)		(sim_step(), *(const volatile __typeof__(x) *)&(x))
#define cond_resched()		sim_step()

#define GFP_KERNEL		0
#define kvmalloc(bytes, flags)	malloc((bytes) + (flags))
#define kvfree(p)		free(p)

struct list_head { struct list_head *next, *prev; };
struct mutex { int unused; };
struct kobject { int unused; };
struct kobj_type;
struct attribute_group;
struct work_struct;
struct delayed_work { int unused; };
struct file;
struct address_space;
struct rcu_head { int unused; };
struct mm_struct;

struct srcu_struct { int readers; };

static inline int srcu_read_lock(struct srcu_struct *srcu)
{
	sim_step();
	return srcu->readers++;
}

static inline void srcu_read_unlock(struct srcu_struct *srcu, int idx)
{
	srcu->readers = idx;
	sim_step();
}

struct kvm_memory_slot {
	unsigned long *dirty_bitmap;
};

struct kvm {
	struct srcu_struct srcu;
};

#endif /* SHIM_H */
