/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * godwit: which guest pages changed since I asked last?
 *
 * One open file of /dev/godwit is one session, and a session watches one KVM VM:
 *
 *	ATTACH   name the VM by its file descriptor
 *	ADD_RAM  name each RAM file (tmpfs or hugetlbfs), or range of the VMM's private memory,
 *		 to be watched
 *	START    dirty logging goes on, the writer ledger goes on
 *	HARVEST  "what was written?", ORed into the dirty bitmap
 *	CLEAR    "I am about to read what is marked in this range: tell me of writes from now on"
 *	MAPPERS	 "which processes can write it?", to look at what the ledger does not see
 *	close()  dirty logging goes off again, in the background
 *
 * At the destination of a post-copy, a session has no VM; see struct godwit_keep:
 *
 *	KEEP	 name what the module keeps for this session
 *	UFFD	 "give me the userfaultfd of this process", which the module keeps as well
 *	KEEP_END all pages are there
 *	close()  without KEEP_END: page faults wait until another session takes over
 *
 * The dirty bitmap of every RAM is mapped from the session's own file descriptor,
 * read and write, shared: one bit per 4 KiB page of the *file*, or of the range (not of guest
 * physical memory), in little-endian 64-bit words; bit n of word w is page 64 * w + n.
 * HARVEST only sets bits; the caller clears a bit when it takes the page over. Both must
 * not run at the same time.
 *
 * The order that misses nothing: for every page, CLEAR first, then clear its bit, then read the
 * page, then send it. A write that comes after CLEAR is found by the next HARVEST. A page may be
 * reported that was not written; a written page is never left out. HARVEST costs a vCPU nothing.
 * CLEAR write-protects its pages, so the later it comes, the fewer writes it stops: what is written
 * between HARVEST and CLEAR is read with the rest.
 *
 * A hole that is punched into the file is no write: its pages may be reported before they read as
 * zeros, and not again. A caller that keeps a copy takes the file's holes for zeros at the end. So
 * it is with private memory that is given back (MADV_DONTNEED, MADV_FREE).
 *
 * Where "RAM file" stands below, private RAM is meant too, if nothing else is said.
 *
 * Privileges: opening needs CAP_SYS_ADMIN; ATTACH needs a descriptor of the VM, which only the
 * VMM has, or a process that may ptrace it (pidfd_getfd). Private RAM is the VMM's of that VM,
 * and the module tells which pages were written, not what they hold: to read it is between the
 * caller and ptrace's rules. UFFD needs an open /proc/PID/mem, which the kernel gives to processes
 * that may ptrace that one, and an open /dev/userfaultfd.
 *
 * Errors common to all calls: EBADF (not a file descriptor), EFAULT, EINVAL (an unknown
 * flag, a reserved field that is not 0, a range outside of the file), ENOTTY, EPERM,
 * EOWNERDEAD (the VM has exited), EINTR (killed while waiting).
 */
#ifndef _UAPI_LINUX_GODWIT_H
#define _UAPI_LINUX_GODWIT_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define GODWIT_ABI_VERSION	4
#define GODWIT_PAGE_SHIFT	12	/* a page is 4 KiB here, whatever maps it */

/* A row of the writer ledger: a class of writers and how it is seen. */
enum godwit_row {
	GODWIT_ROW_VCPU,	/* vCPUs and KVM itself: KVM's dirty log */
	GODWIT_ROW_MAPPING,	/* stores via any user mapping of the file: hardware dirty bits */
	GODWIT_ROW_BLOCK,	/* block devices reading into the file's pages: completions */
	GODWIT_ROW_UNMAP,	/* mappings that went away with their dirty bit: MMU notifier */
	GODWIT_ROW_CHANGE,	/* a memslot or a mapping appeared or vanished: all its pages */
	GODWIT_ROWS
};

/* The state of a session; a retired one is gone. */
enum godwit_state {
	GODWIT_STATE_NEW,	/* opened */
	GODWIT_STATE_ATTACHED,	/* has a VM */
	GODWIT_STATE_STARTED,	/* dirty log and ledger are on */
	GODWIT_STATE_RETIRING,	/* closed, or the VM has exited: gives back what it took */
	GODWIT_STATES
};

/* Where a session's time goes. */
enum godwit_phase {
	GODWIT_PHASE_SLOTS,	/* harvest: comparing slots and their mappings, switching logs on */
	GODWIT_PHASE_VCPU,	/* harvest: reading KVM's log */
	GODWIT_PHASE_MAPPING,	/* harvest: sweeping page tables, flushing TLBs */
	GODWIT_PHASE_COLLECT,	/* harvest: what the other rows have noted */
	GODWIT_PHASE_CLEAR,	/* GODWIT_CLEAR */
	GODWIT_PHASE_RETIRE,	/* switching logs off, without the pauses */
	GODWIT_PHASES
};

