/* SPDX-License-Identifier: GPL-2.0-only */
/* What every test program includes, once. */
#ifndef KST_H
#define KST_H

#include <linux/godwit.h>
#include <kselftest_harness.h>

#include "host.h"
#include "main.h"
#include "ram.h"
#include "session.h"
#include "vm.h"

/*
 * PROOF(EXPECT_EQ(0, missed)): a check of the harness' that is a proof: if it fails, the module has missed
 * or invented a write, left flags changed or left something behind. No evidence of the emulator excuses
 * that (see verdict). May have a block behind it, as the check itself.
 */
#define PROOF(...)							\
	__VA_ARGS__							\
	for (bool proof_ = proof_failed(#__VA_ARGS__, __FILE__, __LINE__); proof_; proof_ = false)

/*
 * SHOWN(lost): what a control, a test without the safeguard, is to show. Where that depends on what
 * the emulated CPU keeps it is no failure by itself, but verdict says and counts it.
 */
#define SHOWN(what)							\
	do {								\
		if (!(what))						\
			TH_LOG("not shown: " #what);			\
	} while (0)

#define KST_MAIN							\
int main(int argc, char **argv)						\
{									\
	exit(host_main(argc, argv, test_harness_run));			\
}

#endif /* KST_H */
