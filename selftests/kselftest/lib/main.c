// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "blockdev.h"
#include "host.h"

#define SKIP_STATUS	4	/* kselftest's */

#include "complaints.h"

#define TRACE	40	/* lines between a WARNING and its call trace */

static int open_klog(void)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0)
		lseek(fd, 0, SEEK_END);
	return fd;
}

static bool has(const char *record, const char * const *texts, unsigned int n)
{
	while (n--)
		if (strstr(record, texts[n]))
			return true;
	return false;
}

/* spared: so many lines may come before the call trace of a WARNING that is none of ours. */
static bool is_bad(const char *record, unsigned int *spared)
{
	unsigned int left = *spared;

	if (strstr(record, "WARNING:") && has(record, known, ARRAY_LEN(known))) {
		*spared = TRACE;
		return false;
	}
	*spared -= left > 0;
	if (left && strstr(record, "Call Trace")) {
		*spared = 0;
		return false;
	}
	return has(record, bad, ARRAY_LEN(bad));
}

/* Prints the log from its first bad line on. */
static bool klog_clean(int fd)
{
	char record[8192], *text;
	unsigned int spared = 0;
	bool clean = true;
	ssize_t n;

	for (;;) {
		n = read(fd, record, sizeof(record) - 1);
		if (n < 0 && errno == EPIPE) {
			printf("# kernel log: it ran over, lines were lost\n");
			clean = false;
			continue;
		}
		if (n <= 0)
			return clean;
		record[n] = '\0';
		clean = clean && !is_bad(record, &spared);
		text = strchrnul(record, ';');
		if (!clean)
			printf("# kernel log: %.*s\n", (int)strcspn(text, "\n"), text);
	}
}

static int skip(const char *why)
{
	printf("TAP version 13\n1..0 # SKIP %s\n", why);
	return SKIP_STATUS;
}

int host_main(int argc, char **argv, int (*tests)(int argc, char **argv))
{
	bool ours = !module_loaded();
	unsigned int found;
	int status, klog, r;
	pid_t pid;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (geteuid())
		return skip("not root");
	if (access("/dev/kvm", R_OK | W_OK))
		return skip("no /dev/kvm");
	klog = open_klog();
	if (klog < 0)
		return skip("no /dev/kmsg");
	r = ours ? module_load() : 0;
	if (r)
		return skip("godwit.ko does not load");
	if (access(ROWS_OFF, F_OK))
		return skip("this godwit.ko was built without GODWIT_TESTS=y");

	found = blockdevs_there();
	pid = fork_child();
	if (!pid)
		_exit(tests(argc, argv));
	status = wait_process(pid);
	if (!blockdevs_drop_but(found)) {
		printf("# a block device of the tests stays\n");
		status = 1;
	}
	r = ours && module_loaded() ? module_unload_within(10000) : 0;
	if (r) {
		printf("# the module does not unload: %s\n", strerror(-r));
		status = 1;
	}
	return klog_clean(klog) ? status : 1;
}
