// SPDX-License-Identifier: GPL-2.0-only
/* The rows for this host. */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "check/check_internal.h"
#include "dirty/source.h"
#include "kernel/device.h"
#include "page/page.h"

/* The range of kernels that README.md names. */
static const struct {
	unsigned int major, minor;
} oldest = { 6, 1 }, newest = { 7, 3 };

void check_kernel(const char *release, struct check *c)
{
	static const char name[] = "kernel";
	unsigned int major, minor;

	if (sscanf(release, "%u.%u", &major, &minor) != 2) {
		check_add(c, name, CHECK_WARNING, "%.64s: not a Linux version that godwit can read", release);
		return;
	}
	if (major < oldest.major || (major == oldest.major && minor < oldest.minor))
		check_add(c, name, CHECK_WARNING, "%.64s: godwit.ko needs Linux %u.%u or newer: boot a newer kernel",
			  release, oldest.major, oldest.minor);
	else if (major > newest.major || (major == newest.major && minor > newest.minor))
		check_add(c, name, CHECK_WARNING, "%.64s is newer than the newest kernel that godwit was tested with (%u.%u): try with --verify first",
			  release, newest.major, newest.minor);
	else
		check_add(c, name, CHECK_OK, "%.64s", release);
}

/* Opens the session as a migration does, and closes it: does not switch dirty logging on. */
static void check_module(const struct preflight *l, struct check *c)
{
	static const char name[] = "module";
	struct dirty_source *source = NULL;
	struct err e = { 0 };
	int dev;

	if (l->pause) {
		check_add(c, name, CHECK_OK, "not needed with --pause");
		return;
	}
	dev = device_open_or_pause(&e);
	if (dev < 0) {
		check_refuse(c, name, &e);
	} else if (l->vm->vm_fd < 0) {
		check_add(c, name, CHECK_UNKNOWN, "godwit.ko is loaded; not checked whether it can watch this VM: see above");
		close(dev);
	} else if (source_kmod(l->vm, dev, &source, &e)) {
		check_refuse(c, name, &e);
	} else {
		source->ops->close(source, true);
		check_add(c, name, CHECK_OK, "godwit.ko is loaded and can watch this VM");
	}
}

static void check_memlock(int err, uint64_t limit, struct check *c)
{
	static const char name[] = "memlock limit";
	char shown[32] = "unlimited";

	if (limit != UINT64_MAX)
		snprintf(shown, sizeof(shown), "%llu KiB", (unsigned long long)limit >> 10);
	if (err == -ENOMEM)
		check_add(c, name, CHECK_WARNING, "%s is too little for an io_uring ring: ulimit -l unlimited", shown);
	else
		check_add(c, name, CHECK_OK, "%s", shown);
}

void check_io_uring(int err, uint64_t limit, struct check *c)
{
	static const char name[] = "io_uring";

	if (err)
		check_add(c, name, CHECK_WARNING,
			  "not available (%s), and poll() has no zero-copy sends: set sysctl kernel.io_uring_disabled=0, or use another seccomp profile",
			  strerror(-err));
	else
		check_add(c, name, CHECK_OK, "available");
	check_memlock(err, limit, c);
}

static void check_zero_filter(struct check *c)
{
	static const char name[] = "zero filter";
	const struct zero_filter *f = zero_filter_best();

	if (f == zero_filters)
		check_add(c, name, CHECK_OK, "%s", f->name);
	else
		check_add(c, name, CHECK_WARNING, "%s, as this CPU has no %s: the zero filter takes longer (in a VM: use -cpu host)",
			  f->name, zero_filters[0].name);
}

void check_host(const struct preflight *l, struct check *c)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };
	struct utsname kernel;

	uname(&kernel);
	getrlimit(RLIMIT_MEMLOCK, &limit);
	check_kernel(kernel.release, c);
	check_module(l, c);
	check_io_uring(engine_uring.supported(),
		       limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur, c);
	check_zero_filter(c);
}
