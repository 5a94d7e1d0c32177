// SPDX-License-Identifier: GPL-2.0-only
/* What is said of whole machines that differ, and of a view that was made up. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "fit_both.h"

static void test_same(void **state)
{
	struct both *b = *state;
	struct err e = { 0 };

	compare(b);
	assert_int_equal(b->f.n, 0);
	assert_int_equal(findings_verdict(&b->f, &e), 0);
}

static void test_accepted(void **state)
{
	struct both *b = *state;
	struct err e = { 0 };

	json_object_set_new(json_object_get(b->dst, "cpu"), "avx2", json_false());
	json_object_set_new(json_object_get(b->dst, "machine"), "type",
			    json_string("pc-q35-8.0-machine"));
	assert_int_equal(fit_accept("device,cpu,machine", &b->f.accepted, &e), 0);
	compare(b);
	assert_found(b, FIT_CPU, FIT_WARNING, "lacks avx2");
	/* QEMU refuses it, so it is no good to accept it. */
	assert_found(b, FIT_MACHINE, FIT_IMPOSSIBLE, "pc-q35-8.0-machine");
	assert_int_equal(b->f.nfatal, 1);
	assert_int_equal(fit_accept("cpu,", &b->f.accepted, &e), -EINVAL);
	assert_int_equal(e.exit, GW_USAGE);
	e.exit = GW_OK;
	assert_int_equal(fit_accept("", &b->f.accepted, &e), -EINVAL);
	e.exit = GW_OK;
	assert_int_equal(fit_accept("cpus", &b->f.accepted, &e), -EINVAL);
}

static void move(json_t *view, const char *from, const char *to)
{
	json_t *devices = json_object_get(view, "devices");
	json_t *device = json_incref(json_object_get(devices, from));

	assert_non_null(device);
	json_object_del(devices, from);
	json_object_set_new(devices, to, device);
}

/* A device in another slot is said once, not as one that is missing and one too many. */
static void test_another_slot(void **state)
{
	struct both *b = *state;

	move(b->dst, "pcie.0/03.0", "pcie.0/05.0");
	compare(b);
	assert_found(b, FIT_DEVICE, FIT_IMPOSSIBLE,
		     "disk0 (virtio-blk-pci at pcie.0/03.0) is at pcie.0/05.0 at the destination");
	assert_int_equal(b->f.n, 1);
}

/* What sits on a device that is missing is not missed one by one. */
static void test_missing(void **state)
{
	struct both *b = *state;

	json_object_del(json_object_get(b->dst, "devices"), "pcie.0/04.0");
	json_object_del(json_object_get(b->dst, "devices"), "pcie.0/04.0/virtio/scsi-hd lun=0");
	compare(b);
	assert_found(b, FIT_DEVICE, FIT_IMPOSSIBLE, "virtio-scsi-pci at pcie.0/04.0 is missing");
	assert_int_equal(b->f.n, 1);
}

static void test_extra(void **state)
{
	struct both *b = *state;

	json_object_del(json_object_get(b->src, "devices"), "pcie.0/04.0");
	json_object_del(json_object_get(b->src, "devices"), "pcie.0/04.0/virtio/scsi-hd lun=0");
	compare(b);
	assert_found(b, FIT_DEVICE, FIT_FATAL,
		     "the destination has virtio-scsi-pci at pcie.0/04.0");
	assert_int_equal(b->f.n, 1);
}

/* What only one version of QEMU has inside. */
static void test_inner(void **state)
{
	struct both *b = *state;

	json_object_del(json_object_get(b->dst, "devices"), "unattached/hpet");
	json_object_del(json_object_get(b->dst, "machine"), "hpet");
	json_object_del(json_object_get(b->dst, "cpu"), "avx2");
	json_object_del(b->dst, "ram");
	compare(b);
	assert_int_equal(b->f.n, 0);
}

static void test_another_type(void **state)
{
	struct both *b = *state;

	json_object_set_new(at(b->dst, "devices", "pcie.0/03.0"), "type",
			    json_string("virtio-net-pci"));
	compare(b);
	assert_found(b, FIT_DEVICE, FIT_IMPOSSIBLE,
		     "type is \"virtio-blk-pci\" at the source and \"virtio-net-pci\"");
}

