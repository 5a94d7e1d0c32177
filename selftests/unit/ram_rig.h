/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Two VMs that are nothing but a RAM file, and a dirty source that plays a script: its log, as KVM's, remembers a write
 * until the page is cleared. Include after cmocka.h.
 */
#ifndef GODWIT_RAM_RIG_H
#define GODWIT_RAM_RIG_H

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "receive/receive_streams.h"
#include "send/send_streams.h"

#ifndef PAGES
#define PAGES	4096u
#endif
#define MS	1000000ull

/**
 * struct rig
 * @log: written since it was cleared: what a vCPU does
 * @noted: written since the last harvest, which forgets it: what all others do
 * @cleared: pages that were cleared, in so many calls: @clears
 * @asked: calls of next_data
 * @harvests: so many, which fail in the middle if @harvest_fails
 * @on_clear: called by clear() before and after its work; may be NULL
 * @idle: while streams are waited for; may be NULL
 * @delta, @delta_always: of the streams, as the test wants them
 * @zeros: of the streams, where a test has it begun
 * @base: the latest round that streams before these have begun
 * @ram: the source's, to write to; @there: the destination's, to look at
 */
struct rig {
	struct vm src, dst;
	struct dirty_source source;
	struct hot_pages hot;
	uint64_t cleared, clears, asked, harvests;
	bool harvest_fails;
	atomic_bool log[PAGES], noted[PAGES];
	void (*on_clear)(struct rig *rig);
	uint8_t *ram, *there;
	struct ram_writer place;
	struct pace pace;
	_Atomic uint32_t compress;
	uint64_t features;		/* at both ends; none: RAM goes as it is */
	struct stripes stripes;
	struct send_streams *streams;
	struct receive_streams *receiving;
	struct round_count count;
	int (*idle)(void *arg, struct err *e);
	void *idle_arg;
	uint32_t rounds, base;
	struct delta *delta;
	bool delta_always;
	struct zeros zeros;
	struct err e;
};

static int rig_clear(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t count, struct err *e)
{
	struct rig *rig = (struct rig *)((char *)s - offsetof(struct rig, source));

	(void)block, (void)e;
	assert_true(first < PAGES && count && count <= PAGES - first);
	if (rig->on_clear)
		rig->on_clear(rig);
	for (uint64_t p = first; p < first + count; p++) {
		if (!(s->map[0][p / 64] >> p % 64 & 1))
			continue;
		rig->log[p] = false;
		rig->cleared++;
	}
	rig->clears++;
	if (rig->on_clear)
		rig->on_clear(rig);
	return 0;
}

static int rig_next_data(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t end, bool exact,
			 uint64_t *run_first, uint64_t *run_count, struct err *e)
{
	((struct rig *)((char *)s - offsetof(struct rig, source)))->asked++;
	return file_next_data(s->vm->blocks[block].fd, first, end, exact, run_first, run_count, e);
}

/*
 * fails: as a harvest that ends in the middle: what it has found it has forgotten, and marked. The log is KVM's: it puts no
 * threads in order that the product has not, so loads are relaxed, and TSan, which would take most of its time here, looks at
 * what is done with it.
 */
__attribute__((no_sanitize("thread")))
static inline int rig_harvest_some(struct rig *rig, bool fails)
{
	for (uint64_t p = 0; p < (fails ? PAGES / 2 : PAGES); p++) {
		if ((atomic_load_explicit(&rig->noted[p], memory_order_relaxed) && atomic_exchange(&rig->noted[p], false)) ||
		    atomic_load_explicit(&rig->log[p], memory_order_relaxed))
			bitmap_set(rig->source.map[0], p, 1);
	}
	return fails ? -EAGAIN : 0;
}

static int rig_source_harvest(struct dirty_source *s, struct err *e)
{
	struct rig *rig = (struct rig *)((char *)s - offsetof(struct rig, source));

	(void)e;
	rig->harvests++;
	return rig_harvest_some(rig, rig->harvest_fails);
}

