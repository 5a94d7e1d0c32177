// SPDX-License-Identifier: GPL-2.0-only
/* See kvm_sim.h. */
#include <assert.h>

#include "kvm_sim.h"

#define SMALL_PAGES	700
#define LARGE_PAGES	(9ULL << 19)
#define HOT		16

static struct sim *running;	/* whose vCPUs take steps */

u64 sim_pick(struct sim *sim, u64 n)
{
	sim->random ^= sim->random << 13;
	sim->random ^= sim->random >> 7;
	sim->random ^= sim->random << 17;
	return (sim->random >> 16) % n;
}

static bool test(const unsigned long *map, u64 i)
{
	return map[i / BITS_PER_LONG] >> i % BITS_PER_LONG & 1;
}

static void set(unsigned long *map, u64 i)
{
	map[i / BITS_PER_LONG] |= 1UL << i % BITS_PER_LONG;
}

static void drain(struct sim *sim, struct sim_vcpu *v)
{
	while (v->nr_pml) {
		const struct sim_at *at = &v->pml[--v->nr_pml];

		set(sim->slot[at->slot].dirty_bitmap, at->page);
	}
}

void sim_drain(struct sim *sim)
{
	unsigned int i;

	for (i = 0; i < sim->nr_vcpus; i++)
		drain(sim, &sim->vcpu[i]);
}

/* The CPU's page walk for a store to a page that is not dirty. */
static void log_store(struct sim *sim, struct sim_vcpu *v, struct sim_at at)
{
	if (sim->write_protect) {
		set(sim->slot[at.slot].dirty_bitmap, at.page);
	} else {
		if (v->nr_pml == sim->pml_size && sim->variant == SIM_BUFFER_LOST)
			v->nr_pml = 0;
		else if (v->nr_pml == sim->pml_size)
			drain(sim, v);
		v->pml[v->nr_pml++] = at;
	}
	set(sim->dirty_bit[at.slot], at.page);
}

static void remember(struct sim *sim, struct sim_vcpu *v, struct sim_at at)
{
	unsigned int i = v->nr_tlb < SIM_TLB ? v->nr_tlb++ : sim_pick(sim, SIM_TLB);

	v->tlb[i] = at;
}

static bool remembered(const struct sim_vcpu *v, struct sim_at at)
{
	unsigned int i;

	for (i = 0; i < v->nr_tlb; i++)
		if (v->tlb[i].slot == at.slot && v->tlb[i].page == at.page)
			return true;
	return false;
}

/* Most stores go to few pages. */
static struct sim_at pick_page(struct sim *sim)
{
	unsigned int slot = sim_pick(sim, sim->nr_slots);
	u64 npages = sim->view_slot[slot].npages;

	if (sim_pick(sim, 4))
		npages = min(npages, (u64)HOT);
	return (struct sim_at){ slot, sim_pick(sim, npages) };
}

static void store(struct sim *sim, struct sim_vcpu *v)
{
	struct sim_at at = pick_page(sim);
	const struct godwit_piece *p = &sim->piece[at.slot];

	if (!remembered(v, at)) {
		if (!test(sim->dirty_bit[at.slot], at.page))
			log_store(sim, v, at);
		remember(sim, v, at);
	}
	/* A slot may show more than the RAM file. */
	if (at.page - p->first < p->npages)
		sim->memory[p->pgoff + at.page - p->first] = ++sim->last_value;
}

void sim_step(void)
{
	struct sim *sim = running;
	struct sim_vcpu *v;

	if (sim_pick(sim, sim->rarely))
		return;
	v = &sim->vcpu[sim_pick(sim, sim->nr_vcpus)];
	if (v->stopped)
		return;
	switch (sim_pick(sim, 8)) {
	case 0:
		drain(sim, v);		/* an exit */
		break;
	case 1:
		v->nr_tlb = 0;
		break;
	default:
		store(sim, v);
	}
}

void sim_stop(struct sim *sim)
{
	unsigned int i;

	for (i = 0; i < sim->nr_vcpus; i++) {
		sim_step();
		if (sim->variant != SIM_HARVEST_EARLY)
			drain(sim, &sim->vcpu[i]);
		sim->vcpu[i].stopped = true;
	}
}

static void kick(struct sim *sim)
{
	unsigned int i;

	for (i = 0; i < sim->nr_vcpus; i++) {
		sim_step();
		if (sim->variant != SIM_NO_KICK && sim_pick(sim, 2))
			drain(sim, &sim->vcpu[i]);
	}
}

static void flush(struct sim *sim)
{
	unsigned int i;

	for (i = 0; i < sim->nr_vcpus && sim->variant != SIM_NO_FLUSH; i++) {
		sim_step();
		if (sim->variant != SIM_NO_KICK)
			drain(sim, &sim->vcpu[i]);
		sim->vcpu[i].nr_tlb = 0;
	}
}