/**
 * struct godwit_attach - GODWIT_ATTACH
 * @vm_fd:	in: the VM's file descriptor (anon_inode:kvm-vm)
 * @flags:	in: 0; out: GODWIT_CAN_*, what this module can do beyond the first one of this ABI
 *		version, which leaves it 0
 * @abi:	out: GODWIT_ABI_VERSION of the module
 * @manual_protect: out: the VM's KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2 setting (0, 1 or 3).
 *		With 0, a KVM_GET_DIRTY_LOG of the VMM itself would steal from this
 *		session, so a caller that cannot rule that out should not go on.
 * @memslots:	out: how many memslots the VM has now
 * @logged:	out: how many of them have dirty logging on now, whatever switched it on
 *
 * A session that had this VM and is over, but still gives back what it took, is hurried and waited
 * for: once ATTACH returns, the VM's memslots are as that one found them.
 *
 * Errors: EBUSY (this session has a VM, or another session has this VM), EMEDIUMTYPE
 * (@vm_fd is no KVM VM), EINPROGRESS (some of its memory is still to come: a session has the
 * userfaultfd of its VMM, or has left it; a vCPU that waits for a page keeps KVM's memslots from
 * changing for as long), EOPNOTSUPP (the VM uses the dirty ring, or its memory is
 * encrypted or private to the guest).
 */
struct godwit_attach {
	__s32 vm_fd;
	__u32 flags;
	__u32 abi;
	__u32 manual_protect;
	__u32 memslots;
	__u32 logged;
};

#define GODWIT_CAN_PRIVATE	1U	/* ADD_RAM takes GODWIT_RAM_PRIVATE, NEXT_* take such RAM */
#define GODWIT_CAN_UFFD		2U	/* KEEP, UFFD and KEEP_END exist; else they answer ENOTTY */

/**
 * struct godwit_add_ram - GODWIT_ADD_RAM
 * @fd:		in: the RAM file, open for reading at least; -1 with GODWIT_RAM_PRIVATE
 * @flags:	in: 0, or GODWIT_RAM_PRIVATE
 * @index:	out: the RAM file's number in this session, from 0
 * @page_shift:	out: log2 of the file's native page size (12, 21, 30); of private RAM the smallest
 *		one, and 12 also where it has transparent huge pages
 * @npages:	in: how many 4 KiB pages of the file, from its start, are to be watched: as many as
 *		the RAM has that the caller knows of, however long the VMM has made the file
 *		meanwhile
 * @map_offset:	in, with GODWIT_RAM_PRIVATE: the address where the range begins in the VMM, a
 *		multiple of 4096; else ignored. out: where to mmap() this file's bitmap from the
 *		session's descriptor
 * @map_bytes:	out: how much to mmap(): a multiple of the host's page size
 *
 * Two bits a page are kept, and charged to the caller's memory cgroup.
 * Errors: EBUSY (the session has started), EEXIST (the file is here already, or some of the range),
 * ENOSPC (more than GODWIT_RAM_MAX files), EMEDIUMTYPE (not a tmpfs or hugetlbfs file), ERANGE (the
 * file has fewer than @npages pages), ENOMEM.
 *
 * GODWIT_RAM_PRIVATE: no file, but @npages pages of the memory of the process that created the VM,
 * the one whose addresses KVM's memslots have. Private memory of each kind: anonymous, of 4 KiB and
 * of transparent huge pages; private hugetlbfs pages, with a file or without; private mappings of
 * files on tmpfs or hugetlbfs, whose pages count when they have been copied (what a process writes
 * to the file itself is not seen). The range is one of addresses: what the VMM maps anew in it
 * counts as written throughout, and so does what it unmaps or moves away.
 * Errors, of what is mapped in the range: EADDRNOTAVAIL (nothing, in some of it), ENODEV (device
 * memory, PFN maps), ENOTUNIQ (a shared mapping: name its file), EMEDIUMTYPE (a private mapping of
 * another file), EOPNOTSUPP (a memslot there has its memory, or some of it, in a guest_memfd).
 * START and HARVEST answer the last four if the VMM has such things there later. Else ENOTCONN (not
 * attached yet), EEXIST, EINVAL (also @fd is not -1, or the range is no range of user addresses).
 */
