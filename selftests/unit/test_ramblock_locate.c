// SPDX-License-Identifier: GPL-2.0-only
/* A QEMU that does not say where its RAM is: this very process, its heap is real, a script is its monitor. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "qmp_peer.h"
#include "vmm/ramblocks.h"

#define MIB	(1ul << 20)
#define HEAP	(2 * MIB)	/* of ours, whatever else is in the heap */
#define PART	(256u << 10)	/* as it is read */
#define LIST	"{\"human-readable-text\": \"Block Name PSize Offset Used Total\\n" \
		"ram0 4 KiB 0x0000000000000000 0x0000000000400000 0x0000000000400000\\n" \
		"0000:00:01.0/vga.vram 4 KiB 0x0000000007000000 0x0000000000100000 0x0000000000100000\\n" \
		"4 KiB 0x0000000009000000 0x0000000000100000 0x0000000000100000\\n" \
		"/rom@etc/x 4 KiB 0x0000000008000000 0x0000000000001000 0x0000000000100000\\n\"}"
#define VIEW(from, to) \
	"\"FlatView #0\\r\\n AS \\\"cpu-smm-0\\\", root: memory\\r\\n" \
	"  0000000000000000-00000000003fffff (prio 0, ram): wrong\\r\\n\\r\\nFlatView #1\\r\\n" \
	" AS \\\"memory\\\", root: system\\r\\n Root memory region: system\\r\\n" \
	"  0000000000000000-000000000009ffff (prio 0, ram): ram0 KVM\\r\\n" \
	"  00000000000a0000-00000000000bffff (prio 1, i/o): vga-lowmem\\r\\n" \
	"  0000000000100000-00000000002fffff (prio 0, ram): ram0 @0000000000100000 KVM\\r\\n" \
	"  0000000100000000-00000001000fffff (prio 0, ram): ram0 @0000000000300000 KVM\\r\\n" \
	"  " from "-" to " (prio 1, ram): vga.vram\\r\\n\""
#define FIXED	VIEW("00000000fd000000", "00000000fd0fffff")

/* What a QEMU has of a block, in the heap: in that of sbrk(), with any malloc(). */
struct block {
	uint64_t unlike[3], hva, cache, offset, used, max, fn;
	uint32_t flags;
	char name[256];
};

static struct ramblocks all;
static struct block *blocks;	/* 3, and one more */
static uint8_t *ram;

static void fill(struct block *b, const char *name, void *hva, uint64_t offset, uint64_t used, uint64_t max)
{
	*b = (struct block) { { 1, 2, 3 }, (uintptr_t)hva, 0, offset, used, max, 4, 5, "" };
	strcpy(b->name, name);
}

