/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Types and prototypes, by owning file.
 *
 * Locks, outermost first; nothing takes an earlier one while it holds a later one:
 *
 *	lock			protects
 *	----			--------
 *	session->lock		everything in a session that is not listed below; held by the
 *				job or the retirement that runs, so KVM's and mm's own locks
 *				(slots_lock, mmap_lock, i_mmap_rwsem, anon_vma's rwsem, page table
 *				locks) come inside
 *	godwit_sessions_lock	the list of sessions, session->kvm, session->retiring
 *	keeps_lock		all keeps, and the userfaultfds in them; alone
 *	block_lock		the list of tracked RAM (writers; readers use RCU), and so which
 *				session has a file, or a range
 *	watch->lock (spin)	a watch's spans and its invalidations under way; taken inside
 *				MMU notifier callbacks
 *
 * session->stats, ->id, ->owner_*, ->vm_pid and counts are read without a lock, by sysfs and
 * netlink. ram->pending has no lock: bits are set atomically from any context and taken with xchg.
 * ram->dirty has none either: only a harvest sets bits, and its caller promised (uapi) to keep its
 * own hands off meanwhile; if it lies it harms its own bitmap only.
 */
#ifndef GODWIT_INTERNAL_H
#define GODWIT_INTERNAL_H

#include <linux/completion.h>
#include <linux/fs.h>
#include <linux/godwit.h>
#include <linux/kobject.h>
#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/sched.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

struct kvm;
struct kvm_memory_slot;
struct poll_table_struct;

#define GODWIT_STRIPES	1024

/**
 * struct godwit_ram - a RAM file, or a range of private RAM
 * @session_id: the session that it belongs to, and
 * @index: its number there; for the trace
 * @addr: private RAM: where it begins in the VMM; 0: a file
 * @mm: private RAM: the VMM's. Compared only; the session keeps it
 * @areas: private RAM: its VMAs as the last sweep has published them; written
 *	by jobs, readers use RCU
 * @file: keeps the page cache; dropped when the session retires, so that an
 *	exiting VMM frees its memory
 * @mapping: the page cache: the key by which writers are recognized. Compared only, never
 *	followed, once @file is gone
 * @npages: 4 KiB pages that are watched, from the start
 * @page_shift: of the native page; of the smallest one in private RAM
 * @words: unsigned longs in each bitmap
 * @dirty: what the helper maps: 1 bit a page
 * @pending: what the rows that are told of writes have noted since the last harvest: 1 bit a page
 * @noted: per row, how many bits of @pending were newly set since the last harvest; of row
 *	"unmap" also what was owed, once for each mapping, new or not
 * @unmapped: pages were unmapped since then, newly set or not
 * @stripes: 1 bit for each 1/GODWIT_STRIPES of @pending: whether there may be a bit in it
 * @node: in block.c's list
 */
struct godwit_ram {
	u32 session_id;
	u32 index;
	unsigned long addr;
	struct mm_struct *mm;
	struct godwit_areas __rcu *areas;
	struct file *file;
	struct address_space *mapping;
	u64 npages;
	unsigned int page_shift;
	unsigned long words;
	unsigned long *dirty;
	unsigned long *pending;
	atomic64_t noted[GODWIT_ROWS];
	bool unmapped;
	DECLARE_BITMAP(stripes, GODWIT_STRIPES);
	struct list_head node;
};

#define GODWIT_SPACES	2	/* KVM's address spaces on x86: the guest's, and that of SMM */

/**
 * struct godwit_slot - a memslot that the guest may write
 * @as_id: KVM address space (1 is SMM's view on x86)
 * @id: slot number in it
 * @flags: what KVM has now
 * @ours: its log was switched on by us: retirement switches it off, whether or not the slot shows
 *	our RAM files by then
 * @first_piece: its first one in godwit_view.pieces
 * @nr_pieces: 0: it shows none of our RAM files
 * @identity: distinguishes the slot from a later one with the same numbers (see slot_flags.c)
 */
struct godwit_slot {
	u32 as_id;
	u32 id;
	u32 flags;
	bool ours;
	unsigned int first_piece;
	unsigned int nr_pieces;
	u64 base_gfn;
	u64 npages;
	u64 hva;
	const void *identity;
};

