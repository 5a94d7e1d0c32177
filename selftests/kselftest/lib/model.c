// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"
#include "model.h"

void model_init(struct model *m, const struct entry *entries, uint64_t nr)
{
	memset(m, 0, sizeof(*m));
	m->entries = entries;
	m->nr = nr;
	m->logged = calloc(nr, sizeof(bool));
	require(m->logged, "memory");
}

void model_free(struct model *m)
{
	free(m->logged);
}

void model_batch(struct model *m, unsigned int vcpu, uint32_t seed, uint32_t value, uint32_t count)
{
	while (count--) {
		uint32_t i = guest_pick(&seed, m->nr);

		m->logged[i] = true;
		m->last[m->entries[i].ram][m->entries[i].page][vcpu] = value;
	}
}

uint64_t model_harvest(struct model *m)
{
	uint64_t i, found = 0;

	for (i = 0; i < m->nr; i++) {
		found += m->logged[i];
		m->bit[m->entries[i].ram][m->entries[i].page] |= m->logged[i];
	}
	return found;
}

void model_clear(struct model *m, unsigned int ram, uint64_t first, uint64_t npages)
{
	uint64_t i;

	for (i = 0; i < m->nr; i++) {
		const struct entry *e = &m->entries[i];

		if (e->ram == ram && e->page - first < npages && m->bit[ram][e->page])
			m->logged[i] = false;
	}
}

void model_take(struct model *m, unsigned int ram, uint64_t page)
{
	m->bit[ram][page] = false;
}

/* Was a vCPU told to write there, or is that reported? Other pages stay untouched: guests fault them in. */
static bool concerned(const struct model *m, const struct session *s, unsigned int ram, uint64_t page)
{
	unsigned int n;

	for (n = 0; n < VCPUS_MAX; n++)
		if (m->last[ram][page][n])
			return true;
	return bit_set(&s->ram[ram], page);
}

static void check_page(const struct model *m, const struct stage *st, unsigned int ram, uint64_t page)
{
	const uint32_t *there = (const uint32_t *)(st->ram[ram].map + page * PAGE);
	const uint32_t *told = m->last[ram][page];
	unsigned int n;

	for (n = 0; n < st->vm.nr_vcpus; n++) {
		if (told[n] == there[n])
			continue;
		fprintf(stderr, "# vCPU %u was to write %u to page %lu of RAM file %u, %u is there\n",
			n, told[n], page, ram, there[n]);
		prove(false, "the guest's RAM holds what its vCPUs wrote");
	}
}

void model_check_guest(const struct model *m, const struct stage *st)
{
	unsigned int ram;
	uint64_t page;

	for (ram = 0; ram < st->layout.nr_rams; ram++)
		for (page = 0; page < st->layout.ram_pages; page++)
			if (concerned(m, &st->s, ram, page))
				check_page(m, st, ram, page);
}

static void complain(uint64_t *count, const char *what, struct stage *st, unsigned int ram,
		     uint64_t page)
{
	if ((*count)++)
		return;
	fprintf(stderr, "# %s: page %llu of RAM file %u\n", what, (unsigned long long)page, ram);
	stage_say_logs(st, ram, page);
}

void model_compare(const struct model *m, struct stage *st, uint64_t *missed, uint64_t *invented)
{
	const struct session *s = &st->s;
	unsigned int ram;
	uint64_t page;

	*missed = 0;
	*invented = 0;
	for (ram = 0; ram < s->nr_rams; ram++) {
		for (page = 0; page < s->ram[ram].bytes * 8; page++) {
			bool in = page < s->ram[ram].npages && page < MODEL_PAGES;
			bool set = bit_set(&s->ram[ram], page);

			if (in && m->bit[ram][page] && !set)
				complain(missed, "missed", st, ram, page);
			if (set && !(in && m->bit[ram][page]))
				complain(invented, "invented", st, ram, page);
		}
	}
}
