// SPDX-License-Identifier: GPL-2.0-only
/* Lanes, with a sender that does as it likes. */
#include <fcntl.h>
#include <setjmp.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/stop.h"
#include "each_engine.h"
#include "net/sock.h"
#include "ram_rig.h"

static void say(int fd, enum wire_type type, uint32_t arg, uint16_t flags)
{
	struct wire_header h = { .type = (uint16_t)type, .arg = arg, .flags = flags };
	uint8_t head[WIRE_HEADER];

	wire_put_header(head, &h);
	assert_int_equal(write(fd, head, sizeof(head)), sizeof(head));
}

static void start_streams_after(struct rig *rig, unsigned int n, int *peers, unsigned int timeout_ms, uint32_t base)
{
	struct receive_streams_options o = {
		.writer = &rig->place, .engine = engine, .timeout_ms = timeout_ms, .base = base,
	};
	int in[WIRE_STREAMS_MAX], pair[2];

	for (unsigned int i = 0; i < n; i++) {
		assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
		in[i] = pair[0];
		peers[i] = pair[1];
	}
	assert_int_equal(receive_streams_start(&o, in, n, &rig->receiving, &rig->e), 0);
}

static void start_streams(struct rig *rig, unsigned int n, int *peers, unsigned int timeout_ms)
{
	start_streams_after(rig, n, peers, timeout_ms, 0);
}

static void *end_the_round_late(void *fd)
{
	nap(150);
	say(*(int *)fd, WIRE_ROUND, 1, 0);
	return NULL;
}

/* All but one have ended the round: it is not over. */
static void a_round_needs_all_streams(void **state)
{
	struct rig *rig = *state;
	uint64_t start = now_ns();
	pthread_t thread;
	int peers[3];

	start_streams(rig, 3, peers, 5000);
	say(peers[0], WIRE_ROUND, 1, 0);
	say(peers[2], WIRE_ROUND, 1, 0);
	pthread_create(&thread, NULL, end_the_round_late, &peers[1]);
	assert_int_equal(receive_streams_wait_round(rig->receiving, 1, false, NULL, &rig->e), 0);
	assert_in_range(now_ns() - start, 140 * MS, 10000 * MS);
	pthread_join(thread, NULL);
	close_all(peers, 3);
}

/* Streams that came after the link was lost: rounds count on from the one that the sender had begun before. */
static void rounds_count_on(void **state)
{
	struct rig *rig = *state;
	int peers[2];

	start_streams_after(rig, 2, peers, 300, 7);
	say(peers[0], WIRE_ROUND, 8, 0);
	say(peers[1], WIRE_ROUND, 8, 0);
	assert_int_equal(receive_streams_wait_round(rig->receiving, 8, false, NULL, &rig->e), 0);
	say(peers[0], WIRE_ROUND, 8, 0);
	assert_int_not_equal(receive_streams_wait_round(rig->receiving, 9, false, NULL, &rig->e), 0);
	assert_int_equal(rig->e.exit, GW_BAD_PEER);
	close_all(peers, 2);
}

static void a_lane_that_never_ends_is_left(void **state)
{
	struct rig *rig = *state;
	uint64_t start = now_ns();
	int peers[2];

	start_streams(rig, 2, peers, 300);
	say(peers[0], WIRE_ROUND, 1, 0);
	assert_int_not_equal(receive_streams_wait_round(rig->receiving, 1, false, NULL, &rig->e), 0);
	assert_int_equal(rig->e.exit, GW_TIMEOUT);
	assert_in_range(now_ns() - start, 300 * MS, 10000 * MS);
	close_all(peers, 2);
}