/**
 * struct godwit_piece - a stretch of a memslot that shows a stretch of a RAM file
 * @slot: index in godwit_view.slots
 * @ram: index in session->rams
 * @first: first page, in the slot
 * @pgoff: the same page, in the file
 */
struct godwit_piece {
	u32 slot;
	u32 ram;
	u64 first;
	u64 npages;
	u64 pgoff;
};

/**
 * struct godwit_view - the memslots as they were at one moment
 * @slots: by address space and guest physical address
 * @pieces: in the order of their slots, and in each slot by address
 * @nr_shown: how many slots show our RAM files
 * @generation: of KVM's memslots, by address space; our own steps included
 */
struct godwit_view {
	struct godwit_slot *slots;
	struct godwit_piece *pieces;
	unsigned int nr_slots;
	unsigned int nr_pieces;
	unsigned int nr_shown;
	u64 generation[GODWIT_SPACES];
};

/* What a session has done: written under session->lock, read without it. */
struct godwit_stats {
	u64 harvests;
	u64 clears;
	u64 pages[GODWIT_ROWS];
	u64 ns[GODWIT_PHASES];
};

/**
 * struct godwit_session - one open /dev/godwit
 * @kobj: its directory in sysfs, and the reference count: the open file, each job, and the list
 *	(until retired) hold one each
 * @id: never used twice
 * @owner_pid: the process that opened it; the initial pid namespace's number, as @vm_pid
 * @vm_pid: the process that created the VM; 0 before ATTACH
 * @vm_gone: the VM's mm is being torn down: nothing to give back
 * @kept_gone: a process of its keep has gone; written under keeps_lock
 * @retiring: retirement was asked for (protected by godwit_sessions_lock)
 * @hurry: a task waits for the VM: no pauses
 * @tracked: block.c knows the RAM files
 * @vm_file: keeps the VM's struct kvm
 * @mm: the VM's mm, by mmgrab: never keeps its memory
 * @changes: how often the view or the mappings changed since START
 * @changed_jiffies: when memslots were last seen to change
 * @sweeps: number of the mapping sweep, from 1
 * @wait_ns: how long it may still wait for mmap_locks of processes that have newly mapped RAM
 */
struct godwit_session {
	struct kobject kobj;
	struct list_head node;
	u32 id;
	pid_t owner_pid;
	char owner_comm[TASK_COMM_LEN];
	pid_t vm_pid;
	struct mutex lock;	/* see the table above */
	enum godwit_state state;
	bool vm_gone;
	bool kept_gone;
	bool retiring;
	bool hurry;
	bool tracked;
	struct file *vm_file;
	struct kvm *kvm;
	struct mm_struct *mm;
	struct godwit_ram *rams[GODWIT_RAM_MAX];
	unsigned int nr_rams;
	struct godwit_view view;
	struct list_head watches;
	unsigned int nr_spans;
	u32 changes;
	unsigned long changed_jiffies;
	u64 sweeps;
	u64 wait_ns;
	u64 generation;
	struct godwit_stats stats;
	struct delayed_work retire;
};

/* main.c */
extern struct workqueue_struct *godwit_wq;
/* Where a test lets a harvest pause; the numbers are a parameter's. */
enum godwit_pause {
	GODWIT_PAUSE_SLOTS_SEEN = 1,	/* their logs are read next */
	GODWIT_PAUSE_LAST_LOOK,		/* is next, at a slot whose flags change */
	GODWIT_PAUSE_FLAGS,		/* change next */
};

/*
 * Test hook, only in a module that was built for tests: bit n of a parameter switches row n of the
 * ledger off. Root only; pages will be missed.
 */
#ifdef GODWIT_TESTS
bool godwit_row_on(unsigned int row);
/* Holds open, at one place, the time in which a VMM may change slots that are looked at. */
void godwit_pause_in_harvest(enum godwit_pause where);
/* Holds open the time in which CPUs may have translations that outlive a dirty bit. */
void godwit_pause_before_flush(void);
/* Counts, as no test can tell one call of all CPUs from another. Context: may not sleep. */
void godwit_cpu_flushed(void);
#else
static inline void godwit_cpu_flushed(void)
{
}

