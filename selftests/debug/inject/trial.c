// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <linux/godwit.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host.h"
#include "trial.h"

#define RAM_PAGES	64
#define PRIVATE		1	/* the second RAM is no file, but the VMM's own memory */
#define SLOT(ram)	(1 + (ram))	/* the second one's log is on before any session comes */
#define SLOT_EXTRA	(1 + RAMS)
#define GPA(ram)	(RAM_GPA + ((ram) << 24))

/* A page of each RAM for each kind of writer. */
enum page {
	PAGE_VMM = 3,
	PAGE_OTHER = 17,
	PAGE_DISK = 33,
	PAGE_VCPU = 40,
};

static void map_others(struct trial *t)
{
	unsigned int i;

	for (i = 0; i < RAMS; i++) {
		if (t->other[i] || i == PRIVATE)
			continue;
		t->other[i] = mmap(NULL, t->ram[i].bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
				   t->ram[i].fd, 0);
		require(t->other[i] != MAP_FAILED, "one more mapping");
	}
}

static void unmap_others(struct trial *t)
{
	unsigned int i;

	for (i = 0; i < RAMS; i++)
		if (t->other[i])
			munmap(t->other[i], t->ram[i].bytes);
	memset(t->other, 0, sizeof(t->other));
}

static void set_slot(struct trial *t, unsigned int i)
{
	require(!vm_slot(&t->vm, SLOT(i), i ? KVM_MEM_LOG_DIRTY_PAGES : 0, GPA(i), t->ram[i].bytes,
			 t->ram[i].map),
		"a memslot");
}

static void map_private(struct ram *ram)
{
	*ram = (struct ram){ .fd = -1, .bytes = RAM_PAGES * PAGE, .page = PAGE };
	ram->map = mmap(NULL, ram->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			0);
	require(ram->map != MAP_FAILED, "private RAM");
}

void trial_init(struct trial *t, const char *disk)
{
	unsigned int i;

	memset(t, 0, sizeof(*t));
	vm_create(&t->vm, 1, 3);
	for (i = 0; i < RAMS; i++) {
		if (i == PRIVATE)
			map_private(&t->ram[i]);
		else
			require(!ram_create(&t->ram[i], RAM_TMPFS, RAM_PAGES * PAGE), "a RAM file");
		memset(t->ram[i].map, 1, t->ram[i].bytes);
		set_slot(t, i);
		vm_table_add(&t->vm, GPA(i) + PAGE_VCPU * PAGE, 1);
	}
	t->disk = open(disk, O_RDONLY | O_DIRECT | O_CLOEXEC);
	require(t->disk >= 0, disk);
	map_others(t);
	trial_write(t);
	t->before = file_number("/proc/self/statm");
}

int trial_open(struct trial *t)
{
	return session_try_open(&t->s);
}

int trial_attach(struct trial *t)
{
	return session_attach(&t->s, t->vm.fd);
}

int trial_add_ram(struct trial *t)
{
	unsigned int i = t->s.nr_rams;
	const struct ram *ram = &t->ram[i];
	int index;

	if (i == PRIVATE)
		index = session_add_private_unmapped(&t->s, ram->map, ram->bytes);
	else
		index = session_add_unmapped(&t->s, ram->fd, ram->bytes / PAGE);
	return index < 0 ? index : 0;
}

int trial_map(struct trial *t)
{
	return session_map(&t->s);
}

int trial_start(struct trial *t)
{
	return session_start(&t->s);
}

int trial_keep(struct trial *t)
{
	struct godwit_keep a = { .token = { 1 } };

	if (ioctl(t->s.fd, GODWIT_KEEP, &a))
		return -errno;
	t->kept = true;
	return 0;
}

int trial_keep_end(struct trial *t)
{
	if (ioctl(t->s.fd, GODWIT_KEEP_END, 0))
		return -errno;
	t->kept = false;
	return 0;
}

int trial_close(struct trial *t)
{
	if (t->kept)
		require(!trial_keep_end(t), "GODWIT_KEEP_END");
	t->stage = NOTHING;
	session_close(&t->s);
	return sessions_wait_none_within(10000);
}

