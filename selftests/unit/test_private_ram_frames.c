// SPDX-License-Identifier: GPL-2.0-only
/* QEMU's private RAM, from one stretch of this process to another: found, compared, sent, sent again. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "channel_rig.h"
#include "peer/hello.h"
#include "peer/private_ram_frames.h"
#include "qmp_peer.h"

#define ROM_PAGES	65u	/* more than two frames */
#define ALL_PAGES	(ROM_PAGES + 1 + 40)

static const struct private_ram layout = {
	.has_addresses = true, .n = 3,
	.b = { { "rom", ROM_PAGES, 0 }, { "tables", 1, 0 }, { "vga.vram", 40, 0 } },
};

/* Both ends, and the bytes behind their blocks. */
struct ends {
	struct private_ram_copy from;
	struct private_ram to;
	uint8_t *source, *destination;
	struct channel *out, *in;
	int pair[2];		/* for carry() */
	uint64_t bytes;
	struct err sent, e;
};

static void lay_out(struct private_ram *ram, uint8_t *at)
{
	*ram = layout;
	ram->pid = getpid();
	ram->pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	for (unsigned int i = 0; i < ram->n; i++) {
		ram->b[i].hva = (uintptr_t)at;
		at += ram->b[i].pages * PAGE_BYTES;
	}
}

static int setup_ends(void **state)
{
	struct ends *t = calloc(1, sizeof(*t));
	int pair[2];

	t->source = calloc(ALL_PAGES, PAGE_BYTES);
	t->destination = malloc(ALL_PAGES * PAGE_BYTES);
	memset(t->destination, 0xee, ALL_PAGES * PAGE_BYTES);
	for (unsigned int i = 0; i < ALL_PAGES; i += 3)
		memset(t->source + i * PAGE_BYTES + 7, (int)i + 1, PAGE_BYTES - 7);
	lay_out(&t->from.ram, t->source);
	lay_out(&t->to, t->destination);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(channel_new(pair[0], engine, 2000, &t->out, &t->e), 0);
	assert_int_equal(channel_new(pair[1], engine, 2000, &t->in, &t->e), 0);
	*state = t;
	return 0;
}

static int teardown_ends(void **state)
{
	struct ends *t = *state;

	channel_free(t->out);
	channel_free(t->in);
	close(t->from.ram.pidfd);
	close(t->to.pidfd);
	private_ram_copy_free(&t->from);
	free(t->source);
	free(t->destination);
	free(t);
	return 0;
}

/* A sender, with a channel of its thread's: all that has changed, and a frame that says that this was it. */
static void *send_changes(void *arg)
{
	struct wire_header end = { .type = WIRE_COMMIT };
	struct ends *t = arg;
	struct channel *out;

	t->bytes = 0;
	if (!channel_new(t->pair[0], engine, 2000, &out, &t->sent) &&
	    !private_ram_send(&t->from, &(struct frame_out) { frame_out_to_channel, out }, &t->bytes, &t->sent))
		channel_send(out, &end, NULL, &t->sent);
	channel_free(out);
	return NULL;
}

/* Returns how many frames brought it. */
static unsigned int carry(struct ends *t)
{
	unsigned int frames = 0;
	struct channel *in;
	struct wire_header h;
	pthread_t thread;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, t->pair), 0);
	assert_int_equal(channel_new(t->pair[1], engine, 2000, &in, &t->e), 0);
	assert_int_equal(pthread_create(&thread, NULL, send_changes, t), 0);
	while (!channel_recv(in, &h, false, &t->e) && h.type == WIRE_PRIVATE) {
		assert_int_equal(private_ram_frame(in, &h, &t->to, &t->e), 0);
		frames++;
	}
	pthread_join(thread, NULL);
	channel_free(in);
	assert_int_equal(t->sent.exit, GW_OK);
	assert_int_equal(t->e.exit, GW_OK);
	assert_int_equal(h.type, WIRE_COMMIT);
	return frames;
}

