// SPDX-License-Identifier: GPL-2.0-only
/* QEMU's list of all RAM: as 11.1 and 7.2 print it, and what is no such list. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "qmp_peer.h"
#include "vmm/ramblocks.h"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))

#define HEAD	"              Block Name    PSize              Offset               Used              Total                HVA  RO\n"
#define OLD	"              Block Name    PSize              Offset               Used              Total\n"
#define RAM0	"                    ram0    4 KiB  0x0000000000000000 0x0000000004000000 0x0000000004000000 0x00007fc9cbe00000  rw\n"
#define TABLES	"    /rom@etc/acpi/tables    4 KiB  0x0000000005100000 0x0000000000020000 0x0000000000200000 0x00007fca1ce00000  ro\n"
#define LONG	"0000:00:03.0/virtio-net-pci.rom    4 KiB  0x00000000050c0000 0x0000000000040000 0x0000000000040000 0x00007fca1d200000  ro\n"
#define NAMELESS "                            4 KiB  0x0000000005100000 0x0000000000020000 0x0000000000200000 0x00007fca1ce00000  rw\n"

static struct ramblocks all;

static int parse(const char *text)
{
	char copy[8192];

	strcpy(copy, text);
	return ramblocks_parse(copy, &all);
}

static void test_lists(void **state)
{
	(void)state;
	assert_int_equal(parse(HEAD RAM0 NAMELESS TABLES LONG), 0);
	assert_int_equal(all.n, 3);
	assert_int_equal(all.b[0].bytes, 64 << 20);
	assert_int_equal(all.b[0].hva, 0x7fc9cbe00000);
	assert_int_equal(ramblocks_find(&all, "/rom@etc/acpi/tables")->bytes, 128 << 10);	/* what is used, not the total */
	assert_int_equal(ramblocks_find(&all, "0000:00:03.0/virtio-net-pci.rom")->hva, 0x7fca1d200000);
	assert_null(ramblocks_find(&all, "ram"));
	assert_null(ramblocks_find(&all, ""));
	/* Before machine type 4.0. */
	assert_true(ramblocks_is("/objects/ram0", "ram0") && !ramblocks_is("/objects/ram0", "ram1") && !ramblocks_is("/objects/ram0", "/objects"));
	assert_int_equal(parse(HEAD), 0);
	assert_int_equal(all.n, 0);
	assert_int_equal(all.n, 0);
	/* Before 8.0. */
	assert_int_equal(parse(OLD "/rom@etc/acpi/tables 4 KiB 0x0000000005100000 0x0000000000020000 0x0000000000200000\n"
			       "4 KiB  0x0000000000001000 0x0000000000001000 0x0000000000001000\n"
			       "ram0    4 KiB  0x0000000000000000 0x0000000004000000 0x0000000004000000\n"), 1);
	assert_int_equal(all.n, 2);
	assert_int_equal(all.b[0].offset, 0x5100000);
	assert_int_equal(all.b[0].bytes, 0x20000);
	assert_int_equal(all.b[0].max, 0x200000);
	assert_true(!all.b[0].hva && !strcmp(all.b[1].name, "ram0"));
}

/* What QEMU calls the RAM of a memory backend that a device owns, as virtio-mem does. */
static void test_backends(void **state)
{
#define NUMBERS(bytes)	" 4 KiB 0x0000000000000000 " bytes " " bytes " 0x00007fc9cbe00000 rw\n"
#define MIB_64		NUMBERS("0x0000000004000000")
#define MIB_16		NUMBERS("0x0000000001000000")
	const uint64_t size = 64 << 20;

	(void)state;
	assert_int_equal(parse(HEAD RAM0 "0000:00:01.0/vmem" MIB_64 "0000:00:02.0/vga.vram" MIB_16
			       "/rom@etc/acpi/tables" MIB_64 "0000:00:03.0/twice" MIB_64
			       "0000:00:04.0/twice" MIB_64 "0000:00:05.0/ram0" MIB_64), 0);
	assert_ptr_equal(ramblocks_find_backend(&all, "vmem", size), &all.b[1]);
	assert_ptr_equal(ramblocks_find_backend(&all, "ram0", size), &all.b[0]);
	assert_null(ramblocks_find_backend(&all, "vga.vram", size));
	assert_null(ramblocks_find_backend(&all, "tables", size));
	assert_null(ramblocks_find_backend(&all, "twice", size));
	assert_null(ramblocks_find_backend(&all, "mem", size));
	assert_null(ramblocks_find_backend(&all, "none", size));
}