struct godwit_add_ram {
	__s32 fd;
	__u32 flags;
	__u32 index;
	__u32 page_shift;
	__u64 npages;
	__u64 map_offset;
	__u64 map_bytes;
};

#define GODWIT_RAM_PRIVATE	1U

#define GODWIT_RAM_MAX	64

/**
 * struct godwit_start - GODWIT_START
 * @flags:	in: 0
 * @memslots:	out: memslots that are backed by the session's RAM files and logged now
 *
 * From here on every page counts as written until it is cleared.
 * Errors: EBUSY (started already, or another session has one of the RAM files, as where two VMs
 * share it: nothing has been changed then), ENOENT (no memslot uses any of the RAM files),
 * EINPROGRESS (a process has been punching holes into a RAM file, or writing to it, for a second),
 * EAGAIN, ENOSPC and EFBIG (see HARVEST), what ADD_RAM says of private RAM, and what
 * KVM_SET_USER_MEMORY_REGION answers.
 */
struct godwit_start {
	__u32 flags;
	__u32 memslots;
};

/**
 * struct godwit_harvest - GODWIT_HARVEST
 * @flags:	in: 0
 * @changes:	out: how often memslots or mappings were seen to change since START
 * @generation:	out: the number of this harvest, from 1
 * @pages:	out: bits that this call found, per row; one page may count in several rows, and
 *		what an earlier harvest set and the caller has not cleared counts again. Row UNMAP:
 *		not 0 if any page was unmapped, as before a hole is punched
 * @ns:		out: time spent in the call, nanoseconds
 *
 * No page is cleared in KVM, and no vCPU is stopped: pages written by vCPUs are reported again and
 * again until they are cleared. The other rows forget a write as soon as it is reported. Only the
 * log of a memslot that is new is switched on, as START does it.
 * Errors: ENODATA (not started); ENOMEM; EAGAIN (the VMM does not stop changing memslots, or a
 * process that has newly mapped a RAM file does not let go of its mmap_lock); ENOSPC (more mappings
 * of the RAM files than can be watched, or in private RAM than 1024, or more of these and private
 * RAMs behind the memslots than can be compared); EFBIG (a memslot shows pages of a RAM file behind
 * those that ADD_RAM named); what ADD_RAM says of private RAM. After any error the bits found so
 * far are set and nothing is lost: calling again reports the rest.
 */
struct godwit_harvest {
	__u32 flags;
	__u32 changes;
	__u64 generation;
	__u64 pages[GODWIT_ROWS];
	__u64 ns;
};

/**
 * struct godwit_range - GODWIT_CLEAR, GODWIT_NEXT_DATA, GODWIT_NEXT_PINNED
 * @ram:	in: number of the RAM file
 * @flags:	in: 0
 * @first_page:	in: start of the range, 4 KiB pages; NEXT_*: out: start of what was found
 * @npages:	in: length of the range, 4 KiB pages; NEXT_*: out: length of what was found
 *
 * GODWIT_CLEAR has KVM's dirty log forget and re-arm those pages of the range whose bit is set in
 * the dirty bitmap. The bitmap is not touched: the caller is about to take the bits and to read the
 * pages. Pages whose bit is not set stay as they are. Each call kicks all vCPUs, whatever it
 * clears: 64 MiB of marked pages at a time are a good measure.
 *
 * GODWIT_NEXT_DATA finds the first run of allocated pages in the range, without touching
 * them, on hugetlbfs, where lseek(SEEK_DATA) knows no holes. Errors: ENXIO (there is none),
 * EOPNOTSUPP (tmpfs: lseek does it).
 * Of private RAM it finds what the VMM has there: pages, also swapped out ones, and what the file
 * below a private mapping has; zero pages, which reading makes of what was never written, are
 * holes. A run may come in several pieces.
 *
 * GODWIT_NEXT_PINNED finds the first run of pages in the range that are pinned for DMA now: a
 * device may write them, and no row of the ledger sees that. Pins stay for as long as a device has
 * the memory (VFIO, registered buffers), or for one direct I/O: a page that is still pinned when it
 * is looked at again and again has one that stays. A page that has a thousand references for other
 * reasons is told as well. It looks at all pages that are there, as long as they are not pinned.
 * Errors: ENXIO (there is none).
 *
 * Errors: ENODATA (CLEAR before START).
 */
struct godwit_range {
	__u32 ram;
	__u32 flags;
	__u64 first_page;
	__u64 npages;
};

