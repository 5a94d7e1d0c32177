// SPDX-License-Identifier: GPL-2.0-only
/*
 * inject DISK: every allocation of every call fails once.
 *
 * For each call, and each n from 1 until the call comes through with none to fail any more, in a
 * session of its own: the n-th allocation fails. Then, undisturbed: the call is repeated if it
 * failed, and works; the session goes on to the end and misses no write; after it the VM is as it
 * was. That the kernel did not complain is the lab's to see.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <kselftest.h>

#include "calls.h"
#include "host.h"
#include "netlink.h"

#define NTH_MAX	3000

/* Of one call. */
struct tally {
	unsigned int failed;	/* allocations whose failure failed the call */
	unsigned int survived;	/* and which did not */
};

static const char *where_name(const struct call *c)
{
	return c->where == IN_WORKER ? "worker" : "caller";
}

/*
 * What was written before and after the call is found, and the VM gets all back. NULL, or what is
 * wrong.
 */
static const char *finish(struct trial *t, const struct call *c)
{
	const char *wrong = NULL;

	if (c->after != NOTHING) {
		trial_reach(t, STARTED);
		if (c->reports)
			wrong = trial_missed(t);
		if (!wrong) {
			trial_settle(t);
			trial_write(t);
			require(!session_sync(&t->s, NULL), "GODWIT_HARVEST");
			wrong = trial_missed(t);
		}
	}
	return wrong ?: trial_restored(t);
}

/* NULL, or what is wrong. done: there was no n-th allocation. */
static const char *one(struct trial *t, const struct call *c, unsigned int nth, struct tally *sum,
		       bool *done)
{
	struct fault f;
	struct outcome o;
	int err;

	trial_reach(t, c->before);
	if (c->prepare)
		c->prepare(t);
	fault_prepare(&f, c->where);
	fault_arm(&f, nth);
	err = c->run(t);
	o = fault_disarm(&f);

	if (!o.fired && err)
		return "fails, though no allocation did";
	/* A worker that was born meanwhile has taken the job: once more. */
	*done = !o.fired && (o.counted || !c->allocates);
	sum->failed += o.fired && err;
	sum->survived += o.fired && !err;
	if (err && (c->again ? c->again(t) : c->run(t)))
		return "does not work when it is repeated";
	if (c->after > t->stage)
		t->stage = c->after;
	return finish(t, c);
}

static void test(struct trial *t, const struct call *c)
{
	const char *wrong = NULL;
	struct tally sum = { 0 };
	unsigned int nth = 1, idle = 0;
	bool done = false;

	while (!wrong && !done && nth < NTH_MAX && idle < 20) {
		unsigned int before = sum.failed + sum.survived;

		wrong = one(t, c, nth, &sum, &done);
		if (sum.failed + sum.survived > before)
			nth++;
		else
			idle++;
	}
	if (!wrong && !done)
		wrong = "never comes to an end";
	if (!wrong && c->allocates && nth == 1)
		wrong = "nothing was injected";
	if (wrong) {
		ksft_print_msg("allocation %u: %s (errno %d)\n", nth, wrong, errno);
		ksft_test_result_fail("%s, %s\n", c->name, where_name(c));
		trial_reset(t);
		return;
	}
	ksft_test_result_pass("%s, %s: %u allocations, the call failed with %u and survived %u\n",
			      c->name, where_name(c), nth - 1, sum.failed, sum.survived);
}

int main(int argc, char **argv)
{
	struct trial t;
	unsigned int i;

	if (argc != 2) {
		fprintf(stderr, "usage: inject DISK\n");
		return KSFT_FAIL;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	require(module_loaded(), "the module");
	require(!file_write(SYSFS "retire_delay_ms", "0"), "retire_delay_ms");
	require(!file_write(SYSFS "retire_pause_ms", "0"), "retire_pause_ms");
	require(!file_write(SYSFS "retire_busy_percent", "100"), "retire_busy_percent");
	fault_setup();
	netlink_setup();
	ksft_print_header();
	ksft_set_plan(nr_calls);
	trial_init(&t, argv[1]);
	for (i = 0; i < nr_calls; i++)
		test(&t, &calls[i]);
	return ksft_get_fail_cnt() ? KSFT_FAIL : KSFT_PASS;
}
