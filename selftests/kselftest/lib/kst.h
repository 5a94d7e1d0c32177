/* SPDX-License-Identifier: GPL-2.0-only */
/* What every test program includes, once. */
#ifndef KST_H
#define KST_H

#include <linux/godwit.h>
#include <kselftest_harness.h>

#include "host.h"
#include "ram.h"
#include "session.h"
#include "vm.h"

#define KST_MAIN							\
int main(int argc, char **argv)						\
{									\
	exit(host_main(argc, argv, test_harness_run));			\
}

#endif /* KST_H */
