// SPDX-License-Identifier: GPL-2.0-only
/* Loading and unloading: never under a session, at once after it, and while others open and close sessions. */
#include <fcntl.h>
#include <sys/ioctl.h>

#include "kst.h"

#define PAGES		512UL
#define WORKERS		3
#define LOAD_MS		2000		/* and longer, until: */
#define UNLOADS		4
#define PATIENCE	50		/* refusals in a row */
#define SESSIONS	3		/* of each worker */
#define EXIT_MS		20000	/* has a killed process its files closed, on the slowest host */
#define DELAY		SYSFS "retire_delay_ms"
#define DELAY_MS	"60000"		/* longer than a test may take */

FIXTURE(module) {
	struct vm vm;
	struct ram ram;
};

FIXTURE_SETUP(module)
{
	vm_create(&self->vm, 1, 3);
	ASSERT_EQ(0, ram_create(&self->ram, RAM_TMPFS, PAGES * PAGE));
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, PAGES * PAGE, self->ram.map));
	vm_table_add(&self->vm, RAM_GPA, PAGES);
}

FIXTURE_TEARDOWN(module)
{
	ram_destroy(&self->ram);
	vm_destroy(&self->vm);
}

TEST_F(module, stays_under_a_session)
{
	struct session s;

	session_open(&s);
	PROOF(EXPECT_EQ(-EWOULDBLOCK, module_unload()));
	ASSERT_EQ(0, session_attach(&s, self->vm.fd));
	PROOF(EXPECT_EQ(-EWOULDBLOCK, module_unload()));
	ASSERT_EQ(0, session_add_ram(&s, self->ram.fd));
	ASSERT_EQ(0, session_start(&s));
	PROOF(EXPECT_EQ(-EWOULDBLOCK, module_unload()));
	ASSERT_EQ(0, session_sync(&s, NULL));
	PROOF(EXPECT_EQ(-EWOULDBLOCK, module_unload()));
	session_close(&s);
}

TEST_F(module, goes_at_once_after_a_session)
{
	struct session s;

	require(!file_write(DELAY, DELAY_MS), DELAY);
	session_begin(&s, self->vm.fd, &self->ram.fd, 1);
	session_close(&s);
	PROOF(EXPECT_EQ(0, module_unload()));
	PROOF(EXPECT_FALSE(vm_logged(&self->vm, 1)));
	EXPECT_EQ(0, module_load());
}

static void hold_session(void *arg)
{
	FIXTURE_DATA(module) *self = arg;
	struct session s;

	session_begin(&s, self->vm.fd, &self->ram.fd, 1);
}

TEST_F(module, goes_at_once_after_a_killed_session)
{
	pid_t pid = fork_ready(hold_session, self);

	require(!file_write(DELAY, DELAY_MS), DELAY);
	PROOF(EXPECT_TRUE(vm_logged(&self->vm, 1)));
	PROOF(EXPECT_EQ(-EWOULDBLOCK, module_unload()));
	kill_process(pid);
	PROOF(EXPECT_EQ(0, module_unload_within(EXIT_MS)));
	PROOF(EXPECT_FALSE(vm_logged(&self->vm, 1)));
	EXPECT_EQ(0, module_load());
}

TEST_F(module, loads_once)
{
	if (!getenv("GODWIT_MODULE"))
		SKIP(return, "GODWIT_MODULE does not name the file");
	EXPECT_EQ(-EEXIST, module_load());
}

TEST_F(module, again_and_again)
{
	unsigned int i;

	for (i = 0; i < 10; i++) {
		PROOF(ASSERT_EQ(0, module_unload()));
		PROOF(EXPECT_NE(0, access("/dev/godwit", F_OK)));
		ASSERT_EQ(0, module_load());
		EXPECT_EQ(0, access("/dev/godwit", F_OK));
	}
}

/**
 * struct load - shared with the workers
 * @wait: none of them begins another session
 * @sessions: how many each has had
 */
struct load {
	volatile bool wait;
	volatile unsigned int sessions[WORKERS];
};

/* One session after another, each with VM and RAM of its own, as far as there is a module. */
static void work(unsigned int number, struct load *load)
{
	volatile unsigned int *sessions = &load->sessions[number];
	struct session s;
	struct ram ram;
	struct vm vm;

	vm_create(&vm, 1, 3);
	require(!ram_create(&ram, RAM_TMPFS, PAGES * PAGE), "a RAM file");
	require(!vm_slot(&vm, 1, 0, RAM_GPA, PAGES * PAGE, ram.map), "a slot");
	vm_table_add(&vm, RAM_GPA, PAGES);
	for (;;) {
		do
			sleep_ms(number * 3 + *sessions % 7);
		while (load->wait);
		memset(&s, 0, sizeof(s));
		s.fd = open("/dev/godwit", O_RDWR | O_CLOEXEC);
		if (s.fd < 0)
			continue;
		require(!session_attach(&s, vm.fd), "GODWIT_ATTACH");
		require(!session_add_ram(&s, ram.fd), "GODWIT_ADD_RAM");
		require(!session_start(&s), "GODWIT_START");
		session_settle(&s);
		vcpu_batch(&vm, 0, *sessions, 1, 20);
		require(!session_sync(&s, NULL), "GODWIT_HARVEST");
		prove(bits_count(&s.ram[0]), "the guest has written, and no page is reported");
		session_close(&s);
		(*sessions)++;
	}
}

static bool all_had(const struct load *load)
{
	unsigned int i;

	for (i = 0; i < WORKERS; i++)
		if (load->sessions[i] < SESSIONS)
			return false;
	return true;
}

TEST_F(module, under_load)
{
	struct load *load = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned int i, unloaded = 0, refused = 0, in_a_row = 0;
	uint64_t begin = now_ms();
	pid_t pids[WORKERS];

	ASSERT_NE(MAP_FAILED, load);
	for (i = 0; i < WORKERS; i++) {
		pids[i] = fork_child();
		if (!pids[i])
			work(i, load);
	}
	while (now_ms() - begin < (unloaded >= UNLOADS && all_had(load) ? 1 : 10) * LOAD_MS) {
		int r = module_unload();

		if (r) {
			PROOF(ASSERT_EQ(-EWOULDBLOCK, r));
			refused++;
			/* On a busy host there may always be one: they end theirs, and it goes between two. */
			load->wait = ++in_a_row > PATIENCE;
			sleep_ms(1);
			continue;
		}
		unloaded++;
		in_a_row = 0;
		load->wait = false;
		ASSERT_EQ(0, module_load());
		sleep_ms(50);
	}
	for (i = 0; i < WORKERS; i++) {
		bool ended = waitpid(pids[i], NULL, WNOHANG);

		EXPECT_FALSE(ended) {
			TH_LOG("a worker ended");
		}
		if (!ended)
			kill_process(pids[i]);
		EXPECT_LE(SESSIONS, load->sessions[i]);
	}
	TH_LOG("unloaded %u times, refused %u times", unloaded, refused);
	EXPECT_LE(UNLOADS, unloaded);
	EXPECT_LE(1, refused);
}

KST_MAIN