static void test_carried(void **state)
{
	struct ends *t = *state;

	/* Also over what lay there before; zeros travel as a number. */
	assert_int_equal(carry(t), 3 + 1 + 2);
	assert_memory_equal(t->source, t->destination, ALL_PAGES * PAGE_BYTES);
	assert_in_range(t->bytes, 36 * PAGE_BYTES, 37 * PAGE_BYTES);
	assert_int_equal(carry(t), 0);
	assert_int_equal(t->bytes, 0);
	/* The last byte of a block, the first of the next, a page that becomes zero and one that was. */
	t->source[ROM_PAGES * PAGE_BYTES - 1] ^= 1;
	t->source[ROM_PAGES * PAGE_BYTES] ^= 1;
	memset(t->source + 3 * PAGE_BYTES, 0, PAGE_BYTES);
	t->source[(ALL_PAGES - 2) * PAGE_BYTES] = 1;
	assert_int_equal(carry(t), 4);
	assert_memory_equal(t->source, t->destination, ALL_PAGES * PAGE_BYTES);
	assert_int_equal(t->bytes, 3 * (WIRE_EXTENT + PAGE_BYTES) + WIRE_EXTENT);
	/* Every other page: as many extents as pages. */
	for (unsigned int i = 0; i < ALL_PAGES; i++)
		memset(t->source + i * PAGE_BYTES, i % 2, PAGE_BYTES);
	carry(t);
	assert_memory_equal(t->source, t->destination, ALL_PAGES * PAGE_BYTES);
}

/* What a failed attempt has not said is said again. */
static void test_again(void **state)
{
	struct ends *t = *state;
	uint64_t hva = t->from.ram.b[2].hva;
	struct err e = { 0 };
	uint64_t bytes = 0;

	t->from.ram.b[2].hva = 4096;
	/* What comes before it fits into the socket's buffer: no peer reads yet. */
	memset(t->source, 0, (ROM_PAGES + 1) * PAGE_BYTES);
	assert_true(private_ram_send(&t->from, &(struct frame_out) { frame_out_to_channel, t->out }, &bytes, &e) < 0);
	assert_int_equal(e.exit, GW_INTERNAL);
	assert_non_null(strstr(e.text, "vga.vram"));
	t->from.ram.b[2].hva = hva;
	t->source[0] = 1;
	carry(t);
	assert_memory_equal(t->source, t->destination, ALL_PAGES * PAGE_BYTES);
}

static bool compare(struct ends *t, struct err *why)
{
	static const struct vm vm = { .nblocks = 1, .blocks = { { .name = "ram0", .pages = 9, .address = 4096 } } };
	struct wire_block *table;
	struct wire_header h;
	bool same;

	memset(why, 0, sizeof(*why));
	assert_int_equal(hello_blocks(t->out, WIRE_BLOCKS, 0, &vm, &t->from.ram, &t->e), 0);
	assert_int_equal(channel_expect(t->in, WIRE_PRIVATE_BLOCKS, &h, &t->e), 0);
	assert_int_equal(private_ram_compare(t->in, &h, &t->to, &same, why, &t->e), 0);
	assert_true(same == !why->exit);
	assert_int_equal(channel_expect(t->in, WIRE_BLOCKS, &h, &t->e), 0);
	assert_int_equal(hello_read_table(t->in, &h, "RAM", &table, &t->e), 0);
	assert_string_equal(table->name, "ram0");
	assert_int_equal(table->pages, 9);
	assert_int_equal(table->address, 4096);
	free(table);
	return same;
}

