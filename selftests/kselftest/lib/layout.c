// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <stdlib.h>

#include "host.h"
#include "layout.h"

const struct layout layouts[LAYOUTS] = {
	[LAYOUT_ONE] = { "one slot", 1, 2048, 1, { { 0, 0, 2048 } } },
	/* Neighbours share words of the file's bitmap, and end in the middle of words of KVM's. */
	[LAYOUT_UNALIGNED] = { "unaligned slots", 1, 2000, 7, {
		{ 0, 3, 1000 }, { 0, 1003, 1 }, { 0, 1004, 63 }, { 0, 1067, 65 }, { 0, 1132, 500 }, { 0, 1632, 129 },
		{ 0, 1999, 1 } } },
	[LAYOUT_SHUFFLED] = { "shuffled slots", 1, 2048, 8, {
		{ 0, 1280, 256 }, { 0, 256, 256 }, { 0, 1792, 256 }, { 0, 0, 256 }, { 0, 1024, 256 }, { 0, 512, 256 },
		{ 0, 1536, 256 }, { 0, 768, 256 } } },
	[LAYOUT_TWO_RAMS] = { "two RAM files", 2, 1024, 4, {
		{ 0, 0, 512 }, { 1, 512, 512 }, { 0, 512, 512 }, { 1, 7, 301 } } },
	[LAYOUT_ALIAS] = { "two slots, one range", 1, 1024, 3, { { 0, 0, 600 }, { 0, 100, 400 }, { 0, 650, 300 } } },
};

void layout_random(struct layout *l, uint32_t seed)
{
	uint64_t at = 0;
	unsigned int i;

	*l = (struct layout){ .name = "random slots", .nr_rams = 1, .ram_pages = 2048, .nr = PLACES_MAX };
	for (i = 0; i < l->nr; i++) {
		uint64_t left = l->ram_pages - at - (l->nr - i);

		l->places[i].pgoff = at;
		l->places[i].npages = i + 1 < l->nr ? 1 + guest_pick(&seed, left / 2 + 1) : l->ram_pages - at;
		at += l->places[i].npages;
	}
	for (i = l->nr - 1; i > 0; i--) {
		unsigned int other = guest_pick(&seed, i + 1);
		struct place p = l->places[i];

		l->places[i] = l->places[other];
		l->places[other] = p;
	}
}

uint64_t layout_entries(const struct layout *l)
{
	uint64_t n = 0;
	unsigned int i;

	for (i = 0; i < l->nr; i++)
		n += l->places[i].npages;
	return n;
}

void layout_apply(const struct layout *l, struct vm *vm, const struct ram *rams, struct entry *entries)
{
	uint64_t gpa = RAM_GPA, page;
	unsigned int i;

	for (i = 0; i < l->nr; i++) {
		const struct place *p = &l->places[i];

		require(!vm_slot(vm, i + 1, 0, gpa, p->npages * PAGE, rams[p->ram].map + p->pgoff * PAGE), l->name);
		vm_table_add(vm, gpa, p->npages);
		gpa += p->npages * PAGE;
		for (page = 0; page < p->npages; page++)
			*entries++ = (struct entry){ p->ram, p->pgoff + page };
	}
}

void stage_open(struct stage *st, unsigned int layout, unsigned int manual, unsigned int vcpus)
{
	unsigned int i;

	st->seed = random_seed();
	if (layout == LAYOUTS)
		layout_random(&st->layout, st->seed);
	else
		st->layout = layouts[layout];
	vm_create(&st->vm, vcpus, manual);
	for (i = 0; i < st->layout.nr_rams; i++)
		require(!ram_create(&st->ram[i], RAM_TMPFS, st->layout.ram_pages * PAGE), "a RAM file");
	st->entries = calloc(layout_entries(&st->layout), sizeof(*st->entries));
	require(st->entries, "calloc");
	layout_apply(&st->layout, &st->vm, st->ram, st->entries);
}

void stage_begin(struct stage *st)
{
	int fds[LAYOUT_RAMS_MAX];
	unsigned int i;

	for (i = 0; i < st->layout.nr_rams; i++)
		fds[i] = st->ram[i].fd;
	session_begin(&st->s, st->vm.fd, fds, st->layout.nr_rams);
}

void stage_say_logs(struct stage *st, unsigned int ram, uint64_t page)
{
	unsigned int i;

	for (i = 0; i < st->layout.nr; i++) {
		const struct place *p = &st->layout.places[i];

		if (p->ram == ram && page - p->pgoff < p->npages)
			fprintf(stderr, "# in KVM's own log of slot %u: %d\n", i + 1,
				vm_log_has(&st->vm, i + 1, p->npages, page - p->pgoff));
	}
}

void stage_close(struct stage *st)
{
	unsigned int i;

	rows_on(ALL_ROWS);
	session_close(&st->s);
	for (i = 0; i < st->layout.nr_rams; i++)
		ram_destroy(&st->ram[i]);
	free(st->entries);
	vm_destroy(&st->vm);
}
