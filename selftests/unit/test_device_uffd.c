// SPDX-License-Identifier: GPL-2.0-only
/* Page faults of other processes: what the tool asks of the module, and says of its refusals. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kernel/device.h"

#define DEV	1000	/* no descriptors: the wrapped calls answer for them */
#define MEM	1001
#define UFFD	1002
#define MADE	1003

static const uint8_t token[GODWIT_TOKEN_BYTES] = "0123456789abcdef";

/* The answer: an errno, or 0. */
static int answer;
static uint32_t kept;
static struct godwit_keep asked_keep;
static struct godwit_uffd asked_uffd;
static unsigned int ended;

int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	assert_int_equal(fd, DEV);
	errno = answer;
	if (request == GODWIT_KEEP) {
		asked_keep = *(struct godwit_keep *)arg;
		((struct godwit_keep *)arg)->count = 3;
	} else if (request == GODWIT_UFFD) {
		asked_uffd = *(struct godwit_uffd *)arg;
		((struct godwit_uffd *)arg)->fd = MADE;
		((struct godwit_uffd *)arg)->flags = kept;
	} else {
		assert_int_equal(request, GODWIT_KEEP_END);
		assert_null(arg);
		ended++;
	}
	return answer ? -1 : 0;
}

int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	(void)flags;
	assert_string_equal(path, "/dev/userfaultfd");
	errno = answer;
	return answer ? -1 : UFFD;
}

static void is_said(int r, int err, enum gw_exit status, const struct err *e, const char *says)
{
	assert_int_equal(r, -err);
	assert_int_equal(e->exit, status);
	if (!strstr(e->text, says))
		fail_msg("\"%s\" is not in: %s", says, e->text);
}

static void test_what_is_asked(void **state)
{
	struct err e = { 0 };
	bool was_kept;

	(void)state;
	answer = 0;
	assert_int_equal(device_keep(DEV, token, false, &e), 3);
	assert_memory_equal(asked_keep.token, token, sizeof(token));
	assert_int_equal(asked_keep.flags, 0);
	assert_int_equal(device_keep(DEV, token, true, &e), 3);
	assert_int_equal(asked_keep.flags, GODWIT_KEEP_TAKE);
	assert_int_equal(device_open_userfaultfd(&e), UFFD);
	for (kept = 0; kept <= GODWIT_UFFD_KEPT; kept++) {
		assert_int_equal(device_uffd(DEV, MEM, UFFD, &was_kept, &e), MADE);
		assert_int_equal(asked_uffd.mem_fd, MEM);
		assert_int_equal(asked_uffd.dev_fd, UFFD);
		assert_int_equal(asked_uffd.flags, 0);
		assert_int_equal(was_kept, kept);
	}
	assert_int_equal(device_keep_end(DEV, &e), 0);
	assert_int_equal(ended, 1);
	assert_int_equal(e.exit, GW_OK);
}

static void test_keeps_are_refused_in_words(void **state)
{
	static const struct {
		int err;
		enum gw_exit status;
		const char *says;
	} answers[] = {
		{ ENOTTY, GW_NO_MODULE, "too old for post-copy: load the one that came with" },
		{ EBUSY, GW_BUSY, "another receiver" },
		{ EEXIST, GW_BUSY, "can only be taken over" },
		{ ENOENT, GW_NO_MIGRATION, "has ended, or QEMU has exited" },
		{ ENOMEM, GW_INTERNAL, "godwit.ko: keep" },
	};

	(void)state;
	for (unsigned int i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		struct err e = { 0 };

		answer = answers[i].err;
		is_said(device_keep(DEV, token, false, &e), answer, answers[i].status, &e,
			answers[i].says);
	}
}

static void test_userfaultfds_are_refused_in_words(void **state)
{
	static const struct {
		int err;
		enum gw_exit status;
		const char *says;
	} answers[] = {
		{ ESRCH, GW_VM_GONE, "has exited, or has become another program" },
		{ EBUSY, GW_BUSY, "another post-copy" },
		{ ENOENT, GW_NO_MIGRATION, "not those of this QEMU" },
		{ ENOSPC, GW_VM_STATE, "more than 64 processes" },
		{ EOPNOTSUPP, GW_NO_MODULE, "CONFIG_USERFAULTFD" },
		{ EMFILE, GW_INTERNAL, "godwit.ko: userfaultfd" },
	};

	(void)state;
	for (unsigned int i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		struct err e = { 0 };
		bool was_kept;

		answer = answers[i].err;
		is_said(device_uffd(DEV, MEM, UFFD, &was_kept, &e), answer, answers[i].status, &e,
			answers[i].says);
	}
}

static void test_a_host_without_the_device_is_named(void **state)
{
	struct err none = { 0 }, denied = { 0 }, no_keep = { 0 };

	(void)state;
	answer = ENOENT;
	is_said(device_open_userfaultfd(&none), answer, GW_NO_MODULE, &none,
		"this host has no /dev/userfaultfd");
	answer = EACCES;
	is_said(device_open_userfaultfd(&denied), answer, GW_NO_MODULE, &denied, "as root");
	answer = ENODATA;
	is_said(device_keep_end(DEV, &no_keep), answer, GW_INTERNAL, &no_keep, "keep end");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_asked),
		cmocka_unit_test(test_keeps_are_refused_in_words),
		cmocka_unit_test(test_userfaultfds_are_refused_in_words),
		cmocka_unit_test(test_a_host_without_the_device_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