static const struct dirty_ops rig_ops = {
	.name = "scripted", .harvest = rig_source_harvest, .clear = rig_clear, .next_data = rig_next_data,
};

static inline uint8_t *rig_vm(struct vm *vm)
{
	void *ram;

	vm->nblocks = 1;
	strcpy(vm->blocks[0].name, "ram0");
	vm->blocks[0].pages = PAGES;
	vm->blocks[0].page_size = PAGE_BYTES;
	vm->blocks[0].fd = memfd_create("ram", 0);
	assert_return_code(ftruncate(vm->blocks[0].fd, (off_t)PAGES * PAGE_BYTES), 0);
	ram = mmap(NULL, PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, vm->blocks[0].fd, 0);
	assert_ptr_not_equal(ram, MAP_FAILED);
	return ram;
}

static inline struct rig *rig_new(void)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	rig->ram = rig_vm(&rig->src);
	rig->there = rig_vm(&rig->dst);
	rig->source.ops = &rig_ops;
	rig->source.vm = &rig->src;
	rig->source.map[0] = calloc(PAGES / 64, 8);
	assert_int_equal(hot_pages_init(&rig->hot, &rig->src, &rig->e), 0);
	pace_init(&rig->pace, 0);
	assert_int_equal(stripes_init(&rig->stripes, &rig->src, &rig->e), 0);
	assert_int_equal(ram_writer_open(&rig->place, &rig->dst, NULL, &rig->e), 0);
	return rig;
}

/* n streams, with a thread at each end. sndbuf 0: as it is. */
static inline void rig_connect(struct rig *rig, const struct engine_ops *out_engine, const struct engine_ops *in_engine,
			       unsigned int n, int sndbuf)
{
	struct send_streams_options o = { .vm = &rig->src, .engine = out_engine, .pace = &rig->pace, .compress = &rig->compress,
					  .features = rig->features, .delta = rig->delta, .delta_always = rig->delta_always,
					  .zeros = &rig->zeros,
					  .timeout_ms = 5000, .idle = rig->idle, .arg = rig->idle_arg };
	struct receive_streams_options there = { .writer = &rig->place, .engine = in_engine, .timeout_ms = 5000,
						 .base = rig->base };
	int out[WIRE_STREAMS_MAX], in[WIRE_STREAMS_MAX], pair[2];

	for (unsigned int i = 0; i < n; i++) {
		assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		if (sndbuf)
			setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
		out[i] = pair[0];
		in[i] = pair[1];
	}
	assert_int_equal(send_streams_start(&o, out, n, &rig->streams, &rig->e), 0);
	rig->place.features = rig->features;
	assert_int_equal(receive_streams_start(&there, in, n, &rig->receiving, &rig->e), 0);
}

static inline void nap(unsigned int ms)
{
	struct timespec ts = { .tv_nsec = (long)(ms * MS) };

	nanosleep(&ts, NULL);
}

static inline void rig_free(struct rig *rig)
{
	send_streams_free(rig->streams);
	receive_streams_free(rig->receiving);
	ram_writer_close(&rig->place);
	munmap(rig->ram, PAGES * PAGE_BYTES);
	munmap(rig->there, PAGES * PAGE_BYTES);
	close(rig->src.blocks[0].fd);
	close(rig->dst.blocks[0].fd);
	free(rig->source.map[0]);
	hot_pages_free(&rig->hot);
	stripes_free(&rig->stripes);
	delta_free(rig->delta);
	free(rig);
}

static inline int rig_send(struct rig *rig, enum round_kind kind)
{
	struct round rd;
	int r;

	rig->stripes.round = ++rig->rounds;
	round_begin(&rd, &rig->src, &rig->source, kind, kind == ROUND_PRECOPY ? &rig->hot : NULL, &rig->stripes);
	send_streams_begin(rig->streams, &rd, rig->rounds);
	r = send_streams_wait(rig->streams, &rig->count, &rig->e);
	if (r && kind == ROUND_PRECOPY)
		round_drop(&rd);
	round_end(&rd);
	return r;
}

