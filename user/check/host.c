// SPDX-License-Identifier: GPL-2.0-only
/* What this host can do. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "check/check_internal.h"
#include "kernel/device.h"
#include "page/page.h"
#include "source/source.h"

/* The range that README.md names. */
static const struct {
	unsigned int major, minor;
} oldest = { 6, 1 }, newest = { 7, 2 };

void check_kernel(const char *release, struct check *c)
{
	static const char name[] = "kernel";
	unsigned int major, minor;

	if (sscanf(release, "%u.%u", &major, &minor) != 2) {
		check_add(c, name, CHECK_WARNING, "%.64s: no version of Linux that godwit knows", release);
		return;
	}
	if (major < oldest.major || (major == oldest.major && minor < oldest.minor))
		check_add(c, name, CHECK_WARNING, "%.64s: godwit.ko is made for Linux %u.%u or newer: boot a newer kernel", release,
			  oldest.major, oldest.minor);
	else if (major > newest.major || (major == newest.major && minor > newest.minor))
		check_add(c, name, CHECK_WARNING, "%.64s is newer than what godwit was tested with (%u.%u): try with --verify first",
			  release, newest.major, newest.minor);
	else
		check_add(c, name, CHECK_OK, "%.64s", release);
}

/* The session is opened as a migration would do it, and closed: dirty logging is not switched on. */
static void check_module(const struct look *l, struct check *c)
{
	static const char name[] = "module";
	struct dirty_source *source = NULL;
	struct err e = { 0 };

	if (l->pause) {
		check_add(c, name, CHECK_OK, "not needed with --pause");
		return;
	}
	if (l->vm->vm_fd < 0) {
		int dev = device_open(&e);

		if (dev < 0)
			check_refuse(c, name, &e);
		else
			check_add(c, name, CHECK_UNKNOWN, "godwit.ko is loaded; whether it can watch this VM: see above first");
		if (dev >= 0)
			close(dev);
	} else if (source_kmod(l->vm, -1, &source, &e)) {
		check_refuse(c, name, &e);
	} else {
		source->ops->close(source, true);
		check_add(c, name, CHECK_OK, "godwit.ko is loaded, and can watch this VM");
	}
}

static void check_memlock(int err, uint64_t limit, struct check *c)
{
	static const char name[] = "memlock limit";
	char shown[32] = "unlimited";

	if (limit != UINT64_MAX)
		snprintf(shown, sizeof(shown), "%llu KiB", (unsigned long long)limit >> 10);
	if (err == -ENOMEM)
		check_add(c, name, CHECK_WARNING, "%s, too little for a ring of io_uring: ulimit -l unlimited", shown);
	else
		check_add(c, name, CHECK_OK, "%s", shown);
}

void check_io_uring(int err, uint64_t limit, struct check *c)
{
	static const char name[] = "io_uring";

	if (err)
		check_add(c, name, CHECK_WARNING,
			  "not to be had (%s): poll() takes more CPU time: sysctl kernel.io_uring_disabled=0, or another seccomp profile",
			  strerror(-err));
	else
		check_add(c, name, CHECK_OK, "it is to be had");
	check_memlock(err, limit, c);
}

static void check_zero_filter(struct check *c)
{
	static const char name[] = "zero filter";
	const struct zero_filter *f = zero_filter_best();

	if (f == zero_filters)
		check_add(c, name, CHECK_OK, "%s", f->name);
	else
		check_add(c, name, CHECK_WARNING, "%s, as this CPU shows no %s: looking for zeros takes longer (in a VM: -cpu host)",
			  f->name, zero_filters[0].name);
}

void check_host(const struct look *l, struct check *c)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
	struct utsname kernel;

	uname(&kernel);
	getrlimit(RLIMIT_MEMLOCK, &limit);
	check_kernel(kernel.release, c);
	check_module(l, c);
	check_io_uring(engine_uring.supported(), limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur, c);
	check_zero_filter(c);
}
