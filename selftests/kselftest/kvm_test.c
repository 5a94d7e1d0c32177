// SPDX-License-Identifier: GPL-2.0-only
/* KVM's own tests, with the module loaded and a session on another VM, which must not miss a write meanwhile. */
#include <libgen.h>

#include "kst.h"
#include "rig.h"

#define BYTES	(4UL << 20)

FIXTURE(kvm) {
	struct rig rig;
};

FIXTURE_VARIANT(kvm) {
	const char *program;
	const char *args[7];
};

/* Few iterations, as each mode fills its guest's memory first. The ring is full four times meanwhile. */
#define DIRTY_LOG	"small/dirty_log_test"
FIXTURE_VARIANT_ADD(kvm, dirty_log) { DIRTY_LOG, { "-i", "3", "-M", "dirty-log" } };
FIXTURE_VARIANT_ADD(kvm, clear_log) { DIRTY_LOG, { "-i", "3", "-M", "clear-log" } };
FIXTURE_VARIANT_ADD(kvm, dirty_ring) { DIRTY_LOG, { "-i", "3", "-M", "dirty-ring", "-c", "8192" } };
FIXTURE_VARIANT_ADD(kvm, set_memory_region) { "set_memory_region_test", { NULL } };

FIXTURE_SETUP(kvm)
{
	ASSERT_EQ(0, rig_ram(&self->rig, RAM_TMPFS, BYTES));
	rig_begin(&self->rig, 3, BYTES);
}

FIXTURE_TEARDOWN(kvm)
{
	rig_end(&self->rig);
}

/* They lie beside this collection. */
static pid_t start(const char *program, const char * const *args)
{
	char self[4096] = "", path[8192];
	const char *argv[8] = { path };		/* by which it finds itself: it is its guest's code too */
	unsigned int i;
	pid_t pid;

	require(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0, "/proc/self/exe");
	snprintf(path, sizeof(path), "%s/../kvm/%s", dirname(self), program);
	for (i = 0; args[i]; i++)
		argv[i + 1] = args[i];
	pid = fork_child();
	if (pid)
		return pid;
	dup2(STDERR_FILENO, STDOUT_FILENO);
	execv(path, (char **)argv);
	require(0, path);
	return 0;
}

/* In batches: a vCPU that never rests takes a CPU from KVM's tests. */
static void harvest_until_it_ends(struct rig *rig, pid_t pid, int *status)
{
	uint32_t seed = random_seed();

	while (!waitpid(pid, status, WNOHANG)) {
		vcpu_batch(&rig->vm, 0, seed, seed, 100);
		guest_pick(&seed, 1);
		sleep_ms(300);
		rig_round(rig, true);
	}
}

TEST_F_TIMEOUT(kvm, passes, 1200)	/* the settings of the run say less, unless all is slow */
{
	int status = -1;

	harvest_until_it_ends(&self->rig, start(variant->program, variant->args), &status);
	PROOF(EXPECT_TRUE(WIFEXITED(status)));
	PROOF(EXPECT_EQ(0, WEXITSTATUS(status)));	/* 4 would be a skip */
	rig_round(&self->rig, false);
	PROOF(EXPECT_EQ(0, shadow_differs(&self->rig.shadow)));
}

KST_MAIN