static void test_nonsense(void **state)
{
	static const char *const wrong[] = {
		"", "\n", "Block", "Block Name PSize Offset Used Total HVA", "Block Name PSize Offset Used Total HVA RO X\n" RAM0,
		"block name psize offset used total hva ro\n" RAM0,
		HEAD "ram0 4 KiB\n",
		HEAD "ram 0 4 KiB 0x0000000000000000 0x0000000004000000 0x0000000004000000 0x00007fc9cbe00000 rw\n",
		HEAD "ram0 4 KiB 0x0000000000000000 0x0000000000000000 0x0000000004000000 0x00007fc9cbe00000 rw\n",
		HEAD "ram0 4 KiB 0x0000000000000000 0x0000000004000000 0x0000000004000000 0xfffffffffffff000 rw\n",
		HEAD "ram0 4 KiB 0x0000000000000000 0x04000000 0x0000000004000000 0x00007fc9cbe00000 rw\n",
		HEAD "ram0 4 KiB 0x0000000000000000 0x00000000040000000 0x0000000004000000 0x00007fc9cbe00000 rw\n",
		HEAD "ram0 4 KiB 0x0000000000000000 0x000000000400000g 0x0000000004000000 0x00007fc9cbe00000 rw\n",
		HEAD "ram0 4 KiB 0x0000000000000000 -x0000000004000000 0x0000000004000000 0x00007fc9cbe00000 rw\n",
		HEAD "ram0 4 KiB 0x0000000000000000 0x0000000004000000 0x0000000004000000 0x00007fc9cbe00000 rx\n",
		HEAD "ram\t 4 KiB 0x0000000000000000 0x0000000004000000 0x0000000004000000 0x00007fc9cbe00000 rw\n",
		HEAD RAM0 TABLES RAM0,
		HEAD "ram0 4 KiB 0x0000000000000000 0x0000000004000000 0x0000000004000000\n",
		HEAD "ram0 4 KiB 0x0000000000000000 0x0000000004000000 0x0000000003fff000 0x00007fc9cbe00000 rw\n",
		OLD RAM0, OLD "ram0 4 KiB 0x0000000000000000\n",
		OLD "ram0 4 KiB 0x0000000000000000 0x0000000004000000 0x0000000003fff000\n",
	};
	char text[8192] = HEAD;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		int r = parse(wrong[i]);

		if (r != -EPROTO)
			print_message("case %zu: %d\n", i, r);
		assert_int_equal(r, -EPROTO);
	}
	memset(text + strlen(text), 'n', WIRE_NAME_MAX);
	strcat(text, RAM0 + strlen("                    ram0"));
	assert_int_equal(parse(text), 0);
	assert_int_equal(strlen(all.b[0].name), WIRE_NAME_MAX);
	text[strlen(HEAD) + WIRE_NAME_MAX] = 'n';
	assert_int_equal(parse(text), -EPROTO);
}

static void test_too_many(void **state)
{
	char *text = malloc(256 * (RAMBLOCKS_MAX + 2)), *end = text + sprintf(text, HEAD);

	(void)state;
	for (int i = 0; i <= RAMBLOCKS_MAX; i++) {
		char *copy = strdup(text);

		if (i == RAMBLOCKS_MAX)
			assert_int_equal(ramblocks_parse(copy, &all), 0);
		end += sprintf(end, "b%d 4 KiB 0x0000000000000000 0x0000000000001000 0x0000000000001000 0x00007fc9cbe00000 rw\n", i);
		free(copy);
	}
	assert_int_equal(ramblocks_parse(text, &all), -E2BIG);
	assert_int_equal(all.n, RAMBLOCKS_MAX);
	free(text);
}

static int query(const char *answer, struct err *e)
{
	const struct peer_answer qemu[] = { { "x-query-ramblock", "", answer }, { NULL, NULL, NULL } };
	struct qmp *q;
	struct peer p;
	int r;

	memset(e, 0, sizeof(*e));
	q = peer_qemu(&p, qemu, e);
	assert_non_null(q);
	r = ramblocks_query(q, getpid(), &all, e);
	peer_qemu_end(&p, q);
	return r;
}

static void test_query(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(query("{\"human-readable-text\": \"Block Name PSize Offset Used Total HVA RO\\n"
			       "ram0 4 KiB 0x0000000000000000 0x0000000000001000 0x0000000000001000 0x00007fc9cbe00000 rw\\n\"}",
			       &e), 0);
	assert_true(!*all.why && all.n == 1 && !all.located);
	/* Older than the addresses, which this process has no block of; and older than the command. */
	assert_int_equal(query("{\"human-readable-text\": \"Block Name PSize Offset Used Total\\n"
			       "ram0 4 KiB 0x0000000000000000 0x0000000000001000 0x0000000000001000\\n\"}", &e), 0);
	assert_true(*all.why && all.n == 1 && !all.b[0].hva && all.located);
	assert_int_equal(query(NULL, &e), 0);
	assert_true(*all.why && all.n == 0 && e.exit == GW_OK);
	assert_int_equal(query("{\"human-readable-text\": \"once upon a time\"}", &e), -EPROTO);
	assert_int_equal(e.exit, GW_NOT_QEMU);
	assert_int_equal(query("{}", &e), -EPROTO);
	assert_int_equal(query("[5]", &e), -EPROTO);
}

/* Of every version, with and without addresses. */
static void test_sizes(void **state)
{
	static const char text[] =
		"              Block Name    PSize              Offset               Used              Total\r\n"
		"                    ram0    4 KiB  0x0000000000000000 0x0000000010000000 0x0000000010000000\r\n"
		"                            4 KiB  0x0000000010000000 0x0000000000001000 0x0000000000001000\r\n"
		"    0000:00:02.0/vga.vram    4 KiB  0x0000000020000000 0x0000000001000000 0x0000000001000000 0x00007f2d8fe00000  rw\r\n"
		"nonsense\r\n";

	(void)state;
	ramblocks_sizes(text, &all);
	assert_int_equal(all.n, 2);
	assert_string_equal(all.b[0].name, "ram0");
	assert_int_equal(all.b[0].bytes, 0x10000000);
	assert_string_equal(all.b[1].name, "0000:00:02.0/vga.vram");
	assert_int_equal(all.b[1].bytes, 0x1000000);
	ramblocks_sizes("", &all);
	assert_int_equal(all.n, 0);
}

static const struct CMUnitTest tests[] = {
	cmocka_unit_test(test_lists),
		cmocka_unit_test(test_backends),
	cmocka_unit_test(test_nonsense),
	cmocka_unit_test(test_too_many),
	cmocka_unit_test(test_query),
	cmocka_unit_test(test_sizes),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