/* Another round, another idea of the last one, another frame: each is an error of the peer. */
static void streams_know_what_may_come(void **state)
{
	static const struct { enum wire_type type; uint32_t arg; uint16_t flags; } wrong[] = {
		{ WIRE_ROUND, 2, 0 }, { WIRE_ROUND, 1, WIRE_ROUND_LAST }, { WIRE_COMMIT, 0, 0 }, { WIRE_DEVICE_END, 0, 0 },
	};

	(void)state;
	for (unsigned int i = 0; i < 4; i++) {
		struct rig *rig = rig_new();
		int peers[2];

		start_streams(rig, 2, peers, 5000);
		say(peers[1], WIRE_ROUND, 1, 0);
		say(peers[0], wrong[i].type, wrong[i].arg, wrong[i].flags);
		assert_int_not_equal(receive_streams_wait_round(rig->receiving, 1, false, NULL, &rig->e), 0);
		assert_int_equal(rig->e.exit, GW_BAD_PEER);
		close_all(peers, 2);
		rig_free(rig);
	}
}

/* After WIRE_ROUND_LAST no byte of RAM is taken, whatever the sender says. */
static void nothing_is_placed_after_the_last_round(void **state)
{
	const struct wire_extent x = { .kind = WIRE_DATA, .pages = 1, .first = 5 };
	const struct wire_header h = { .type = WIRE_RAM, .arg = 1, .length = WIRE_EXTENT + PAGE_BYTES };
	uint8_t bytes[WIRE_HEADER + WIRE_EXTENT + PAGE_BYTES];
	struct rig *rig = *state;
	int peer;

	memset(bytes, 0x55, sizeof(bytes));
	wire_put_header(bytes, &h);
	wire_put_extent(bytes + WIRE_HEADER, &x);
	start_streams(rig, 1, &peer, 5000);
	say(peer, WIRE_ROUND, 1, WIRE_ROUND_LAST);
	assert_int_equal(write(peer, bytes, sizeof(bytes)), sizeof(bytes));
	assert_int_equal(receive_streams_wait_round(rig->receiving, 1, true, NULL, &rig->e), 0);
	nap(50);
	receive_streams_stop(rig->receiving);
	assert_int_equal(receive_streams_count(rig->receiving).data_pages, 0);
	assert_int_equal(rig->there[5 * PAGE_BYTES], 0);
	close(peer);
}

static void pour(int fd)
{
	const struct wire_extent x = { .kind = WIRE_DATA, .pages = 20, .first = 5 };
	const struct wire_header h = { .type = WIRE_RAM, .arg = 1, .length = WIRE_EXTENT + 20 * PAGE_BYTES };
	static uint8_t bytes[WIRE_HEADER + WIRE_EXTENT + 20 * PAGE_BYTES];

	wire_put_header(bytes, &h);
	wire_put_extent(bytes + WIRE_HEADER, &x);
	while (!sock_send(fd, bytes, sizeof(bytes), deadline_ms(5000)))
		;
}

/* One that never has to wait for its bytes must hear it, too. */
static void a_busy_lane_stops(void **state)
{
	struct rig *rig = *state;
	uint64_t start;
	pid_t child;
	int peer;

	start_streams(rig, 1, &peer, 5000);
	child = fork();
	if (!child) {
		pour(peer);
		_exit(0);
	}
	while (receive_streams_count(rig->receiving).data_pages <= 20)
		nap(10);
	start = now_ns();
	receive_streams_stop(rig->receiving);
	assert_in_range(now_ns() - start, 0, 10000 * MS);
	assert_false(atomic_load(receive_streams_failed(rig->receiving)));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(peer);
}

/* In the blackout: streams that wait for what does not come end at once, not with their time slice, and have not failed. */
static void waiting_streams_finish_at_once(void **state)
{
	uint64_t spent = 0;

	(void)state;
	for (unsigned int i = 0; i < 10; i++) {
		struct rig *rig = rig_new();
		uint64_t start;
		int peers[2];

		start_streams(rig, 2, peers, 5000);
		say(peers[0], WIRE_ROUND, 1, WIRE_ROUND_LAST);
		say(peers[1], WIRE_ROUND, 1, WIRE_ROUND_LAST);
		assert_int_equal(receive_streams_wait_round(rig->receiving, 1, true, NULL, &rig->e), 0);
		nap(10);
		start = now_ns();
		receive_streams_finish(rig->receiving);
		spent += now_ns() - start;
		assert_false(atomic_load(receive_streams_failed(rig->receiving)));
		close_all(peers, 2);
		rig_free(rig);
	}
	assert_in_range(spent, 0, 5 * STOP_SLICE_NS);
}

