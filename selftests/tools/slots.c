// SPDX-License-Identifier: GPL-2.0-only
/*
 * slots PID [hold]: what godwit.ko says of a VM's memslots, as "memslots=N logged=M". With "hold" the session
 * stays attached until standard input ends.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/godwit.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vm_fd.h"

int main(int argc, char **argv)
{
	struct godwit_attach a = { 0 };
	int pid = argc > 1 ? atoi(argv[1]) : 0;
	int dev = open("/dev/godwit", O_RDWR | O_CLOEXEC);
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);

	a.vm_fd = (int)syscall(SYS_pidfd_getfd, pidfd, find_vm_fd(pid), 0);
	if (dev < 0 || ioctl(dev, GODWIT_ATTACH, &a) < 0) {
		fprintf(stderr, "slots: %s\n", strerror(errno));
		return 1;
	}
	printf("memslots=%u logged=%u\n", a.memslots, a.logged);
	fflush(stdout);
	if (argc > 2)
		while (getchar() != EOF)
			;
	return 0;
}