static inline void godwit_pause_before_flush(void)
{
}

static inline void godwit_pause_in_harvest(enum godwit_pause where)
{
}

static inline bool godwit_row_on(unsigned int row)
{
	return true;
}
#endif
/* No rows: what the mapping row must not do without, for the same hook. */
enum godwit_safeguard {
	GODWIT_SAFE_FLUSH = GODWIT_ROWS,	/* the TLB flush */
	GODWIT_SAFE_RMAP,			/* rmap is kept out until then */
	GODWIT_SAFE_FOLIO,			/* the folio is marked dirty */
	GODWIT_SAFE_LAZY,			/* what MADV_FREE made clean is dirty again */
};

/* chardev.c */
struct device;
int godwit_chardev_init(void);
struct device *godwit_chardev_device(void);
void godwit_chardev_exit(void);

/* session.c */
extern struct mutex godwit_sessions_lock;
struct godwit_session *godwit_session_new(void);
void godwit_session_get(struct godwit_session *s);
void godwit_session_put(struct godwit_session *s);
void godwit_session_free(struct kobject *kobj);
int godwit_session_attach(struct godwit_session *s, struct godwit_attach *arg,
			  struct file *vm_file);
void godwit_session_retire(struct godwit_session *s, unsigned int delay_ms);
void godwit_session_retired(struct godwit_session *s);
enum godwit_state godwit_session_state(const struct godwit_session *s);
/* The session with the lowest id from id on, with a reference; NULL: there is none. */
struct godwit_session *godwit_session_next(u32 id);
bool godwit_session_hurry(u32 id);
void godwit_sessions_drain(void);
bool godwit_session_hurried(const struct godwit_session *s);
void godwit_session_pause(struct godwit_session *s, unsigned int ms);

/* Bitmaps and page tables are mostly empty: a cache line of them is skipped with one test. */
#define GODWIT_LINE_WORDS	8

/*
 * What is set in any word of the line; written out, since gcc leaves it a loop, which
 * takes four times as long.
 */
static inline unsigned long godwit_line(const unsigned long *w)
{
	return READ_ONCE(w[0]) | READ_ONCE(w[1]) | READ_ONCE(w[2]) | READ_ONCE(w[3]) |
	       READ_ONCE(w[4]) | READ_ONCE(w[5]) | READ_ONCE(w[6]) | READ_ONCE(w[7]);
}

/* ram.c */
struct godwit_ram *godwit_ram_new(struct file *file, u64 npages);
struct godwit_ram *godwit_ram_new_private(unsigned long addr, u64 npages, unsigned int page_shift);
bool godwit_ram_overlaps(const struct godwit_ram *a, const struct godwit_ram *b,
			 unsigned int shift);
void godwit_ram_free(struct godwit_ram *ram);
void godwit_ram_drop_file(struct godwit_ram *ram);
u64 godwit_ram_mark(struct godwit_ram *ram, u64 first, u64 npages);
u64 godwit_ram_mark_changed(struct godwit_ram *ram, u64 first, u64 npages);

/* kvm_ioctl.c */
bool godwit_is_kvm_vm(struct file *file);
int godwit_borrow_mm(struct godwit_session *s);
void godwit_return_mm(struct godwit_session *s);

/**
 * struct godwit_scratch - a few pages of the VM's own mm, for the arguments of an ioctl
 * @uaddr: where; private anonymous memory, mapped by the first ioctl of a job and until its
 *	end; else 0, as at first
 *
 * Nothing is ever read back from it: a VMM that writes there changes what KVM does to its own VM.
 */
struct godwit_scratch {
	unsigned long uaddr;
};

#define GODWIT_CLEAR_PAGES	(1UL << 22)	/* 4 KiB pages in one KVM_CLEAR_DIRTY_LOG: 16 GiB */

void godwit_scratch_unmap(struct godwit_scratch *sc);
int godwit_kvm_refuse_encrypted(struct godwit_session *s);
int godwit_kvm_stage_region(struct godwit_scratch *sc, const struct godwit_slot *slot, u32 flags,
			    u64 npages);
