// SPDX-License-Identifier: GPL-2.0-only
/*
 * A round over a socket pair, with a dirty source that plays a script: what arrives is what was written and is allocated,
 * and every page was forgotten by the log before it was read.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "io/channel.h"
#include "migrate/place.h"
#include "migrate/round.h"
#include "page/page.h"

#define PAGES 4096u

struct scripted {
	struct dirty_source base;
	uint64_t cleared;	/* pages in calls of clear() */
	uint64_t last_clear;
};

static int clear(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t count, struct err *e)
{
	struct scripted *sc = (struct scripted *)s;

	(void)block, (void)e;
	/* Called before the bits are taken, hence before the pages are read. */
	assert_true(s->map[0][first / 64] >> first % 64 & 1);
	sc->cleared += count;
	sc->last_clear = first;
	return 0;
}

static int next_data(struct dirty_source *s, unsigned int block, uint64_t first, uint64_t end, uint64_t *run_first,
		     uint64_t *run_count, struct err *e)
{
	return file_next_data(s->vm->blocks[block].fd, first, end, run_first, run_count, e);
}

static const struct dirty_ops scripted_ops = { .name = "scripted", .clear = clear, .next_data = next_data };

struct world {
	struct vm src, dst;
	struct scripted source;
	struct ram_view view;
	struct placement place;
	struct channel *out, *in;
	struct round_count count;
	struct err e;
	uint8_t *ram;
};

