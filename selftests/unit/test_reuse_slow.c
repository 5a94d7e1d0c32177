// SPDX-License-Identifier: GPL-2.0-only
/* References to a file that takes long to read. The clock is the test's: it goes on by so much whenever it is looked at. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "each_engine.h"
#include "peer/hello.h"
#include "ram_rig.h"
#include "reuse/index.h"
#include "wire/reuse.h"

#define FILE_PAGES	1024u

uint64_t __real_now_ns(void);
uint64_t __wrap_now_ns(void);

static _Atomic uint64_t skew_ns, step_ns;
static unsigned int steps;

uint64_t __wrap_now_ns(void)
{
	return __real_now_ns() + atomic_fetch_add(&skew_ns, step_ns);
}

static void count_step(void *arg)
{
	(void)arg;
	steps++;
}

static struct reuse_index *index_of_noise(uint64_t *entries)
{
	static uint8_t body[FILE_PAGES * WIRE_ENTRY];
	char path[] = "/tmp/test_reuse_slow.XXXXXX";
	struct reuse_index *ix = NULL;
	struct reuse_index_state st;
	struct err e = { 0 };
	uint32_t seed = 1;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	for (unsigned int i = 0; i < FILE_PAGES; i++) {
		uint32_t page[PAGE_BYTES / 4];

		for (unsigned int n = 0; n < PAGE_BYTES / 4; n++)
			page[n] = next_random(&seed);
		assert_int_equal(write(fd, page, sizeof(page)), sizeof(page));
	}
	close(fd);
	assert_int_equal(reuse_index_open(path, false, 1 << 20, &ix, &e), 0);
	unlink(path);
	do
		reuse_index_state(ix, &st);
	while (!st.done && !usleep(1000));
	*entries = reuse_index_say(ix, 0, FILE_PAGES, body);
	return ix;
}

/* One frame that refers to all of the file. Return: so many pages were placed. */
static uint64_t refer(struct rig *rig, int out, struct channel *in, struct ram_scratch *s)
{
	const struct wire_reference ref = { .x = { .kind = WIRE_DATA, .pages = FILE_PAGES } };
	struct wire_header h = { .type = WIRE_REFERENCES, .arg = 1, .length = WIRE_REFERENCE };
	uint8_t frame[WIRE_HEADER + WIRE_REFERENCE];
	struct ram_writer_count count = { 0, 0, 0 };

	wire_put_header(frame, &h);
	wire_put_reference(frame + WIRE_HEADER, &ref);
	assert_int_equal(write(out, frame, sizeof(frame)), sizeof(frame));
	assert_int_equal(channel_recv(in, &h, true, &rig->e), 0);
	assert_int_equal(ram_writer_frame(&rig->place, in, &h, s, &count, &rig->e), 0);
	return count.reused_pages;
}

/*
 * As long as it is read fast enough all of it is placed. Else what is left of the frame is refused, and what comes behind it at
 * once, however fast it could be read; and each step is told of, so that nobody takes the stream for dead.
 */
static void a_slow_file_is_given_up(void **state)
{
	struct rig *rig = rig_new();
	struct ram_scratch s;
	struct channel *in;
	struct reuse_index *ix;
	uint64_t entries, placed;
	int pair[2];

	(void)state;
	ix = index_of_noise(&entries);
	assert_int_equal(entries, FILE_PAGES);
	assert_int_equal(ram_writer_reuse(&rig->place, ix, &rig->e), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(channel_new(pair[0], engine, 30000, &in, &rig->e), 0);
	assert_int_equal(ram_scratch_open(&s, &rig->e), 0);
	s.step = count_step;
	steps = 0;
	assert_int_equal(refer(rig, pair[1], in, &s), FILE_PAGES);
	assert_int_equal(steps, FILE_PAGES / REUSE_READ_PAGES);
	assert_int_equal(atomic_load(&rig->place.refused_pages), 0);
	step_ns = 300000000;
	placed = refer(rig, pair[1], in, &s);
	step_ns = 0;
	assert_in_range(placed, 4 * REUSE_READ_PAGES, 8 * REUSE_READ_PAGES);
	assert_int_equal(atomic_load(&rig->place.refused_pages), FILE_PAGES - placed);
	assert_int_equal(refer(rig, pair[1], in, &s), 0);
	ram_scratch_close(&s);
	channel_free(in);
	close(pair[1]);
	rig_free(rig);
	reuse_index_close(ix);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(a_slow_file_is_given_up),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
