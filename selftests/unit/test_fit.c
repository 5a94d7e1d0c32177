// SPDX-License-Identifier: GPL-2.0-only
/* Source and destination side by side: what is said of whole machines, and of a view that somebody made up. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fit/compare.h"
#include "fit/view.h"

static const char machine[] =
	"{\"machine\": {\"type\": \"pc-q35-7.2-machine\", \"hpet\": true},"
	" \"vcpus\": {\"count\": 1, \"model\": \"max-x86_64-cpu\", \"accelerator\": \"kvm\"},"
	" \"cpu\": {\"avx2\": true, \"fma\": true, \"sse4.1\": true, \"sse4-1\": true, \"sse4_1\": true, \"x2apic\": false},"
	" \"ram\": {\"ram0\": {\"address\": 0}},"
	" \"devices\": {"
	"  \"pcie.0/03.0\": {\"type\": \"virtio-blk-pci\", \"id\": \"disk0\", \"plugged\": true, \"props\": {\"serial\": \"a\"}},"
	"  \"pcie.0/04.0\": {\"type\": \"virtio-scsi-pci\", \"plugged\": true, \"props\": {}},"
	"  \"pcie.0/04.0/virtio/scsi-hd lun=0\": {\"type\": \"scsi-hd\", \"plugged\": true, \"props\": {}},"
	"  \"unattached/hpet\": {\"type\": \"hpet\", \"plugged\": false, \"props\": {}}},"
	" \"disks\": {\"pcie.0/03.0\": {\"medium\": true, \"bytes\": 1048576, \"read-only\": false}},"
	" \"virtio\": {\"pcie.0/03.0\": {\"guest\": [\"VIRTIO_F_VERSION_1\", \"VIRTIO_BLK_F_MQ\"],"
	"   \"host\": [\"VIRTIO_F_VERSION_1\", \"VIRTIO_BLK_F_MQ\", \"VIRTIO_BLK_F_DISCARD\"]}}}";

struct both {
	json_t *src, *dst;
	struct findings f;
};

static int setup(void **state)
{
	struct both *b = calloc(1, sizeof(*b));

	b->src = json_loads(machine, 0, NULL);
	b->dst = json_loads(machine, 0, NULL);
	*state = b;
	return !b->src || !b->dst;
}

static int teardown(void **state)
{
	struct both *b = *state;

	json_decref(b->src);
	json_decref(b->dst);
	findings_free(&b->f);
	free(b);
	return 0;
}

static json_t *at(json_t *view, const char *a, const char *b)
{
	json_t *found = json_object_get(json_object_get(view, a), b);

	assert_non_null(found);
	return found;
}

static void compare(struct both *b)
{
	fit_compare(b->src, b->dst, &policy, &b->f);
}

/* There is exactly one difference of that kind with these words. */
static void assert_found(const struct both *b, enum fit_class class, enum fit_severity severity, const char *words)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < findings_kept(&b->f); i++)
		n += b->f.rows[i].class == class && b->f.rows[i].severity == severity && strstr(b->f.rows[i].text, words);
	for (unsigned int i = 0; n != 1 && i < findings_kept(&b->f); i++)
		print_error("%s\n", b->f.rows[i].text);
	assert_int_equal(n, 1);
}

static void test_same(void **state)
{
	struct both *b = *state;
	struct err e = { 0 };

	compare(b);
	assert_int_equal(b->f.n, 0);
	assert_int_equal(findings_verdict(&b->f, &e), 0);
}