static void test_disk(void **state)
{
	struct both *b = *state;

	json_object_set_new(at(b->dst, "disks", "pcie.0/03.0"), "bytes", json_integer(524288));
	compare(b);
	assert_found(b, FIT_DISK, FIT_FATAL,
		     "disk disk0: bytes is 1048576 at the source and 524288");
}

/* The backend there lacks what the guest has taken; what it has not taken does not matter. */
static void test_negotiated(void **state)
{
	struct both *b = *state;
	json_t *host = json_object_get(at(b->dst, "virtio", "pcie.0/03.0"), "host");

	json_array_remove(host, 2);
	compare(b);
	assert_int_equal(b->f.n, 0);
	json_array_remove(host, 1);
	compare(b);
	assert_found(b, FIT_BACKEND, FIT_IMPOSSIBLE,
		     "disk0 (virtio-blk-pci at pcie.0/03.0): the guest uses VIRTIO_BLK_F_MQ");
}

/* QEMU's own RAM: it refuses what it lacks; what belongs to a device is said of the device. */
static void test_private(void **state)
{
	struct both *b = *state;
	json_t *here = json_pack("{s:i, s:i, s:i}", "pc.bios", 262144, "system.flash0", 4096,
				 "0000:00:02.0/vga.vram", 8192);
	json_t *there = json_pack("{s:i}", "pc.bios", 131072);

	json_object_set_new(b->src, "private", here);
	compare(b);
	assert_int_equal(b->f.n, 0);
	json_object_set_new(b->dst, "private", there);
	compare(b);
	assert_found(b, FIT_MEMORY, FIT_IMPOSSIBLE,
		     "pc.bios has 256 KiB at the source and 128 KiB");
	assert_found(b, FIT_MEMORY, FIT_IMPOSSIBLE, "system.flash0 is missing");
	assert_int_equal(b->f.n, 2);
}

static void test_usb(void **state)
{
	struct both *b = *state;

	json_object_set_new(
		b->src, "usb",
		json_pack("{s:s, s:s}", "bus 0, port 1", "QEMU USB Tablet", "bus 0, port 2", "x"));
	json_object_set_new(b->dst, "usb",
			    json_pack("{s:s}", "bus 0, port 1", "QEMU USB Keyboard"));
	json_object_set_new(b->src, "user-networks", json_integer(1));
	json_object_set_new(b->dst, "user-networks", json_integer(0));
	compare(b);
	assert_found(b, FIT_BACKEND, FIT_IMPOSSIBLE, "the source has 1 user networks");
	json_object_del(b->src, "user-networks");
	findings_free(&b->f);
	compare(b);
	assert_found(b, FIT_DEVICE, FIT_IMPOSSIBLE,
		     "USB bus 0, port 1: there is \"QEMU USB Tablet\" at the source");
	assert_int_equal(b->f.n, 1);
}

/* A message with a number of 64 bits has doubles for all of them. */
static void test_doubles(void **state)
{
	struct both *b = *state;

	json_object_set_new(at(b->dst, "disks", "pcie.0/03.0"), "bytes", json_real(1048576.0));
	json_object_set_new(at(b->dst, "ram", "ram0"), "address", json_real(0.0));
	compare(b);
	assert_int_equal(b->f.n, 0);
}

/* Names of RAM are a matter of the command line, its place in the guest is not. */
static void test_ram_by_place(void **state)
{
	struct both *b = *state;
	json_t *here = json_object_get(b->src, "ram"), *there = json_object_get(b->dst, "ram");

	json_object_set_new(here, "ram1", json_pack("{s:i}", "address", 4096));
	json_object_set_new(there, "ram1", json_pack("{s:f}", "address", 0.0));
	json_object_set_new(at(b->dst, "ram", "ram0"), "address", json_integer(4096));
	compare(b);
	assert_int_equal(b->f.n, 0);
	json_object_set_new(at(b->dst, "ram", "ram0"), "address", json_integer(8192));
	compare(b);
	assert_found(b, FIT_MEMORY, FIT_IMPOSSIBLE, "RAM ram1: address is 4096 at the source and 0");
	assert_int_equal(b->f.n, 1);
}