int godwit_kvm_set_region(struct godwit_session *s, struct godwit_scratch *sc);
int godwit_kvm_clear(struct godwit_session *s, struct godwit_scratch *sc,
		     const struct godwit_slot *slot, u64 first, u64 npages,
		     const unsigned long *bits);

/* slots.c */
int godwit_slots_refresh(struct godwit_session *s, struct godwit_scratch *sc, u64 *changed_pages);
void godwit_view_free(struct godwit_view *v);
bool godwit_slots_guest_memfd(struct kvm *kvm, unsigned long start, unsigned long end);
unsigned int godwit_slots_count(struct kvm *kvm, unsigned int *logged);

/* pieces.c */
/* Room for pieces, and how many mappings and private RAMs may still be looked at. */
struct godwit_budget {
	unsigned int max_pieces;
	unsigned int looks;
};

int godwit_pieces_of_slot(struct godwit_session *s, struct godwit_view *v, unsigned int n,
			  struct godwit_budget *b);
int godwit_pieces_mark_hidden(struct godwit_session *s, const struct godwit_view *v, u32 as_id,
			      u64 *marked);

/* slot_flags.c */
#define GODWIT_SETTLE_MS	20
#define GODWIT_SHOWS_WRITES(flags)	(!((flags) & (KVM_MEM_READONLY | KVM_MEMSLOT_INVALID)))
const struct kvm_memory_slot *godwit_slot_find(struct godwit_session *s,
					       const struct godwit_slot *slot);
const void *godwit_slot_identity(const struct kvm_memory_slot *ks);
int godwit_slot_set_flags(struct godwit_session *s, struct godwit_scratch *sc,
			  struct godwit_slot *slot, u32 flags);
void godwit_slots_settle(struct godwit_session *s, unsigned int ms);
void godwit_slots_generation(struct godwit_session *s, u64 *generation);
bool godwit_slots_changed(struct godwit_session *s, const u64 *since);

/* harvest.c: jobs, run under session->lock */
int godwit_job_start(struct godwit_session *s, void *arg);
int godwit_job_harvest(struct godwit_session *s, void *arg);
int godwit_job_clear(struct godwit_session *s, void *arg);

/* next.c; called under session->lock */
int godwit_next_data(struct godwit_session *s, struct godwit_ram *ram, struct godwit_range *range);
int godwit_next_pinned(struct godwit_session *s, struct godwit_ram *ram,
		       struct godwit_range *range);

#include "ledger/ledger.h"

/* uffd.c */
struct file *godwit_uffd_open_mem(int fd, struct mm_struct **mm);
struct file *godwit_uffd_open_dev(int fd);
struct file *godwit_uffd_make(struct mm_struct *mm, struct file *dev);
bool godwit_uffd_mm_lives(struct mm_struct *mm);

/* keep.c */
int godwit_keep_begin(struct godwit_session *s, struct godwit_keep *a);
struct file *godwit_keep_uffd(struct godwit_session *s, struct godwit_uffd *a);
int godwit_keep_end(struct godwit_session *s);
void godwit_keep_leave(struct godwit_session *s);
__poll_t godwit_keep_poll(struct file *file, struct poll_table_struct *wait);
unsigned int godwit_keep_count(void);
bool godwit_keep_has(const struct mm_struct *mm);
void godwit_keeps_exit(void);

/* retire.c */
void godwit_retire_work(struct work_struct *work);

/* sysfs.c */
extern const struct attribute_group *godwit_sysfs_groups[];
/* Each may change at any time. */
struct godwit_tunables {
	unsigned int retire_delay_ms;
	unsigned int retire_pause_ms;
	unsigned int retire_busy_percent;
	unsigned int retire_busy_wait_ms;
};

extern struct godwit_tunables godwit_tunables;

/* stats.c */
extern const struct kobj_type godwit_session_ktype;
int godwit_stats_init(struct device *dev);
void godwit_stats_exit(void);
int godwit_stats_publish(struct godwit_session *s);
void godwit_stats_spent(struct godwit_session *s, enum godwit_phase phase, u64 *since_ns);

/* netlink.c */
int godwit_netlink_init(void);
void godwit_netlink_exit(void);
void godwit_netlink_event(const struct godwit_session *s, enum godwit_cmd cmd);

#endif /* GODWIT_INTERNAL_H */