void trial_reach(struct trial *t, enum stage stage)
{
	if (t->stage < OPENED && stage >= OPENED)
		require(!trial_open(t), "open");
	if (t->stage < ATTACHED && stage >= ATTACHED)
		require(!trial_attach(t), "GODWIT_ATTACH");
	if (t->stage < ADDED && stage >= ADDED)
		require(!trial_add_ram(t), "GODWIT_ADD_RAM");
	if (t->stage < STARTED && stage >= STARTED) {
		require(!trial_add_ram(t), "GODWIT_ADD_RAM");
		require(!trial_start(t), "GODWIT_START");
	}
	if (stage >= STARTED)
		require(!trial_map(t), "mmap of a bitmap");
	if (t->stage < stage)
		t->stage = stage;
}

void trial_settle(struct trial *t)
{
	map_others(t);
	session_settle(&t->s);
}

void trial_write(struct trial *t)
{
	static uint32_t round;
	unsigned int i;

	round++;
	for (i = 0; i < RAMS; i++) {
		uint8_t *map = t->ram[i].map;

		map[PAGE_VMM * PAGE] = round;
		if (t->other[i])
			t->other[i][PAGE_OTHER * PAGE] = round;
		if (i == PRIVATE) {
			map[PAGE_OTHER * PAGE] = round;
			madvise(map + PAGE_OTHER * PAGE, PAGE, MADV_DONTNEED);
		}
		require(pread(t->disk, map + PAGE_DISK * PAGE, PAGE, 0) == (ssize_t)PAGE,
			"a direct read");
	}
	unmap_others(t);
	/* So often that it picks each page, whatever the seed. */
	vcpu_batch(&t->vm, 0, round, round, 256);
}

void trial_change(struct trial *t)
{
	map_others(t);
	require(!vm_slot(&t->vm, SLOT_EXTRA, 0, GPA(RAMS), PAGE, t->ram[0].map),
		"one more memslot");
	t->extra = true;
}

const char *trial_missed(struct trial *t)
{
	static const struct {
		enum page page;
		const char *text;
	} written[] = {
		{ PAGE_VMM, "a page that the VMM wrote is missed" },
		{ PAGE_OTHER,
		  "a page that was written through a mapping that went away is missed" },
		{ PAGE_DISK, "a page that a disk wrote is missed" },
		{ PAGE_VCPU, "a page that the vCPU wrote is missed" },
	};
	unsigned int i, n;

	for (i = 0; i < t->s.nr_rams; i++)
		for (n = 0; n < sizeof(written) / sizeof(written[0]); n++)
			if (!bit_set(&t->s.ram[i], written[n].page))
				return written[n].text;
	return NULL;
}

static const char *logs_restored(struct trial *t)
{
	if (t->extra) {
		if (vm_logged(&t->vm, SLOT_EXTRA))
			return "dirty logging stays on in a memslot that came late";
		require(!vm_slot(&t->vm, SLOT_EXTRA, 0, GPA(RAMS), 0, t->ram[0].map),
			"deleting a memslot");
		t->extra = false;
	}
	if (vm_logged(&t->vm, SLOT(0)))
		return "dirty logging stays on";
	return vm_logged(&t->vm, SLOT(1)) ? NULL : "dirty logging is off where it was on";
}

const char *trial_restored(struct trial *t)
{
	const char *wrong;

	if (t->stage != NOTHING && trial_close(t))
		return "the session does not retire";
	wrong = logs_restored(t);
	unmap_others(t);
	if (!wrong && file_number("/proc/self/statm") != t->before)
		wrong = "the VMM's mappings are not what they were";
	if (!wrong && file_number(SYSFS "kept_userfaultfds"))
		wrong = "a userfaultfd is still kept";
	return wrong;
}

void trial_reset(struct trial *t)
{
	unsigned int i;

	trial_restored(t);
	for (i = 0; i < RAMS; i++)
		set_slot(t, i);
	t->before = file_number("/proc/self/statm");
}