static void test_many(void **state)
{
	struct both *b = *state;
	struct err e = { 0 };

	for (unsigned int i = 0; i < 2 * FINDINGS_MAX; i++) {
		char place[40];

		snprintf(place, sizeof(place), "pcie.0/%u", i);
		json_object_set_new(
			json_object_get(b->src, "devices"), place,
			json_pack("{s:s, s:b, s:{}}", "type", "e1000", "plugged", 1, "props"));
	}
	compare(b);
	assert_int_equal(b->f.n, 2 * FINDINGS_MAX);
	assert_int_equal(findings_kept(&b->f), FINDINGS_MAX);
	assert_int_equal(findings_verdict(&b->f, &e), -EINVAL);
	assert_non_null(strstr(e.text, "and 399 more reasons"));
}

/* Control characters of the other side do not reach a terminal, and no length is too much. */
static void test_what_is_shown(void **state)
{
	struct both *b = *state;
	char id[3000];

	memset(id, 'x', sizeof(id) - 1);
	id[sizeof(id) - 1] = '\0';
	id[0] = '\033';
	json_object_set_new(at(b->dst, "devices", "pcie.0/03.0"), "type", json_string(id));
	json_object_set_new(at(b->src, "devices", "pcie.0/03.0"), "id", json_string(id));
	compare(b);
	assert_int_equal(b->f.n, 1);
	assert_null(strchr(b->f.rows[0].text, '\033'));
}

/* Wherever a peer puts something of another kind, nothing happens but a difference, or none. */
static void put_everywhere(struct both *b, json_t *into, json_t *odd, unsigned int depth)
{
	const char *key;
	json_t *value;
	void *next;

	json_object_foreach_safe(into, next, key, value) {
		json_incref(value);
		json_object_set(into, key, odd);
		compare(b);
		findings_free(&b->f);
		json_object_set(into, key, value);
		if (depth && json_is_object(value))
			put_everywhere(b, value, odd, depth - 1);
		json_decref(value);
	}
}

static void test_hostile(void **state)
{
	static const char *const odd[] = { "null", "7",	     "\"text\"",
					   "[]",   "[[]]",   "{}",
					   "true", "-1e300", "{\"a\": {\"b\": []}}" };
	struct both *b = *state;

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		json_t *value = json_loads(odd[i], JSON_DECODE_ANY, NULL);

		assert_non_null(value);
		put_everywhere(b, b->dst, value, 4);
		put_everywhere(b, b->src, value, 4);
		json_decref(value);
	}
}

static void test_encoding(void **state)
{
	struct both *b = *state;
	struct err e = { 0 };
	json_t *again;
	char *text;
	size_t len;

	assert_int_equal(view_encode(b->src, &text, &len, &e), 0);
	again = view_decode(text, len);
	assert_true(json_equal(again, b->src));
	json_decref(again);
	assert_null(view_decode(text, len - 1));
	assert_null(view_decode(text, 0));
	assert_null(view_decode("[]", 2));
	assert_null(view_decode("{\"a\": \"\xff\"}", 10));
	free(text);
	text = malloc(VIEW_BYTES_MAX + 1);
	memset(text, 'x', VIEW_BYTES_MAX);
	json_object_set_new(b->src, "large", json_stringn(text, VIEW_BYTES_MAX));
	free(text);
	assert_int_equal(view_encode(b->src, &text, &len, &e), -E2BIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_same), TEST(test_accepted), TEST(test_another_slot), TEST(test_missing),
		TEST(test_extra), TEST(test_inner), TEST(test_another_type), TEST(test_disk),
		TEST(test_negotiated), TEST(test_doubles), TEST(test_ram_by_place), TEST(test_private),
		TEST(test_usb),
		TEST(test_many), TEST(test_what_is_shown), TEST(test_hostile), TEST(test_encoding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