/**
 * struct godwit_mappers - GODWIT_MAPPERS
 * @pids:	in: address of an array of __u32
 * @room:	in: how many of them it has, GODWIT_MAPPERS_MAX at most
 * @count:	out: how many there are: the first @room of them are in the array
 * @flags:	in: 0
 * @reserved:	in: 0
 *
 * Which processes map a RAM file of the session such that their stores reach the file, the VMM
 * among them, as the last HARVEST (or START) has seen mappings: each process once, in no order to
 * rely on. Numbers are those of the caller's pid namespace. 0 stands for a process that this
 * namespace does not see, or for mappings that live though no process has them: a device holds
 * them, or their process is just being made or just exits. Processes that have exited are left out.
 * The call goes through all processes of the host once; nothing is kept out, and nothing changes.
 *
 * Errors: ENODATA (not started), EINVAL also for too much room, ENOMEM.
 */
struct godwit_mappers {
	__u64 pids;
	__u32 room;
	__u32 count;
	__u32 flags;
	__u32 reserved;
};

#define GODWIT_MAPPERS_MAX	65536

#define GODWIT_TOKEN_BYTES	16

/**
 * struct godwit_keep - GODWIT_KEEP
 * @token:	in: names the keep; 16 bytes of the caller's choice, not all 0
 * @flags:	in: 0: a new one; GODWIT_KEEP_TAKE: one that another session has left
 * @count:	out: how many userfaultfds it has
 *
 * A keep has the userfaultfds of one post-copy, one for each process that maps the guest's RAM,
 * such that they outlive the helper: when the last reference to a userfaultfd goes, the kernel lets
 * the faults that wait for it go on, and they find zeros. A session has one keep. If it is closed,
 * however its helper died, the keep is left, its faults wait, and a session may take it. A keep
 * ends with KEEP_END; one that is left ends also when all of its processes have gone. The module
 * cannot be unloaded while it keeps any userfaultfd (kept_userfaultfds in sysfs).
 *
 * After a takeover: UFFD for each process, by the same rights as before, and for no other (ENOENT:
 * it may be another guest's keep, which stays as it was); then UFFDIO_API, which answers EINVAL if
 * the former helper has called it, with the features that it chose; then UFFDIO_REGISTER of the
 * same mappings, which changes nothing where they are registered; then UFFDIO_WAKE of all of them:
 * faults that the former helper has read are not read again, but come again when they are woken.
 *
 * Errors: EBUSY (the session has a keep; or, TAKE: another session has this one, as it has while a
 * helper that was killed still exits), EEXIST (there is such a keep), ENOENT (TAKE: there is none),
 * ENOMEM.
 */
struct godwit_keep {
	__u8 token[GODWIT_TOKEN_BYTES];
	__u32 flags;
	__u32 count;
};

#define GODWIT_KEEP_TAKE	1U

/**
 * struct godwit_uffd - GODWIT_UFFD
 * @mem_fd:	in: /proc/PID/mem of the process, open for reading and writing
 * @dev_fd:	in: /dev/userfaultfd
 * @fd:		out: the process's userfaultfd, a new descriptor: close-on-exec, not blocking, and
 *		also for faults of the kernel's
 * @flags:	in: 0; out: 0, it is new; GODWIT_UFFD_KEPT, the keep had it already
 *
 * What is not registered, in any process that maps the RAM, reads zeros where a page is missing,
 * and makes a page of zeros of it for all: each such process needs its userfaultfd, and each of its
 * mappings to be registered, before it may touch one. A page that is copied through one is there
 * for all, but the faults of each wait for their own: UFFDIO_WAKE.
 *
 * The process is the one that the file was opened for, as the program that it was then: not a later
 * process of that number, nor what it became by exec.
 *
 * poll() of the session says POLLHUP, within about a second, when such a process has exited, or has
 * become another program: UFFD answers ESRCH for it. Then close its userfaultfd. A thread of the
 * kernel's that waits for a page of it (asynchronous page faults of KVM's) has no other way out,
 * and a process that is killed may wait for that thread.
 *
 * Errors: ENODATA (the session has no keep), EBADF also (@mem_fd is not open for both), EMEDIUMTYPE
 * (@mem_fd is no /proc/PID/mem, or of a /proc that does not show the caller), ENODEV (@dev_fd is
 * not /dev/userfaultfd), EOPNOTSUPP (this kernel has no userfaultfd, or keeps memory files in
 * another way), ESRCH (the process has gone, or is a thread of the kernel's), EBUSY (another keep
 * has its userfaultfd), ENOENT (the keep was taken, and has none of this process), ENOSPC (the keep
 * has GODWIT_UFFD_MAX), EMFILE, ENOMEM, and what a security module answers.
 */
struct godwit_uffd {
	__s32 mem_fd;
	__s32 dev_fd;
	__s32 fd;
	__u32 flags;
};