/* KVM_CLEAR_DIRTY_LOG */
int godwit_kvm_clear(struct godwit_session *s, struct godwit_scratch *sc, const struct godwit_slot *slot,
		     u64 first, u64 npages, const unsigned long *bits)
{
	struct sim *sim = running;
	unsigned long *log = sim->slot[slot->id].dirty_bitmap, *d = sim->dirty_bit[slot->id], mask;
	u64 i, base = first / BITS_PER_LONG;

	assert(s == &sim->session && sc && !sim->kvm.srcu.readers);
	/* What KVM answers EINVAL to, and the size of the bitmap in the borrowed mm. */
	assert(first % BITS_PER_LONG == 0 && first + npages <= slot->npages);
	assert(npages && npages <= GODWIT_CLEAR_PAGES);
	assert(npages % BITS_PER_LONG == 0 || first + npages == slot->npages);
	kick(sim);
	for (i = 0; i < BITS_TO_LONGS(npages); i++) {
		mask = bits[i] & log[base + i];
		if (!mask)
			continue;
		log[base + i] &= ~mask;
		sim_step();
		if (sim->variant != SIM_NO_REARM)
			d[base + i] &= ~mask;
		sim_step();
	}
	flush(sim);
	return 0;
}

const struct kvm_memory_slot *godwit_slot_find(struct godwit_session *s,
					       const struct godwit_slot *slot)
{
	assert(s->kvm->srcu.readers == 1);
	return &running->slot[slot->id];
}

bool godwit_row_on(unsigned int row)
{
	return row == GODWIT_ROW_VCPU;
}

/* Shows [pgoff, pgoff + npages) of the file, and perhaps something before and behind it. */
static void add_slot(struct sim *sim, u64 pgoff, u64 npages)
{
	unsigned int n = sim->nr_slots++;
	u64 lead = sim_pick(sim, 2) * sim_pick(sim, 130), trail = sim_pick(sim, 2) * sim_pick(sim, 130);
	u64 total = lead + npages + trail, i;
	/* KVM_DIRTY_LOG_INITIALLY_SET: nothing is armed until the first CLEAR. */
	bool all = sim_pick(sim, 2);

	sim->view_slot[n] = (struct godwit_slot){
		.id = n, .flags = KVM_MEM_LOG_DIRTY_PAGES, .npages = total,
	};
	sim->piece[n] = (struct godwit_piece){
		.slot = n, .first = lead, .npages = npages, .pgoff = pgoff,
	};
	sim->slot[n].dirty_bitmap = calloc(BITS_TO_LONGS(total), sizeof(long));
	sim->dirty_bit[n] = calloc(BITS_TO_LONGS(total), sizeof(long));
	assert(sim->slot[n].dirty_bitmap && sim->dirty_bit[n]);
	for (i = 0; all && i < total; i++) {
		set(sim->slot[n].dirty_bitmap, i);
		if (i % 3)
			set(sim->dirty_bit[n], i);
	}
}

static void add_ram(struct sim *sim)
{
	u64 i;

	sim->ram.npages = sim->ram_pages;
	sim->ram.words = BITS_TO_LONGS(sim->ram_pages);
	sim->ram.dirty = calloc(sim->ram.words, sizeof(long));
	sim->memory = calloc(sim->ram_pages, sizeof(*sim->memory));
	assert(sim->ram.dirty && sim->memory);
	for (i = 0; i < sim->ram_pages; i++) {
		set(sim->ram.dirty, i);		/* START marks every page */
		sim->memory[i] = ++sim->last_value;
	}
}

static void add_session(struct sim *sim)
{
	sim->session.kvm = &sim->kvm;
	sim->session.rams[0] = &sim->ram;
	sim->session.nr_rams = 1;
	sim->session.view = (struct godwit_view){
		.slots = sim->view_slot, .nr_slots = sim->nr_slots,
		.pieces = sim->piece, .nr_pieces = sim->nr_slots,
	};
}

/* Slots that follow one another, and one that shows a part of it again. */
static void add_slots(struct sim *sim, unsigned int most)
{
	u64 at = 0, npages;
	unsigned int i;

	for (i = 0; i < most && at < sim->ram_pages; i++, at += npages) {
		npages = sim->ram_pages - at;
		if (i + 1 < most)
			npages = 1 + sim_pick(sim, npages);
		add_slot(sim, at, npages);
	}
	if (at < sim->ram_pages)
		return;
	at = sim_pick(sim, sim->ram_pages);
	add_slot(sim, at, 1 + sim_pick(sim, sim->ram_pages - at));
}

void sim_begin(struct sim *sim, u64 seed, enum sim_variant variant, bool large)
{
	memset(sim, 0, sizeof(*sim));
	running = sim;
	sim->random = seed * 0x9e3779b97f4a7c15ULL | 1;
	sim->variant = variant;
	sim->nr_vcpus = 1 + sim_pick(sim, SIM_VCPUS);
	sim->pml_size = sim_pick(sim, 2) ? SIM_PML : 2 + sim_pick(sim, 20);
	/* What is wrong with buffers shows only where there are some. */
	sim->write_protect = variant < SIM_BUFFER_LOST && !sim_pick(sim, 8);
	sim->rarely = large ? 500 : 1 + sim_pick(sim, 20);
	sim->ram_pages = large ? LARGE_PAGES : 1 + sim_pick(sim, SMALL_PAGES);
	add_ram(sim);
	add_slots(sim, large ? 1 : SIM_SLOTS - 1);
	add_session(sim);
}

void sim_end(struct sim *sim)
{
	unsigned int i;

	for (i = 0; i < sim->nr_slots; i++) {
		free(sim->slot[i].dirty_bitmap);
		free(sim->dirty_bit[i]);
	}
	free(sim->ram.dirty);
	free(sim->memory);
	running = NULL;
}
