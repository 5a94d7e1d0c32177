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
	m->maybe = calloc(nr, sizeof(bool));
	require(m->logged && m->maybe, "memory");
}

void model_free(struct model *m)
{
	free(m->logged);
	free(m->maybe);
}

void model_batch(struct model *m, uint32_t seed, uint32_t count)
{
	while (count--)
		m->logged[guest_pick(&seed, m->nr)] = true;
}

/* How many logs name each page: 2 or more, and a clearing harvest leaves one of them armed or not. */
static void count_logs(const struct model *m, uint8_t logs[LAYOUT_RAMS_MAX][MODEL_PAGES])
{
	uint64_t i;

	memset(logs, 0, LAYOUT_RAMS_MAX * MODEL_PAGES);
	for (i = 0; i < m->nr; i++)
		logs[m->entries[i].ram][m->entries[i].page] += m->logged[i] || m->maybe[i];
}

/* A log after a clearing harvest. */
static void rearm(struct model *m, uint64_t i, uint8_t logs)
{
	const struct entry *e = &m->entries[i];

	if (m->bit[e->ram][e->page])
		return;		/* the helper had not taken it: left as it is */
	/* Another log of this page may have set the bit before this one was looked at; so may a bit that may be. */
	m->maybe[i] = (m->logged[i] || m->maybe[i]) && (logs > 1 || m->maybe_bit[e->ram][e->page]);
	m->logged[i] = false;
}

uint64_t model_harvest(struct model *m, bool clear, uint64_t *most)
{
	static uint8_t logs[LAYOUT_RAMS_MAX][MODEL_PAGES];
	static bool set[LAYOUT_RAMS_MAX][MODEL_PAGES], may[LAYOUT_RAMS_MAX][MODEL_PAGES];
	uint64_t i, least = 0;

	memcpy(set, m->bit, sizeof(set));
	memcpy(may, m->maybe_bit, sizeof(may));
	count_logs(m, logs);
	*most = 0;
	for (i = 0; i < m->nr; i++) {
		const struct entry *e = &m->entries[i];

		least += m->logged[i];
		*most += m->logged[i] || m->maybe[i];
		set[e->ram][e->page] |= m->logged[i];
		may[e->ram][e->page] |= m->maybe[i];
		if (clear)
			rearm(m, i, logs[e->ram][e->page]);
	}
	memcpy(m->bit, set, sizeof(set));
	memcpy(m->maybe_bit, may, sizeof(may));
	return least;
}

void model_clear(struct model *m, unsigned int ram, uint64_t first, uint64_t npages)
{
	uint64_t i;

	for (i = 0; i < m->nr; i++)
		if (m->entries[i].ram == ram && m->entries[i].page - first < npages) {
			m->logged[i] = false;
			m->maybe[i] = false;
		}
}

void model_take(struct model *m, unsigned int ram, uint64_t page)
{
	m->bit[ram][page] = false;
	m->maybe_bit[ram][page] = false;
}

static void complain(uint64_t *count, const char *what, unsigned int ram, uint64_t page)
{
	if (!(*count)++)
		fprintf(stderr, "# %s: page %llu of RAM file %u\n", what, (unsigned long long)page, ram);
}

void model_compare(struct model *m, const struct session *s, uint64_t *missed, uint64_t *invented)
{
	unsigned int ram;
	uint64_t page;

	*missed = 0;
	*invented = 0;
	for (ram = 0; ram < s->nr_rams; ram++) {
		for (page = 0; page < s->ram[ram].bytes * 8; page++) {
			bool in = page < s->ram[ram].npages && page < MODEL_PAGES;
			bool set = bit_set(&s->ram[ram], page);

			if (in && m->bit[ram][page] && !set)
				complain(missed, "missed", ram, page);
			if (set && !(in && (m->bit[ram][page] || m->maybe_bit[ram][page])))
				complain(invented, "invented", ram, page);
			if (in)
				m->maybe_bit[ram][page] &= set;
		}
	}
}