#define GODWIT_UFFD_KEPT	1U
#define GODWIT_UFFD_MAX		64

/*
 * GODWIT_KEEP_END: the module keeps nothing more for this session; the helper's own descriptors
 * still hold faults up. No argument (0).
 * Errors: ENODATA (the session has no keep).
 */

#define GODWIT_IOC_MAGIC	0xB7
#define GODWIT_ATTACH		_IOWR(GODWIT_IOC_MAGIC, 0x01, struct godwit_attach)
#define GODWIT_ADD_RAM		_IOWR(GODWIT_IOC_MAGIC, 0x02, struct godwit_add_ram)
#define GODWIT_START		_IOWR(GODWIT_IOC_MAGIC, 0x03, struct godwit_start)
#define GODWIT_HARVEST		_IOWR(GODWIT_IOC_MAGIC, 0x04, struct godwit_harvest)
#define GODWIT_CLEAR		_IOW(GODWIT_IOC_MAGIC, 0x05, struct godwit_range)
#define GODWIT_NEXT_DATA	_IOWR(GODWIT_IOC_MAGIC, 0x06, struct godwit_range)
#define GODWIT_MAPPERS		_IOWR(GODWIT_IOC_MAGIC, 0x07, struct godwit_mappers)
#define GODWIT_NEXT_PINNED	_IOWR(GODWIT_IOC_MAGIC, 0x08, struct godwit_range)
#define GODWIT_KEEP		_IOWR(GODWIT_IOC_MAGIC, 0x09, struct godwit_keep)
#define GODWIT_UFFD		_IOWR(GODWIT_IOC_MAGIC, 0x0a, struct godwit_uffd)
#define GODWIT_KEEP_END		_IO(GODWIT_IOC_MAGIC, 0x0b)

/*
 * Generic netlink: which processes are at work. Reading and listening need CAP_SYS_ADMIN in the
 * initial user namespace, and are possible in all network namespaces that belong to it. Process
 * numbers are those of the initial pid namespace.
 *
 *	GET_SESSION	request, with GODWIT_A_ID; as a dump without attributes: all
 *			sessions. Each answer is a SESSION message. Errors: ENOENT (no such
 *			session), EINVAL, EPERM.
 *	SESSION		answer: ID, STATE, OWNER_PID, OWNER_COMM; with a VM: VM_PID, MEMSLOTS,
 *			CHANGES, HARVESTS, CLEARS, PAGES, NS
 *	ATTACHED	event: a session has a VM
 *	SLOTS_CHANGED	event: a harvest has seen memslots or mappings change
 *	VM_GONE		event: the VM has exited under its session
 *	RETIRED		event: a session that had a VM is over; all has been given
 *			back, if the VM is there
 *
 * Events go to the multicast group GODWIT_GENL_GROUP and carry ID, VM_PID, OWNER_PID and CHANGES.
 */
#define GODWIT_GENL_NAME	"godwit"
#define GODWIT_GENL_VERSION	1
#define GODWIT_GENL_GROUP	"events"

enum godwit_cmd {
	GODWIT_CMD_UNSPEC,
	GODWIT_CMD_GET_SESSION,
	GODWIT_CMD_SESSION,
	GODWIT_CMD_ATTACHED,
	GODWIT_CMD_SLOTS_CHANGED,
	GODWIT_CMD_VM_GONE,
	GODWIT_CMD_RETIRED,
	GODWIT_CMDS
};

enum godwit_attr {
	GODWIT_A_UNSPEC,
	GODWIT_A_PAD,
	GODWIT_A_ID,		/* u32: session id, never used twice while the module is loaded */
	GODWIT_A_STATE,		/* u32: enum godwit_state */
	GODWIT_A_OWNER_PID,	/* u32: process that opened the session */
	GODWIT_A_OWNER_COMM,	/* string: its name then */
	GODWIT_A_VM_PID,	/* u32: process that created the VM */
	GODWIT_A_MEMSLOTS,	/* u32: memslots that show the session's RAM files */
	GODWIT_A_CHANGES,	/* u32: as in struct godwit_harvest */
	GODWIT_A_HARVESTS,	/* u64 */
	GODWIT_A_CLEARS,	/* u64: GODWIT_CLEAR calls */
	GODWIT_A_PAGES,		/* nested u64s, attr enum godwit_row + 1: pages reported, by row */
	GODWIT_A_NS,		/* nested u64s, attr enum godwit_phase + 1: nanoseconds, by phase */
	GODWIT_ATTRS
};

#endif /* _UAPI_LINUX_GODWIT_H */
