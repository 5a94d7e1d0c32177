// SPDX-License-Identifier: GPL-2.0-only
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "host.h"
#include "rig.h"

#define RIG_SLOT	1

int rig_ram(struct rig *rig, enum ram_kind kind, uint64_t bytes)
{
	memset(rig, 0, sizeof(*rig));
	return ram_create(&rig->ram, kind, bytes);
}

static void write_steps(struct rig *rig, void (*run)(struct rig *rig, unsigned int step))
{
	struct writer_steps *shared = rig->writer.shared;

	for (;;) {
		while (shared->taken == shared->step)
			sched_yield();
		run(rig, shared->taken + 1);
		shared->taken++;
	}
}

void rig_writer(struct rig *rig, void (*run)(struct rig *rig, unsigned int step))
{
	struct writer *w = &rig->writer;

	w->shared = mmap(NULL, sizeof(*w->shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	require(w->shared != MAP_FAILED, "shared memory");
	w->pid = fork_child();
	if (!w->pid)
		write_steps(rig, run);
}

void writer_step(struct writer *w)
{
	w->shared->step++;
}

void writer_step_wait(struct writer *w)
{
	writer_step(w);
	while (w->shared->taken != w->shared->step)
		sched_yield();
}

void writer_step_end(struct writer *w, bool exits)
{
	if (!exits) {
		writer_step_wait(w);
		return;
	}
	writer_step(w);
	wait_process(w->pid);
	w->pid = 0;
}

void rig_begin(struct rig *rig, unsigned int manual, uint64_t window)
{
	vm_create(&rig->vm, 1, manual);
	require(!vm_slot(&rig->vm, RIG_SLOT, 0, RAM_GPA, rig->ram.bytes, rig->ram.map),
		"the RAM's slot");
	vm_table_add(&rig->vm, RAM_GPA, window / PAGE);
	shadow_init(&rig->shadow, &rig->ram, window);
	session_begin(&rig->s, rig->vm.fd, &rig->ram.fd, 1);
	session_settle(&rig->s);
}

void rig_end(struct rig *rig)
{
	rows_on(ALL_ROWS);
	if (rig->writer.pid)
		kill_process(rig->writer.pid);
	session_close(&rig->s);
	shadow_free(&rig->shadow);
	ram_destroy(&rig->ram);
	vm_destroy(&rig->vm);
}

void rig_drop(struct rig *rig)
{
	require(!madvise(rig->ram.map, rig->ram.bytes, MADV_DONTNEED), "MADV_DONTNEED");
}

/* Has this process an entry of the mapping, by bit 63 of its pagemap? */
static bool any_entry(const struct ram *ram)
{
	int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t at, entry = 0;

	require(fd >= 0, "/proc/self/pagemap");
	for (at = 0; at < ram->bytes && !(entry >> 63); at += PAGE)
		require(pread(fd, &entry, sizeof(entry), (off_t)(((uintptr_t)ram->map + at) / PAGE * sizeof(entry))) == sizeof(entry),
			"/proc/self/pagemap");
	close(fd);
	return entry >> 63;
}

/*
 * The kernel passes over pages that it has not yet put on the lists that it reclaims from. Each CPU has some
 * of them, and lets go of them when a process asks for a reclaim there.
 */
void rig_page_out(struct rig *rig)
{
	unsigned int tries, cpus = (unsigned int)sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t before, one;

	require(!sched_getaffinity(0, sizeof(before), &before), "sched_getaffinity");
	require(!madvise(rig->ram.map, rig->ram.bytes, MADV_PAGEOUT), "MADV_PAGEOUT");
	for (tries = 0; any_entry(&rig->ram); tries++) {
		require(tries < 1000, "MADV_PAGEOUT that takes all pages out");
		CPU_ZERO(&one);
		CPU_SET(tries % cpus, &one);
		require(!sched_setaffinity(0, sizeof(one), &one), "sched_setaffinity");
		require(!madvise(rig->ram.map, rig->ram.bytes, MADV_PAGEOUT), "MADV_PAGEOUT");
	}
	require(!tries || !sched_setaffinity(0, sizeof(before), &before), "sched_setaffinity");
}

void rig_round(struct rig *rig, bool clear)
{
	require(!(clear ? session_sync(&rig->s, NULL) : session_harvest(&rig->s, NULL)),
		"a harvest");
	shadow_take(&rig->shadow, &rig->s.ram[0]);
}