static void test_compared(void **state)
{
	struct ends *t = *state;
	struct private_block first = t->to.b[0];
	struct err why;

	assert_true(compare(t, &why));
	/* In another order: numbered as the sender does. */
	t->to.b[0] = t->to.b[2];
	t->to.b[2] = t->to.b[1];
	t->to.b[1] = first;
	assert_true(compare(t, &why));
	assert_string_equal(t->to.b[0].name, "rom");
	carry(t);
	assert_memory_equal(t->source, t->destination, ALL_PAGES * PAGE_BYTES);

	t->to.b[1].pages = 2;
	assert_false(compare(t, &why));
	assert_non_null(strstr(why.text, "\"tables\" has 4 KiB at the source and 8 KiB in this QEMU"));
	strcpy(t->to.b[1].name, "other");
	assert_false(compare(t, &why));
	assert_non_null(strstr(why.text, "none of that name"));
	t->to.n = 2;
	assert_false(compare(t, &why));
	assert_non_null(strstr(why.text, "3 blocks of private RAM and this QEMU 2"));
	t->to.has_addresses = false;
	strcpy(t->to.why, "the heap is too large");
	assert_false(compare(t, &why));
	assert_non_null(strstr(why.text, "8.0"));
}

static int frame(struct ends *t, const struct wire_extent *x, struct err *e)
{
	struct wire_header h = { .type = WIRE_PRIVATE, .arg = 1, .length = WIRE_EXTENT + (x->kind == WIRE_DATA ? PAGE_BYTES : 0) };
	uint8_t body[WIRE_EXTENT + PAGE_BYTES] = { 0 };

	memset(e, 0, sizeof(*e));
	wire_put_extent(body, x);
	assert_int_equal(channel_send(t->out, &h, body, &t->sent), 0);
	assert_int_equal(channel_expect(t->in, WIRE_PRIVATE, &h, &t->e), 0);
	return private_ram_frame(t->in, &h, &t->to, e);
}

/* Nothing outside of the blocks is written, whatever the peer sends. */
static void test_out_of_bounds(void **state)
{
	static const struct wire_extent wrong[] = {
		{ 3, WIRE_DATA, 1, 0 }, { 0, WIRE_DATA, 1, ROM_PAGES }, { 1, WIRE_DATA, 1, 1 }, { 0, WIRE_ZERO, 1, UINT64_MAX / 2 },
		{ 1, WIRE_ZERO, 2, 0 }, { 0, WIRE_DATA, 2, 0 },
	};
	struct ends *t = *state;
	struct err e;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_true(frame(t, &wrong[i], &e) < 0);
		assert_int_equal(e.exit, GW_BAD_PEER);
	}
	for (size_t i = 0; i < ALL_PAGES * PAGE_BYTES; i++)
		assert_int_equal(t->destination[i], 0xee);
	assert_int_equal(frame(t, &(struct wire_extent) { 1, WIRE_ZERO, 1, 0 }, &e), 0);
	t->to.b[1].hva = 4096;
	assert_true(frame(t, &(struct wire_extent) { 1, WIRE_DATA, 1, 0 }, &e) < 0);
	assert_int_equal(e.exit, GW_INTERNAL);
	t->to.pid = INT32_MAX;
	assert_true(frame(t, &(struct wire_extent) { 1, WIRE_DATA, 1, 0 }, &e) < 0);
	assert_int_equal(e.exit, GW_VM_GONE);
}

/* Its number may be another process's by then, as it is this one's here. */
static void test_ended(void **state)
{
	const struct frame_out out = { .send = frame_out_to_channel };
	struct ends *t = *state;
	struct err e = { 0 };
	uint64_t bytes = 0;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	close(t->to.pidfd);
	t->to.pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(dup2(t->to.pidfd, t->from.ram.pidfd), t->from.ram.pidfd);
	assert_true(frame(t, &(struct wire_extent) { 1, WIRE_DATA, 1, 0 }, &e) < 0);
	assert_int_equal(e.exit, GW_VM_GONE);
	assert_true(frame(t, &(struct wire_extent) { 1, WIRE_ZERO, 1, 0 }, &e) < 0);
	assert_int_equal(e.exit, GW_VM_GONE);
	for (size_t i = 0; i < ALL_PAGES * PAGE_BYTES; i++)
		assert_int_equal(t->destination[i], 0xee);
	e = (struct err) { 0 };
	assert_true(private_ram_send(&t->from, &out, &bytes, &e) < 0);
	assert_int_equal(e.exit, GW_VM_GONE);
	assert_int_equal(bytes, 0);
}