static inline void rig_round(struct rig *rig, enum round_kind kind)
{
	assert_int_equal(rig_send(rig, kind), 0);
	assert_int_equal(receive_streams_wait_round(rig->receiving, rig->rounds, kind == ROUND_LAST, NULL, &rig->e), 0);
	atomic_store(&rig->stripes.acked, rig->rounds);
}

/* By words, and unseen by sanitizers: cmocka takes longer to compare RAM byte by byte than a round takes, and tells where it differs. */
__attribute__((no_sanitize("address,thread,undefined")))
static inline bool rig_is_equal(const uint64_t *here, const uint64_t *there)
{
	for (size_t i = 0; i < PAGES * PAGE_BYTES / 8; i++)
		if (here[i] != there[i])
			return false;
	return true;
}

static inline void rig_assert_equal(struct rig *rig)
{
	if (rig_is_equal((const uint64_t *)rig->ram, (const uint64_t *)rig->there))
		return;
	assert_memory_equal(rig->ram, rig->there, PAGES * PAGE_BYTES);
	fail_msg("RAM differed a moment ago");
}

/* The source knows, and the next harvest will. */
static inline void rig_dirty(struct rig *rig, uint64_t page, int value, bool by_vcpu)
{
	memset(rig->ram + page * PAGE_BYTES, value, PAGE_BYTES);
	*(by_vcpu ? &rig->log[page] : &rig->noted[page]) = true;
}

static inline void rig_harvest(struct rig *rig)
{
	rig_harvest_some(rig, false);
}

/* Written, and harvested. */
static inline void rig_write(struct rig *rig, uint64_t page, int value)
{
	rig_dirty(rig, page, value, true);
	bitmap_set(rig->source.map[0], page, 1);
}

static inline void rig_write_run(struct rig *rig, uint64_t first, uint64_t count, int value)
{
	for (uint64_t page = first; page < first + count; page++)
		rig_write(rig, page, value);
}

/* As godwit.ko tells of it: the pages were unmapped, so that they count as written, and one day they are a hole. */
static inline void rig_punch(struct rig *rig, uint64_t first, uint64_t count)
{
	assert_return_code(fallocate(rig->src.blocks[0].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				     (off_t)(first * PAGE_BYTES), (off_t)(count * PAGE_BYTES)), 0);
	rig->source.unmapped = true;
}

static inline uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

/* Sockets whose other ends, returned in peers, are not read from. */
static inline void rig_connect_to_nobody(struct rig *rig, const struct engine_ops *out_engine, unsigned int n, int sndbuf,
					 int *peers)
{
	struct send_streams_options o = {
		.vm = &rig->src, .engine = out_engine, .pace = &rig->pace, .compress = &rig->compress,
		.features = rig->features, .timeout_ms = 5000, .idle = rig->idle, .arg = rig->idle_arg,
	};
	int out[WIRE_STREAMS_MAX], pair[2];

	for (unsigned int i = 0; i < n; i++) {
		assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		if (sndbuf)
			setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof(sndbuf));
		out[i] = pair[0];
		peers[i] = pair[1];
	}
	assert_int_equal(send_streams_start(&o, out, n, &rig->streams, &rig->e), 0);
}

static inline void close_all(const int *fds, unsigned int n)
{
	while (n--)
		close(fds[n]);
}

/* An idle function that ends the wait in its third call. */
struct canceller {
	unsigned int calls;
};

static inline int give_up(void *arg, struct err *e)
{
	struct canceller *c = arg;

	return ++c->calls < 3 ? 0 : err_set(e, GW_CANCELLED, EINTR, "cancelled by the test");
}

/* cmocka's fixtures: a rig each. */
static inline int rig_setup(void **state)
{
	*state = rig_new();
	return 0;
}

static inline int rig_setup_connected(void **state)
{
	struct rig *rig = rig_new();

	rig_connect(rig, &engine_poll, &engine_poll, 2, 0);
	*state = rig;
	return 0;
}

static inline int rig_teardown(void **state)
{
	rig_free(*state);
	return 0;
}

#endif