/* Hundreds of features are one line, sorted, without QEMU's second names. */
static void test_features(void **state)
{
	static const char *const lost[] = { "fma", "avx2", "sse4-1", "sse4_1" };
	struct both *b = *state;
	struct err e = { 0 };

	for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++)
		json_object_set_new(json_object_get(b->dst, "cpu"), lost[i], json_false());
	json_object_set_new(json_object_get(b->dst, "cpu"), "x2apic", json_true());
	json_object_set_new(json_object_get(b->dst, "vcpus"), "model", json_string("qemu64-x86_64-cpu"));
	compare(b);
	assert_int_equal(b->f.n, 2);
	assert_found(b, FIT_CPU, FIT_FATAL, "(qemu64) lacks avx2, fma, sse4-1, which the source's (max) has");
	assert_found(b, FIT_CPU, FIT_WARNING, "has x2apic,");
	assert_int_equal(findings_verdict(&b->f, &e), -EINVAL);
	assert_int_equal(e.exit, GW_MISFIT);
	assert_non_null(strstr(e.text, "avx2"));
}

/* In brief, as QEMU before 10.1: bits, and names only where those do not say it. */
static void test_brief(void **state)
{
	static const char words[] = "[{\"cpuid-register\": \"EDX\", \"cpuid-input-eax\": 1, \"features\": 4294967295},"
				    " {\"cpuid-register\": \"ECX\", \"cpuid-input-eax\": 1, \"features\": 4294967263}]";
	struct both *b = *state;
	json_t *src = json_object(), *dst = json_object(), *word;

	json_object_set_new(b->src, "cpu", src);
	json_object_set_new(b->dst, "cpu", dst);
	assert_true(fit_needs_features(b->src, b->dst));
	json_object_set_new(src, "feature-words", json_loads(words, 0, NULL));
	assert_true(fit_needs_features(b->src, b->dst));
	json_object_set_new(dst, "feature-words", json_loads(words, 0, NULL));
	assert_false(fit_needs_features(b->src, b->dst));
	/* One bit. */
	word = json_array_get(json_object_get(dst, "feature-words"), 1);
	json_object_set_new(word, "features", json_integer(4294967262));
	assert_true(fit_needs_features(b->src, b->dst));
	/* What VMX has is in no CPUID leaf. */
	json_object_set_new(word, "features", json_integer(4294967295));
	json_object_set_new(json_array_get(json_object_get(src, "feature-words"), 1), "features", json_integer(4294967295));
	assert_true(fit_needs_features(b->src, b->dst));
	/* All features are there, by name. */
	json_object_set_new(src, "sse2", json_true());
	assert_true(fit_needs_features(b->src, b->dst));
	json_object_set_new(dst, "sse2", json_true());
	assert_false(fit_needs_features(b->src, b->dst));
}

static void test_accepted(void **state)
{
	struct both *b = *state;
	struct err e = { 0 };

	json_object_set_new(json_object_get(b->dst, "cpu"), "avx2", json_false());
	json_object_set_new(json_object_get(b->dst, "machine"), "type", json_string("pc-q35-8.0-machine"));
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
	json_t *devices = json_object_get(view, "devices"), *device = json_incref(json_object_get(devices, from));

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
	assert_found(b, FIT_DEVICE, FIT_IMPOSSIBLE, "disk0 (virtio-blk-pci at pcie.0/03.0) is at pcie.0/05.0 at the destination");
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
	assert_found(b, FIT_DEVICE, FIT_FATAL, "the destination has virtio-scsi-pci at pcie.0/04.0");
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

	json_object_set_new(at(b->dst, "devices", "pcie.0/03.0"), "type", json_string("virtio-net-pci"));
	compare(b);
	assert_found(b, FIT_DEVICE, FIT_IMPOSSIBLE, "type is \"virtio-blk-pci\" at the source and \"virtio-net-pci\"");
}

static void test_disk(void **state)
{
	struct both *b = *state;

	json_object_set_new(at(b->dst, "disks", "pcie.0/03.0"), "bytes", json_integer(524288));
	compare(b);
	assert_found(b, FIT_DISK, FIT_FATAL, "disk disk0: bytes is 1048576 at the source and 524288");
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
	assert_found(b, FIT_BACKEND, FIT_IMPOSSIBLE, "disk0 (virtio-blk-pci at pcie.0/03.0): the guest uses VIRTIO_BLK_F_MQ");
}