static int find(struct private_ram *out, uintptr_t rom, unsigned long bytes, uintptr_t vram, struct err *e)
{
	struct vm vm = { .pid = getpid(), .pidfd = 4711, .nblocks = 1, .blocks = { { .name = "ram0" } } };
	char list[1024];
	const struct peer_answer qemu[] = { { "x-query-ramblock", "", list }, { NULL, NULL, NULL } };
	struct qmp *q;
	struct peer p;
	int r;

	snprintf(list, sizeof(list), "{\"human-readable-text\": \"Block Name PSize Offset Used Total HVA RO\\n"
		 "ram0 4 KiB 0x%016x 0x%016x 0x%016x 0x%016x rw\\nrom 4 KiB 0x%016x 0x%016lx 0x%016lx 0x%016lx ro\\n"
		 "vga.vram 4 KiB 0x%016x 0x%016x 0x%016x 0x%016lx rw\\n\"}",
		 0, 8192, 8192, 4096, 0, bytes, bytes, rom, 0, 4096, 4096, vram);
	memset(e, 0, sizeof(*e));
	q = peer_qemu(&p, qemu, e);
	assert_non_null(q);
	r = private_ram_find(q, &vm, out, e);
	peer_qemu_end(&p, q);
	return r;
}

static void test_same(void **state)
{
	struct peer_answer qemu[] = { { "x-query-ramblock", "", "{\"human-readable-text\": \"as it was\"}" }, { NULL, NULL, NULL } };
	char was[] = "as it was", other[] = "as it wasn't";
	struct private_ram ram = { .list = was };
	struct err e = { 0 };
	struct qmp *q;
	struct peer p;

	(void)state;
	q = peer_qemu(&p, qemu, &e);
	assert_non_null(q);
	assert_int_equal(private_ram_same(q, &ram, &e), 0);
	ram.list = other;
	assert_true(private_ram_same(q, &ram, &e) < 0);
	assert_int_equal(e.exit, GW_VM_STATE);
	peer_qemu_end(&p, q);
}

static void test_found(void **state)
{
	void *ours = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *shared = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct private_ram ram;
	struct err e;

	(void)state;
	assert_int_equal(find(&ram, (uintptr_t)ours, 8192, (uintptr_t)ours + 8192, &e), 0);
	assert_true(ram.has_addresses && ram.n == 2 && ram.pid == getpid() && ram.pidfd == 4711);
	assert_string_equal(ram.b[0].name, "rom");
	assert_int_equal(ram.b[0].pages, 2);
	assert_int_equal(ram.b[1].hva, (uintptr_t)ours + 8192);
	private_ram_free(&ram);
	/* What others see as well is not ours to write; sizes that no page has, or no device. */
	assert_true(find(&ram, (uintptr_t)ours, 8192, (uintptr_t)shared + 4096, &e) < 0);
	assert_int_equal(e.exit, GW_RAM_PRIVATE);
	assert_non_null(strstr(e.text, "vga.vram"));
	private_ram_free(&ram);
	assert_true(find(&ram, (uintptr_t)ours, 8192 + 512, (uintptr_t)ours, &e) < 0);
	assert_int_equal(e.exit, GW_RAM_PRIVATE);
	private_ram_free(&ram);
	assert_true(find(&ram, 1ul << 45, PRIVATE_RAM_MAX, (uintptr_t)ours, &e) < 0);
	assert_int_equal(e.exit, GW_RAM_PRIVATE);
	assert_non_null(strstr(e.text, "too large"));
	private_ram_free(&ram);
	munmap(ours, 16384);
	munmap(shared, 16384);
}

#define EACH(test)	cmocka_unit_test_setup_teardown(test, setup_ends, teardown_ends)

static const struct CMUnitTest tests[] = {
	EACH(test_carried),
	EACH(test_again),
	EACH(test_compared),
	EACH(test_out_of_bounds),
	EACH(test_ended),
	cmocka_unit_test(test_found),
	cmocka_unit_test(test_same),
};

int main(void)
{
	return RUN_WITH_ENGINES(tests);
}
