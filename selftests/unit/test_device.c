// SPDX-License-Identifier: GPL-2.0-only
/* What the tool says of RAM that the module cannot watch: the kind by name, and the way out. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernel/device.h"

#define DEV	1000	/* no descriptor: the wrapped ioctl() answers for it */

static int answer;

int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	(void)request;
	assert_int_equal(fd, DEV);
	errno = answer;
	return -1;
}

static void add_private(int err, int status, const char *says)
{
	uint64_t *map, bytes;
	struct err e = { 0 };

	answer = err;
	assert_int_not_equal(device_add_private(DEV, 1 << 20, 16, &map, &bytes, &e), 0);
	assert_int_equal(e.exit, status);
	if (!strstr(e.text, says))
		fail_msg("\"%s\" is not in: %s", says, e.text);
}

static void test_private_ram_is_refused_by_kind(void **state)
{
	static const struct {
		int err;
		const char *says;
	} kinds[] = {
		{ EOPNOTSUPP, "guest_memfd" },
		{ EADDRNOTAVAIL, "not mapped" },
		{ ENODEV, "memory of a device" },
		{ ENOTUNIQ, "a shared mapping" },
		{ EMEDIUMTYPE, "not on tmpfs or hugetlbfs" },
	};

	(void)state;
	for (unsigned int i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		add_private(kinds[i].err, GW_RAM_PRIVATE, kinds[i].says);
		add_private(kinds[i].err, GW_RAM_PRIVATE, "start QEMU with memory-backend-ram");
	}
}

static void test_a_confidential_guest_is_refused(void **state)
{
	struct err e = { 0 };

	(void)state;
	answer = EOPNOTSUPP;
	assert_int_not_equal(device_attach(DEV, 3, &e), 0);
	assert_int_equal(e.exit, GW_DIRTY_RING);
	assert_non_null(strstr(e.text, "without confidential-guest-support"));
}

static void test_a_busy_address_space_is_tried_again_later(void **state)
{
	struct err e = { 0 };

	(void)state;
	answer = EAGAIN;
	assert_int_not_equal(device_start(DEV, &e), 0);
	assert_int_equal(e.exit, GW_BUSY);
	assert_non_null(strstr(e.text, "try again later"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_private_ram_is_refused_by_kind),
		cmocka_unit_test(test_a_confidential_guest_is_refused),
		cmocka_unit_test(test_a_busy_address_space_is_tried_again_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