/* A message with a number of 64 bits has doubles for all of them. */
/* QEMU's own RAM: it refuses what it lacks; what belongs to a device is said of the device. */
static void test_private(void **state)
{
	struct both *b = *state;
	json_t *here = json_pack("{s:i, s:i, s:i}", "pc.bios", 262144, "system.flash0", 4096, "0000:00:02.0/vga.vram", 8192);
	json_t *there = json_pack("{s:i}", "pc.bios", 131072);

	json_object_set_new(b->src, "private", here);
	compare(b);
	assert_int_equal(b->f.n, 0);
	json_object_set_new(b->dst, "private", there);
	compare(b);
	assert_found(b, FIT_MEMORY, FIT_IMPOSSIBLE, "pc.bios has 256 KiB at the source and 128 KiB");
	assert_found(b, FIT_MEMORY, FIT_IMPOSSIBLE, "system.flash0 is missing");
	assert_int_equal(b->f.n, 2);
}

static void test_usb(void **state)
{
	struct both *b = *state;

	json_object_set_new(b->src, "usb", json_pack("{s:s, s:s}", "bus 0, port 1", "QEMU USB Tablet", "bus 0, port 2", "x"));
	json_object_set_new(b->dst, "usb", json_pack("{s:s}", "bus 0, port 1", "QEMU USB Keyboard"));
	json_object_set_new(b->src, "user-networks", json_integer(1));
	json_object_set_new(b->dst, "user-networks", json_integer(0));
	compare(b);
	assert_found(b, FIT_BACKEND, FIT_IMPOSSIBLE, "the source has 1 user networks");
	json_object_del(b->src, "user-networks");
	findings_free(&b->f);
	compare(b);
	assert_found(b, FIT_DEVICE, FIT_IMPOSSIBLE, "USB bus 0, port 1: there is \"QEMU USB Tablet\" at the source");
	assert_int_equal(b->f.n, 1);
}

/* A feature that an older QEMU does not know. */
static void test_unknown_features(void **state)
{
	struct both *b = *state;

	json_object_set_new(json_object_get(b->src, "cpu"), "fsrm", json_true());
	json_object_set_new(json_object_get(b->src, "cpu"), "x-odd", json_true());
	compare(b);
	assert_int_equal(b->f.n, 0);	/* it has not said all that it has */
	json_object_set_new(json_object_get(b->src, "cpu"), "sse2", json_true());
	json_object_set_new(json_object_get(b->dst, "cpu"), "sse2", json_true());
	compare(b);
	assert_found(b, FIT_CPU, FIT_WARNING, "does not know fsrm, which");
	assert_int_equal(b->f.n, 1);
}

static void test_doubles(void **state)
{
	struct both *b = *state;

	json_object_set_new(at(b->dst, "disks", "pcie.0/03.0"), "bytes", json_real(1048576.0));
	json_object_set_new(at(b->dst, "ram", "ram0"), "address", json_real(0.0));
	compare(b);
	assert_int_equal(b->f.n, 0);
}

static void test_many(void **state)
{
	struct both *b = *state;
	struct err e = { 0 };

	for (unsigned int i = 0; i < 2 * FINDINGS_MAX; i++) {
		char place[40];

		snprintf(place, sizeof(place), "pcie.0/%u", i);
		json_object_set_new(json_object_get(b->src, "devices"), place,
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
	static const char *const odd[] = { "null", "7", "\"text\"", "[]", "[[]]", "{}", "true", "-1e300", "{\"a\": {\"b\": []}}" };
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
#define TEST(fn)	cmocka_unit_test_setup_teardown(fn, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_same), TEST(test_features), TEST(test_brief), TEST(test_accepted), TEST(test_another_slot), TEST(test_missing), TEST(test_extra),
		TEST(test_inner), TEST(test_another_type), TEST(test_disk), TEST(test_negotiated), TEST(test_doubles), TEST(test_private), TEST(test_usb), TEST(test_unknown_features), TEST(test_many),
		TEST(test_what_is_shown), TEST(test_hostile), TEST(test_encoding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