static int setup(void **state)
{
	(void)state;
	if (!blocks) {
		blocks = sbrk(HEAP);
		ram = mmap(NULL, 6 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	}
	if ((void *)blocks == (void *)-1 || ram == MAP_FAILED)
		return -1;
	memset(blocks, 0, HEAP);
	fill(&blocks[0], "ram0", ram, 0, 4 * MIB, 4 * MIB);
	fill(&blocks[1], "0000:00:01.0/vga.vram", ram + 4 * MIB, 0x7000000, MIB, MIB);
	fill(&blocks[2], "/rom@etc/x", ram + 5 * MIB, 0x8000000, 4096, MIB);
	return 0;
}

struct answers {
	const char *mtree;
	uint64_t ram_first, ram_last, vram_first, vram_last;
	const char *vram_name;
};

static struct answers right(void)
{
	return (struct answers) { FIXED, (uintptr_t)ram, (uintptr_t)ram + 4 * MIB - 1, (uintptr_t)ram + 4 * MIB,
				  (uintptr_t)ram + 5 * MIB - 1, "vga.vram" };
}

static void say(char *text, size_t size, const char *address, const char *name, uint64_t hva)
{
	snprintf(text, size, "\"Host virtual address for %s (%s) is 0x%" PRIx64 "\\r\\n\"", address, name, hva);
}

/* All addresses, or the reason. */
static const char *locate(const struct answers *a)
{
	char text[4][200];
	const struct peer_answer qemu[] = {
		{ "x-query-ramblock", "", LIST },
		{ "human-monitor-command", "info mtree -f", a->mtree },
		{ "human-monitor-command", "gpa2hva 0x0\"", a->ram_first ? text[0] : "\"No memory is mapped\\r\\n\"" },
		{ "human-monitor-command", "gpa2hva 0x1000fffff\"", text[1] },
		{ "human-monitor-command", "gpa2hva 0xfd000000\"", text[2] },
		{ "human-monitor-command", "gpa2hva 0xfd0fffff\"", text[3] },
		{ NULL, NULL, NULL },
	};
	struct err e = { 0 };
	struct qmp *q;
	struct peer p;

	say(text[0], sizeof(text[0]), "0x0", "ram0", a->ram_first);
	say(text[1], sizeof(text[1]), "0x1000fffff", "ram0", a->ram_last);
	say(text[2], sizeof(text[2]), "0xfd000000", a->vram_name, a->vram_first);
	say(text[3], sizeof(text[3]), "0xfd0fffff", a->vram_name, a->vram_last);
	q = peer_qemu(&p, qemu, &e);
	assert_non_null(q);
	memset(&all, 0, sizeof(all));
	assert_int_equal(ramblocks_query(q, getpid(), &all, &e), 0);
	peer_qemu_end(&p, q);
	assert_true(all.located && all.n == 3);
	for (unsigned int i = 0; i < all.n; i++)
		assert_int_equal(!all.b[i].hva, *all.why != '\0');
	return all.why;
}

static void expect_found(const struct answers *a)
{
	assert_string_equal(locate(a), "");
	assert_int_equal(all.b[0].hva, (uintptr_t)ram);
	assert_int_equal(all.b[1].hva, (uintptr_t)ram + 4 * MIB);
	assert_int_equal(all.b[2].hva, (uintptr_t)ram + 5 * MIB);
	assert_int_equal(all.b[2].max, MIB);
}

static void test_located(void **state)
{
	struct answers a = right();

	(void)state;
	expect_found(&a);
	/* One that the monitor tells is enough: the guest does not see the display, or several have that name. */
	a.vram_name = "other.vram";
	a.vram_first += 65536;
	a.vram_last += 65536;
	expect_found(&a);
	a = right();
	a.mtree = VIEW("00000000fd000000", "00000000fd00ffff");
	expect_found(&a);
}

static void expect_refused(const struct answers *a, const char *why)
{
	if (!strstr(locate(a), why))
		print_message("not \"%s\": \"%s\"\n", why, all.why);
	assert_non_null(strstr(all.why, why));
}

static void test_unproven(void **state)
{
	struct answers a = right();

	(void)state;
	a.ram_first = 0;
	a.vram_first = 0;
	expect_refused(&a, "nothing proves");
	a = right();
	a.mtree = NULL;
	expect_refused(&a, "nothing proves");
	a.mtree = "\"\"";
	expect_refused(&a, "nothing proves");
}

/* The guest moves the display's memory: no address that is not the block's may be taken for it. */
static void test_moving(void **state)
{
	struct answers a = right();

	(void)state;
	a.vram_first += 65536;
	expect_found(&a);	/* as what the monitor says of that block does not count */
	a.vram_last += 65536;
	expect_refused(&a, "\"0000:00:01.0/vga.vram\" was found in QEMU's heap, but");
	a = right();
	a.ram_first += 4096;
	a.ram_last += 4096;
	expect_refused(&a, "\"ram0\" was found in QEMU's heap, but");
}

static void test_heap(void **state)
{
	struct answers a = right();

	(void)state;
	/* What a guest has sent, say, as a packet. */
	fill(&blocks[3], "/rom@etc/x", ram, 0x8000000, 4096, MIB);
	expect_refused(&a, "\"/rom@etc/x\" was found in two places");
	setup(NULL);
	memset(&blocks[2], 0, sizeof(blocks[2]));
	expect_refused(&a, "\"/rom@etc/x\" was not found");
	/* A copy outside of the heap counts for nothing: the guest's own RAM is there. */
	fill((struct block *)ram, "/rom@etc/x", ram + 5 * MIB, 0x8000000, 4096, MIB);
	expect_refused(&a, "\"/rom@etc/x\" was not found");
	memset(ram, 0, sizeof(struct block));
}

static uintptr_t heap_start(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	uintptr_t start = 0;

	while (!start && fgets(line, sizeof(line), f))
		if (strstr(line, "[heap]"))
			assert_int_equal(sscanf(line, "%" SCNxPTR, &start), 1);
	fclose(f);
	return start;
}

/* Where one part that is read ends, and the next one begins. */
static void test_parts(void **state)
{
	static const size_t steps[] = { PART, PART - 1024 };
	uintptr_t ours = (uintptr_t)(blocks + 3), start = heap_start();
	const struct answers a = right();
	struct block block = blocks[2];
	unsigned int n = 0;

	(void)state;
	assert_true(start && ours > start);
	for (size_t i = 0; i < 2; i++)
		for (uintptr_t at = start + steps[i]; at < ours + HEAP / 2; at += steps[i])
			for (uintptr_t put = at - 1040; put < at + 64; put += 16) {
				if (put < ours)
					continue;
				memset(&blocks[2], 0, sizeof(block));
				memcpy((void *)put, &block, sizeof(block));
				expect_found(&a);
				memset((void *)put, 0, sizeof(block));
				n++;
			}
	assert_true(n > 50);
}

static void test_still_there(void **state)
{
	struct answers a = right();
	struct err e = { 0 };

	(void)state;
	expect_found(&a);
	assert_int_equal(ramblocks_check_located(getpid(), &all, &e), 0);
	/* Unplugged and plugged again: the old one's place in the heap may still be as it was, or be used anew. */
	fill(&blocks[3], "0000:00:01.0/vga.vram", ram, 0x7000000, MIB, MIB);
	assert_true(ramblocks_check_located(getpid(), &all, &e) < 0);
	assert_int_equal(e.exit, GW_VM_STATE);
	assert_non_null(strstr(e.text, "meanwhile"));
	memset(&blocks[1], 0, sizeof(blocks[1]));
	e = (struct err) { 0 };
	assert_true(ramblocks_check_located(getpid(), &all, &e) < 0);
	assert_int_equal(e.exit, GW_VM_STATE);
	e = (struct err) { 0 };
	assert_true(ramblocks_check_located(INT32_MAX, &all, &e) < 0);
	assert_int_equal(e.exit, GW_VM_GONE);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test_setup(test_located, setup),
	cmocka_unit_test_setup(test_unproven, setup),
	cmocka_unit_test_setup(test_moving, setup),
	cmocka_unit_test_setup(test_heap, setup),
	cmocka_unit_test_setup(test_parts, setup),
	cmocka_unit_test_setup(test_still_there, setup),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