static void make_vm(struct vm *vm)
{
	memset(vm, 0, sizeof(*vm));
	vm->nblocks = 1;
	strcpy(vm->blocks[0].name, "ram0");
	vm->blocks[0].pages = PAGES;
	vm->blocks[0].page_size = PAGE_BYTES;
	vm->blocks[0].fd = memfd_create("ram", 0);
	assert_return_code(ftruncate(vm->blocks[0].fd, (off_t)PAGES * PAGE_BYTES), 0);
}

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	int pair[2], size = 4 << 20;

	make_vm(&w->src);
	make_vm(&w->dst);
	w->ram = mmap(NULL, PAGES * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, w->src.blocks[0].fd, 0);
	w->source.base.ops = &scripted_ops;
	w->source.base.vm = &w->src;
	w->source.base.map[0] = calloc(PAGES / 64, 8);
	assert_int_equal(ram_view_open(&w->view, &w->src, false, &w->e), 0);
	assert_int_equal(place_open(&w->place, &w->dst, &w->e), 0);
	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	setsockopt(pair[0], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	assert_int_equal(channel_new(pair[0], 5000, &w->out, &w->e), 0);
	assert_int_equal(channel_new(pair[1], 5000, &w->in, &w->e), 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	channel_free(w->out);
	channel_free(w->in);
	ram_view_close(&w->view);
	place_close(&w->place);
	munmap(w->ram, PAGES * PAGE_BYTES);
	close(w->src.blocks[0].fd);
	close(w->dst.blocks[0].fd);
	free(w->source.base.map[0]);
	free(w);
	return 0;
}

/* Sends a round in a child, as the other host would; places it here. */
static void run_round(struct world *w, bool arm)
{
	struct wire_header h, end = { .type = WIRE_ROUND, .arg = 1 };
	int r;

	/* All of a round fits into the socket's buffer, so one process can be both. */
	r = round_send(&w->view, &w->source.base, w->out, arm, &w->count, NULL, NULL, &w->e);
	assert_int_equal(r, 0);
	assert_int_equal(channel_send(w->out, &end, NULL, &w->e), 0);
	while (!(r = channel_recv(w->in, &h, false, &w->e)) && h.type == WIRE_RAM)
		assert_int_equal(place_frame(&w->place, w->in, &h, &w->e), 0);
	assert_int_equal(r, 0);
	assert_int_equal(h.type, WIRE_ROUND);
}

static void assert_equal_ram(struct world *w)
{
	assert_memory_equal(w->ram, w->place.base[0], PAGES * PAGE_BYTES);
}

static void write_page(struct world *w, uint64_t page, int value)
{
	memset(w->ram + page * PAGE_BYTES, value, PAGE_BYTES);
	bitmap_set(w->source.base.map[0], page, 1);
}

static void holes_are_not_sent(void **state)
{
	struct world *w = *state;

	bitmap_set(w->source.base.map[0], 0, PAGES);
	write_page(w, 7, 1);
	write_page(w, 9, 0);
	write_page(w, PAGES - 1, 3);
	run_round(w, true);
	assert_int_equal(w->count.data_pages, 2);
	assert_int_equal(w->count.zero_pages, 1);
	assert_int_equal(w->source.cleared, 3);
	assert_int_equal(lseek(w->dst.blocks[0].fd, 0, SEEK_DATA), 7 * PAGE_BYTES);
	assert_int_equal(lseek(w->dst.blocks[0].fd, 8 * PAGE_BYTES, SEEK_DATA), (PAGES - 1) * PAGE_BYTES);
	assert_equal_ram(w);
}

static void only_what_was_written_goes_again(void **state)
{
	struct world *w = *state;

	for (uint64_t p = 0; p < 500; p++)
		write_page(w, p * 2, (int)p % 250 + 1);
	run_round(w, true);
	memset(&w->count, 0, sizeof(w->count));
	for (uint64_t p = 100; p < 130; p += 3)
		write_page(w, p, 77);
	w->source.cleared = 0;
	run_round(w, false);
	assert_int_equal(w->count.data_pages, 10);
	assert_int_equal(w->source.cleared, 0);
	assert_equal_ram(w);
}

static void a_page_that_becomes_zero_is_zero_there(void **state)
{
	struct world *w = *state;

	write_page(w, 20, 5);
	write_page(w, 21, 6);
	run_round(w, true);
	write_page(w, 20, 0);
	run_round(w, false);
	assert_int_equal(w->count.zero_pages, 1);
	assert_equal_ram(w);
}

static void pending_counts_allocated_pages(void **state)
{
	struct world *w = *state;
	uint64_t pages;

	bitmap_set(w->source.base.map[0], 0, PAGES);
	write_page(w, 3, 1);
	write_page(w, 4, 1);
	write_page(w, 4000, 1);
	bitmap_clear(w->source.base.map[0], 4, 1);
	assert_int_equal(round_pending(&w->src, &w->source.base, &pages, &w->e), 0);
	assert_int_equal(pages, 2);
	assert_int_equal(round_allocated(&w->src, &w->source.base, &pages, &w->e), 0);
	assert_int_equal(pages, 3);
}

/* A hole that is punched is no write; the last round tells of it. */
static void punched_holes_are_holes_there(void **state)
{
	struct world *w = *state;
	struct wire_header h, end = { .type = WIRE_ROUND, .arg = 2 };
	int r;

	for (uint64_t p = 10; p < 30; p++)
		write_page(w, p, 9);
	run_round(w, true);
	assert_return_code(fallocate(w->src.blocks[0].fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 12 * PAGE_BYTES,
				     5 * PAGE_BYTES), 0);
	assert_int_equal(round_send_holes(&w->src, &w->source.base, w->out, &w->e), 0);
	assert_int_equal(channel_send(w->out, &end, NULL, &w->e), 0);
	while (!(r = channel_recv(w->in, &h, false, &w->e)) && h.type == WIRE_RAM)
		assert_int_equal(place_frame(&w->place, w->in, &h, &w->e), 0);
	assert_int_equal(r, 0);
	/* Never touched memory stays a hole there, too. */
	assert_int_equal(lseek(w->dst.blocks[0].fd, 30 * PAGE_BYTES, SEEK_DATA), -1);
	assert_equal_ram(w);
}

/* Alternating pages fill a frame's table of extents before its bytes. */
static void many_extents_take_many_frames(void **state)
{
	struct world *w = *state;

	for (uint64_t p = 0; p < PAGES; p++)
		if (p % 4 != 3)
			write_page(w, p, p % 4 == 1 ? 0 : (p % 97 < 8 ? (int)(p % 97) + 1 : 0));
	run_round(w, true);
	assert_equal_ram(w);
}

static void a_page_outside_is_refused(void **state)
{
	struct world *w = *state;
	struct wire_extent x = { .kind = WIRE_ZERO, .pages = 2, .first = PAGES - 1 };
	struct wire_header h = { .type = WIRE_RAM, .arg = 1, .length = WIRE_EXTENT }, got;
	uint8_t body[WIRE_EXTENT];

	wire_put_extent(body, &x);
	assert_int_equal(channel_send(w->out, &h, body, &w->e), 0);
	assert_int_equal(channel_recv(w->in, &got, false, &w->e), 0);
	assert_int_not_equal(place_frame(&w->place, w->in, &got, &w->e), 0);
	assert_int_equal(w->e.exit, GW_BAD_PEER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(holes_are_not_sent, setup, teardown),
		cmocka_unit_test_setup_teardown(only_what_was_written_goes_again, setup, teardown),
		cmocka_unit_test_setup_teardown(a_page_that_becomes_zero_is_zero_there, setup, teardown),
		cmocka_unit_test_setup_teardown(pending_counts_allocated_pages, setup, teardown),
		cmocka_unit_test_setup_teardown(punched_holes_are_holes_there, setup, teardown),
		cmocka_unit_test_setup_teardown(many_extents_take_many_frames, setup, teardown),
		cmocka_unit_test_setup_teardown(a_page_outside_is_refused, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
