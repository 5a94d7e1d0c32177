// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <linux/godwit.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host.h"
#include "rig.h"

#define RAM_PAGES	64
#define SLOT(ram)	(1 + (ram))		/* the log of the second one is on before any session comes */
#define SLOT_EXTRA	(1 + RAMS)
#define GPA(ram)	(RAM_GPA + ((ram) << 24))

/* A page of each RAM file for each kind of writer. */
enum page {
	PAGE_VMM = 3,
	PAGE_OTHER = 17,
	PAGE_DISK = 33,
	PAGE_VCPU = 40,
};

static void map_others(struct rig *r)
{
	unsigned int i;

	for (i = 0; i < RAMS; i++) {
		if (r->other[i])
			continue;
		r->other[i] = mmap(NULL, r->ram[i].bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->ram[i].fd, 0);
		require(r->other[i] != MAP_FAILED, "one more mapping");
	}
}

static void unmap_others(struct rig *r)
{
	unsigned int i;

	for (i = 0; i < RAMS; i++)
		if (r->other[i])
			munmap(r->other[i], r->ram[i].bytes);
	memset(r->other, 0, sizeof(r->other));
}

static void set_slot(struct rig *r, unsigned int i)
{
	require(!vm_slot(&r->vm, SLOT(i), i ? KVM_MEM_LOG_DIRTY_PAGES : 0, GPA(i), r->ram[i].bytes, r->ram[i].map),
		"a memslot");
}

void rig_init(struct rig *r, const char *disk)
{
	unsigned int i;

	memset(r, 0, sizeof(*r));
	vm_create(&r->vm, 1, 3);
	for (i = 0; i < RAMS; i++) {
		require(!ram_create(&r->ram[i], RAM_TMPFS, RAM_PAGES * PAGE), "a RAM file");
		memset(r->ram[i].map, 1, r->ram[i].bytes);
		set_slot(r, i);
		vm_table_add(&r->vm, GPA(i) + PAGE_VCPU * PAGE, 1);
	}
	r->disk = open(disk, O_RDONLY | O_DIRECT | O_CLOEXEC);
	require(r->disk >= 0, disk);
	map_others(r);
	rig_write(r);
	r->before = file_number("/proc/self/statm");
}

int rig_open(struct rig *r)
{
	memset(&r->s, 0, sizeof(r->s));
	r->s.fd = open("/dev/godwit", O_RDWR | O_CLOEXEC);
	return r->s.fd < 0 ? -errno : 0;
}

int rig_attach(struct rig *r)
{
	return session_attach(&r->s, r->vm.fd);
}

int rig_add_ram(struct rig *r)
{
	unsigned int i = r->s.nr_rams;

	r->window[i] = (struct godwit_add_ram){ .fd = r->ram[i].fd, .npages = r->ram[i].bytes / PAGE };
	if (ioctl(r->s.fd, GODWIT_ADD_RAM, &r->window[i]))
		return -errno;
	r->s.ram[i] = (struct bitmap){ .npages = r->window[i].npages, .bytes = r->window[i].map_bytes };
	r->s.nr_rams++;
	return 0;
}

int rig_map(struct rig *r)
{
	unsigned int i;

	for (i = 0; i < r->s.nr_rams; i++) {
		struct bitmap *b = &r->s.ram[i];
		void *words;

		if (b->words)
			continue;
		words = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->s.fd, r->window[i].map_offset);
		if (words == MAP_FAILED)
			return -errno;
		b->words = words;
	}
	return 0;
}

int rig_start(struct rig *r)
{
	return session_start(&r->s);
}

/* A directory's links are its subdirectories and 2. */
static bool all_retired(void)
{
	struct stat st;

	return !stat(SYSFS "sessions", &st) && st.st_nlink == 2;
}

