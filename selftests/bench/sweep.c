// SPDX-License-Identifier: GPL-2.0-only
/*
 * Harvests of what the VMM itself has written: private RAM against a RAM file, in turns, each with
 * 4 KiB pages that are all there. The vCPU stands still.
 *
 *	clean		no page was written: page tables are read, and nothing else
 *	1 %		one page of 100, 100 apart
 *	all		each page
 *
 * For the goal a private sweep may take a tenth longer.
 */
#include <stdio.h>
#include <sys/mman.h>

#include "bench.h"

#define ROUNDS		9
#define GOAL		0.9
#define SLOT		1
#define MANUAL_INITIALLY_SET	3

enum kind { PRIVATE, SHARED, KINDS };

/**
 * struct side
 * @ram: a RAM file, or its @map and @bytes alone: anonymous memory
 */
struct side {
	struct vm vm;
	struct ram ram;
	struct session session;
};

static void map_anonymous(struct ram *r, uint64_t bytes)
{
	*r = (struct ram){ .bytes = bytes, .page = PAGE };
	r->map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	require(r->map != MAP_FAILED, "anonymous memory");
	require(!madvise(r->map, bytes, MADV_NOHUGEPAGE), "MADV_NOHUGEPAGE");
}

static void side_open(struct side *s, enum kind kind, uint64_t bytes)
{
	if (kind == PRIVATE)
		map_anonymous(&s->ram, bytes);
	else
		require(!ram_create(&s->ram, RAM_TMPFS, bytes), "a RAM file");
	for (uint64_t at = 0; at < bytes; at += PAGE)
		s->ram.map[at] = 1;
	vm_create_long(&s->vm, MANUAL_INITIALLY_SET);
	require(!vm_slot(&s->vm, SLOT, 0, TARGET_GPA, bytes, s->ram.map), "the RAM's slot");
	session_open(&s->session);
	require(!session_attach(&s->session, s->vm.fd), "ATTACH");
	require((kind == PRIVATE ? session_add_private(&s->session, s->ram.map, bytes) :
				   session_add_ram(&s->session, s->ram.fd)) == 0, "ADD_RAM");
	require(!session_start(&s->session), "START");
	session_settle(&s->session);
}

static void side_close(struct side *s, enum kind kind)
{
	session_close(&s->session);
	vm_destroy(&s->vm);
	if (kind == PRIVATE)
		munmap(s->ram.map, s->ram.bytes);
	else
		ram_destroy(&s->ram);
}

static uint64_t harvest_ns(struct side *s, uint64_t apart)
{
	uint64_t begin, ns, found, pages = 0;

	for (uint64_t p = 0; apart && p < s->ram.bytes / PAGE; p += apart, pages++)
		s->ram.map[p * PAGE]++;
	begin = now_ns();
	require(!session_harvest(&s->session, NULL), "HARVEST");
	ns = now_ns() - begin;
	found = bits_count(&s->session.ram[0]);
	bits_forget(&s->session.ram[0]);
	if (found < pages)
		die("%llu pages of %llu were found", (unsigned long long)found,
		    (unsigned long long)pages);
	return ns;
}

void bench_sweep(bool quick)
{
	static const struct {
		const char *name;
		uint64_t apart;		/* pages; 0: none is written */
	} cells[] = { { "clean", 0 }, { "1 %", 100 }, { "all", 1 } };
	uint64_t bytes = quick ? GIB / 4 : GIB, ns[KINDS][ROUNDS];
	struct side sides[KINDS];
	char name[64];

	for (enum kind k = 0; k < KINDS; k++)
		side_open(&sides[k], k, bytes);
	for (size_t c = 0; c < ARRAY_LEN(cells); c++) {
		for (unsigned int i = 0; i < ROUNDS * KINDS; i++) {
			enum kind k = (i / KINDS + i) % KINDS;

			ns[k][i / KINDS] = harvest_ns(&sides[k], cells[c].apart);
		}
		snprintf(name, sizeof(name), "sweep of private RAM: %llu MiB, %s",
			 (unsigned long long)(bytes / MIB), cells[c].name);
		result_add(name, "us", (double)median(ns[PRIVATE], ROUNDS) / 1e3, "shared",
			   (double)median(ns[SHARED], ROUNDS) / 1e3, GOAL);
	}
	for (enum kind k = 0; k < KINDS; k++)
		side_close(&sides[k], k);
}