/* The destination's RAM on a tmpfs of 16 pages, which no other process sees. */
static bool on_a_small_tmpfs(struct rig *rig)
{
	struct ram_block *b = &rig->dst.blocks[0];

	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("godwit-test", "/tmp", "tmpfs", 0, "size=64k"))
		return false;
	ram_writer_close(&rig->place);
	close(b->fd);
	b->fd = open("/tmp/ram", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_return_code(ftruncate(b->fd, (off_t)PAGES * PAGE_BYTES), 0);
	assert_int_equal(ram_writer_open(&rig->place, &rig->dst, NULL, &rig->e), 0);
	return true;
}

/* The destination's tmpfs is full: said as what it is, and at once. */
static void no_room_is_an_error(void **state)
{
	struct rig *rig = *state;
	struct err e = { 0 };

	if (!on_a_small_tmpfs(rig))
		skip();		/* root may */
	rig_connect(rig, engine, engine, 2, 0);
	rig_write_run(rig, 100, 50, 1);
	assert_int_equal(rig_send(rig, ROUND_PRECOPY), 0);
	assert_int_not_equal(receive_streams_wait_round(rig->receiving, 1, false, NULL, &e), 0);
	assert_int_equal(e.exit, GW_NO_ROOM);
	assert_non_null(strstr(e.text, "no room at the destination for RAM \"ram0\""));
}

/* A kernel that makes no pages for us, as a seccomp filter may forbid it: they are written. */
static void without_userfaultfd_they_are_written(void **state)
{
	struct rig *rig = *state;

	uffd_copy_close(&rig->place.uffd[0]);
	rig_connect(rig, engine, engine, 2, 0);
	rig_write_run(rig, 100, 50, 1);
	rig_round(rig, ROUND_PRECOPY);
	rig_write(rig, 120, 2);
	rig_round(rig, ROUND_LAST);
	rig_assert_equal(rig);
}

/* Runs of both kinds in one extent, page by page and whole, and pages that another process has made. */
static void new_pages_stand_between_old_ones(void **state)
{
	struct rig *rig = *state;
	uint32_t seed = 7;
	uint64_t page;

	rig_connect(rig, engine, engine, 2, 0);
	for (unsigned int round = 1; round <= 6; round++) {
		for (unsigned int i = 0; i < 300; i++) {
			page = next_random(&seed) % 600;
			rig_write(rig, page, (int)(1 + (page + round) % 250));
		}
		for (page = 700 + round * 50; round % 2 && page < 900 + round * 50; page++)
			rig_write(rig, page, (int)(1 + (page + round) % 250));
		rig->there[(880 + round * 50) * PAGE_BYTES] = 0;
		rig_round(rig, round < 6 ? ROUND_PRECOPY : ROUND_LAST);
	}
	rig_assert_equal(rig);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup_teardown(a_round_needs_all_streams, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(rounds_count_on, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(a_lane_that_never_ends_is_left, rig_setup, rig_teardown),
	cmocka_unit_test(streams_know_what_may_come),
	cmocka_unit_test_setup_teardown(nothing_is_placed_after_the_last_round, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(a_busy_lane_stops, rig_setup, rig_teardown),
	cmocka_unit_test(waiting_streams_finish_at_once),
	cmocka_unit_test_setup_teardown(no_room_is_an_error, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(without_userfaultfd_they_are_written, rig_setup, rig_teardown),
	cmocka_unit_test_setup_teardown(new_pages_stand_between_old_ones, rig_setup, rig_teardown),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