int rig_close(struct rig *r)
{
	unsigned int i;

	r->stage = NOTHING;
	for (i = 0; i < r->s.nr_rams; i++)
		if (r->s.ram[i].words)
			munmap(r->s.ram[i].words, r->s.ram[i].bytes);
	close(r->s.fd);
	for (i = 0; i < 1000 && !all_retired(); i++)
		sleep_ms(10);
	return i < 1000 ? 0 : -ETIMEDOUT;
}

void rig_reach(struct rig *r, enum stage stage)
{
	if (r->stage < OPENED && stage >= OPENED)
		require(!rig_open(r), "open");
	if (r->stage < ATTACHED && stage >= ATTACHED)
		require(!rig_attach(r), "GODWIT_ATTACH");
	if (r->stage < ADDED && stage >= ADDED)
		require(!rig_add_ram(r), "GODWIT_ADD_RAM");
	if (r->stage < STARTED && stage >= STARTED) {
		require(!rig_add_ram(r), "GODWIT_ADD_RAM");
		require(!rig_start(r), "GODWIT_START");
	}
	if (stage >= STARTED)
		require(!rig_map(r), "mmap of a bitmap");
	if (r->stage < stage)
		r->stage = stage;
}

void rig_settle(struct rig *r)
{
	map_others(r);
	session_settle(&r->s);
}

void rig_write(struct rig *r)
{
	static uint32_t round;
	unsigned int i;

	round++;
	for (i = 0; i < RAMS; i++) {
		uint8_t *map = r->ram[i].map;

		map[PAGE_VMM * PAGE] = round;
		if (r->other[i])
			r->other[i][PAGE_OTHER * PAGE] = round;
		require(pread(r->disk, map + PAGE_DISK * PAGE, PAGE, 0) == (ssize_t)PAGE, "a direct read");
	}
	unmap_others(r);
	/* So often that it picks each page, whatever the seed. */
	vcpu_batch(&r->vm, 0, round, round, 256);
}

void rig_change(struct rig *r)
{
	map_others(r);
	require(!vm_slot(&r->vm, SLOT_EXTRA, 0, GPA(RAMS), PAGE, r->ram[0].map), "one more memslot");
	r->extra = true;
}

const char *rig_missed(struct rig *r)
{
	static const struct {
		enum page page;
		const char *text;
	} written[] = {
		{ PAGE_VMM, "a page that the VMM wrote is missed" },
		{ PAGE_OTHER, "a page that was written through a mapping that went away is missed" },
		{ PAGE_DISK, "a page that a disk wrote is missed" },
		{ PAGE_VCPU, "a page that the vCPU wrote is missed" },
	};
	unsigned int i, n;

	for (i = 0; i < r->s.nr_rams; i++)
		for (n = 0; n < sizeof(written) / sizeof(written[0]); n++)
			if (!bit_set(&r->s.ram[i], written[n].page))
				return written[n].text;
	return NULL;
}

static const char *logs_restored(struct rig *r)
{
	if (r->extra) {
		if (vm_logged(&r->vm, SLOT_EXTRA))
			return "dirty logging stays on in a memslot that came late";
		require(!vm_slot(&r->vm, SLOT_EXTRA, 0, GPA(RAMS), 0, r->ram[0].map), "deleting a memslot");
		r->extra = false;
	}
	if (vm_logged(&r->vm, SLOT(0)))
		return "dirty logging stays on";
	return vm_logged(&r->vm, SLOT(1)) ? NULL : "dirty logging is off where it was on";
}

const char *rig_restored(struct rig *r)
{
	const char *wrong;

	if (r->stage != NOTHING && rig_close(r))
		return "the session does not retire";
	wrong = logs_restored(r);
	unmap_others(r);
	if (!wrong && file_number("/proc/self/statm") != r->before)
		wrong = "the VMM's mappings are not what they were";
	return wrong;
}

void rig_reset(struct rig *r)
{
	unsigned int i;

	rig_restored(r);
	for (i = 0; i < RAMS; i++)
		set_slot(r, i);
	r->before = file_number("/proc/self/statm");
}
