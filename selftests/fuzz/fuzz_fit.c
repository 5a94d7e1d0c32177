// SPDX-License-Identifier: GPL-2.0-only
/*
 * The receiver's view of its QEMU: any bytes, compared with a view of ours. Nothing is read outside of what was given, no
 * text leaves its room, and none of it has a character that a terminal obeys.
 */
#include <stdlib.h>
#include <string.h>

#include "fit/compare.h"
#include "fit/view.h"

#define CHECK(cond)	do { if (!(cond)) abort(); } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char ours[] =
	"{\"machine\": {\"type\": \"q\", \"memory\": {\"slots\": 1}}, \"vcpus\": {\"count\": 1, \"model\": \"m-x86_64-cpu\", \"accelerator\": \"kvm\"},"
	" \"cpu\": {\"avx2\": true, \"vmx\": true, \"invtsc\": true, \"family\": 6, \"tsc-frequency\": 1000}, \"ram\": {\"r\": {\"address\": 0}},"
	" \"devices\": {\"a\": {\"type\": \"virtio-net-pci\", \"id\": \"n\", \"plugged\": true, \"props\": {\"mac\": \"x\", \"rombar\": 1}},"
	" \"a/b\": {\"type\": \"scsi-hd\", \"plugged\": true, \"props\": {}}}, \"disks\": {\"a\": {\"bytes\": 1, \"medium\": true}},"
	" \"virtio\": {\"a\": {\"guest\": [\"F\", \"G\"], \"host\": [\"F\"]}}, \"host\": {\"kvm\": true}}";

static void compare(const json_t *src, const json_t *dst, unsigned int accepted)
{
	struct findings f = { .accepted = accepted };
	struct err e = { 0 };

	fit_needs_features(src, dst);
	fit_compare(src, dst, &policy, &f);
	for (unsigned int i = 0; i < findings_kept(&f); i++) {
		const struct finding *row = &f.rows[i];

		CHECK(row->class < FIT_CLASSES && memchr(row->text, '\0', sizeof(row->text)));
		for (const char *p = row->text; *p; p++)
			CHECK((unsigned char)*p >= ' ' && *p != 0x7f &&
			      ((unsigned char)*p != 0xc2 || (unsigned char)p[1] >= 0xa0));
	}
	CHECK(!findings_verdict(&f, &e) == !f.nfatal);
	findings_free(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static json_t *source;
	json_t *view;

	if (!size)
		return 0;
	if (!source)
		source = json_loads(ours, 0, NULL);
	CHECK(source);
	view = view_decode((const char *)data + 1, size - 1);
	if (!view)
		return 0;
	compare(source, view, data[0]);
	compare(view, source, data[0]);
	json_decref(view);
	return 0;
}
