// SPDX-License-Identifier: GPL-2.0-only
/* The generic netlink family: what it tells, and each attribute wrong once. */
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "genl.h"
#include "kst.h"

#define MANY	200	/* sessions: more than one message of a dump holds */

FIXTURE(netlink) {
	struct vm vm;
	struct ram ram;
	struct session s;
	int family;
	uint32_t id;
};

static void last_id(const struct nlmsghdr *h, void *arg)
{
	*(uint32_t *)arg = genl_u32(h, GODWIT_A_ID);
}

FIXTURE_SETUP(netlink)
{
	struct genl_msg m;

	self->family = genl_family(NULL);
	ASSERT_LT(0, self->family);
	ASSERT_EQ(0, ram_create(&self->ram, RAM_TMPFS, 64 * PAGE));
	vm_create(&self->vm, 1, 3);
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, 64 * PAGE, self->ram.map));
	vm_table_add(&self->vm, RAM_GPA, 64);
	sessions_wait_none();
	session_open(&self->s);
	/* Ours is the newest, and a dump goes from old to new. */
	genl_begin(&m, self->family, GODWIT_CMD_GET_SESSION, NLM_F_DUMP);
	ASSERT_EQ(0, genl_call(&m, last_id, &self->id));
	ASSERT_LT(0, self->id);
}

FIXTURE_TEARDOWN(netlink)
{
	session_close(&self->s);
	vm_destroy(&self->vm);
	ram_destroy(&self->ram);
}

static void keep(const struct nlmsghdr *h, void *arg)
{
	memcpy(arg, h, h->nlmsg_len);
}

static void count(const struct nlmsghdr *h, void *arg)
{
	(void)h;
	*(int *)arg += 1;
}

/* The answer to a request with this attribute. */
static int ask(int family, uint8_t cmd, uint16_t flags, int type, const void *data, uint16_t len)
{
	struct genl_msg m;
	int answers = 0, r;

	genl_begin(&m, family, cmd, flags);
	if (type >= 0)
		genl_add(&m, type, data, len);
	r = genl_call(&m, count, &answers);
	return r ? r : answers;
}

static int get(int family, uint32_t id, struct genl_msg *answer)
{
	struct genl_msg m;

	genl_begin(&m, family, GODWIT_CMD_GET_SESSION, 0);
	genl_add_u32(&m, GODWIT_A_ID, id);
	return genl_call(&m, keep, answer);
}

static uint64_t nested(const struct genl_msg *m, uint16_t nest, unsigned int number)
{
	return genl_u64(genl_find_in(genl_find(&m->head, nest), number + 1));
}

TEST_F(netlink, life_of_a_session)
{
	struct godwit_harvest h1, h2;
	struct genl_msg m;
	unsigned int i;

	ASSERT_EQ(0, get(self->family, self->id, &m));
	EXPECT_EQ(GODWIT_STATE_NEW, genl_u32(&m.head, GODWIT_A_STATE));
	EXPECT_EQ(getpid(), genl_u32(&m.head, GODWIT_A_OWNER_PID));
	EXPECT_STREQ("netlink_test", (const char *)(genl_find(&m.head, GODWIT_A_OWNER_COMM) + 1));
	EXPECT_EQ(NULL, genl_find(&m.head, GODWIT_A_VM_PID));
	EXPECT_EQ(NULL, genl_find(&m.head, GODWIT_A_PAGES));

	ASSERT_EQ(0, session_attach(&self->s, self->vm.fd));
	ASSERT_EQ(0, get(self->family, self->id, &m));
	EXPECT_EQ(GODWIT_STATE_ATTACHED, genl_u32(&m.head, GODWIT_A_STATE));
	EXPECT_EQ(getpid(), genl_u32(&m.head, GODWIT_A_VM_PID));
	EXPECT_EQ(0, genl_u64(genl_find(&m.head, GODWIT_A_HARVESTS)));

	ASSERT_EQ(0, session_add_ram(&self->s, self->ram.fd));
	ASSERT_EQ(0, session_start(&self->s));
	ASSERT_EQ(0, session_harvest(&self->s, &h1));
	vcpu_batch(&self->vm, 0, 1, 1, 10);
	ASSERT_EQ(0, session_harvest(&self->s, &h2));
	ASSERT_EQ(0, session_clear(&self->s, 0, 0, 64));
	ASSERT_EQ(0, get(self->family, self->id, &m));
	EXPECT_EQ(GODWIT_STATE_STARTED, genl_u32(&m.head, GODWIT_A_STATE));
	EXPECT_EQ(1, genl_u32(&m.head, GODWIT_A_MEMSLOTS));
	EXPECT_EQ(2, genl_u64(genl_find(&m.head, GODWIT_A_HARVESTS)));
	EXPECT_EQ(1, genl_u64(genl_find(&m.head, GODWIT_A_CLEARS)));
	PROOF(EXPECT_LT(0, h2.pages[GODWIT_ROW_VCPU]));
	for (i = 0; i < GODWIT_ROWS; i++) {
		EXPECT_EQ(h1.pages[i] + h2.pages[i], nested(&m, GODWIT_A_PAGES, i)) {
			TH_LOG("row %u", i);
		}
	}
	for (i = 0; i < GODWIT_PHASE_RETIRE; i++) {
		EXPECT_LT(0, nested(&m, GODWIT_A_NS, i)) {
			TH_LOG("phase %u", i);
		}
	}

	session_close(&self->s);
	for (uint64_t end = now_ms() + 10000; get(self->family, self->id, &m) != -ENOENT && now_ms() < end; sleep_ms(1))
		EXPECT_EQ(GODWIT_STATE_RETIRING, genl_u32(&m.head, GODWIT_A_STATE));
	PROOF(EXPECT_EQ(-ENOENT, get(self->family, self->id, &m)));
	session_open(&self->s);
}

TEST_F(netlink, each_attribute_wrong)
{
	uint8_t bytes[64] = { 0 };
	uint32_t id = self->id, zero = 0, none = UINT32_MAX;
	uint16_t len;

	ASSERT_EQ(1, ask(self->family, GODWIT_CMD_GET_SESSION, 0, GODWIT_A_ID, &id, sizeof(id)));
	EXPECT_EQ(-EINVAL, ask(self->family, GODWIT_CMD_GET_SESSION, 0, -1, NULL, 0));
	EXPECT_EQ(-ERANGE, ask(self->family, GODWIT_CMD_GET_SESSION, 0, GODWIT_A_ID, &zero, sizeof(zero)));
	EXPECT_EQ(-ENOENT, ask(self->family, GODWIT_CMD_GET_SESSION, 0, GODWIT_A_ID, &none, sizeof(none)));
	memcpy(bytes, &id, sizeof(id));
	for (len = 0; len <= 32; len++) {
		if (len == sizeof(id))
			continue;
		EXPECT_EQ(true, ask(self->family, GODWIT_CMD_GET_SESSION, 0, GODWIT_A_ID, bytes, len) < 0) {
			TH_LOG("length %u", len);
		}
	}
	EXPECT_EQ(-EINVAL, ask(self->family, GODWIT_CMD_GET_SESSION, 0, GODWIT_A_ID | NLA_F_NESTED, &id, sizeof(id)));
	/* Attributes of answers only, and unknown ones. */
	for (int type = 0; type < GODWIT_ATTRS + 8; type++) {
		if (type == GODWIT_A_ID)
			continue;
		EXPECT_EQ(-EINVAL, ask(self->family, GODWIT_CMD_GET_SESSION, 0, type, &id, sizeof(id))) {
			TH_LOG("attribute %d", type);
		}
		EXPECT_EQ(-EINVAL, ask(self->family, GODWIT_CMD_GET_SESSION, NLM_F_DUMP, type, &id, sizeof(id))) {
			TH_LOG("attribute %d, dump", type);
		}
	}
	EXPECT_EQ(-EINVAL, ask(self->family, GODWIT_CMD_GET_SESSION, NLM_F_DUMP, GODWIT_A_ID, &id, sizeof(id)));
}

TEST_F(netlink, each_command_wrong)
{
	uint32_t id = self->id;
	int cmd;

	for (cmd = 0; cmd < 256; cmd++) {
		if (cmd == GODWIT_CMD_GET_SESSION)
			continue;
		EXPECT_EQ(-EOPNOTSUPP, ask(self->family, cmd, 0, GODWIT_A_ID, &id, sizeof(id)));
	}
}

TEST_F(netlink, broken_messages)
{
	struct genl_msg m;
	int answers = 0;

	genl_begin(&m, self->family, GODWIT_CMD_GET_SESSION, 0);
	((struct genlmsghdr *)NLMSG_DATA(&m.head))->reserved = 1;
	genl_add_u32(&m, GODWIT_A_ID, self->id);
	EXPECT_EQ(-EINVAL, genl_call(&m, count, &answers));

	/* An attribute that is longer than its message. */
	genl_begin(&m, self->family, GODWIT_CMD_GET_SESSION, 0);
	genl_add_u32(&m, GODWIT_A_ID, self->id);
	((struct nlattr *)(m.bytes + NLMSG_HDRLEN + GENL_HDRLEN))->nla_len = 200;
	EXPECT_GT(0, genl_call(&m, count, &answers));

	/* Bytes after the last attribute. */
	genl_begin(&m, self->family, GODWIT_CMD_GET_SESSION, 0);
	genl_add_u32(&m, GODWIT_A_ID, self->id);
	m.head.nlmsg_len += 3;
	EXPECT_EQ(-EINVAL, genl_call(&m, count, &answers));

	/* The same attribute twice: the last one counts, as everywhere in netlink. */
	genl_begin(&m, self->family, GODWIT_CMD_GET_SESSION, 0);
	genl_add_u32(&m, GODWIT_A_ID, UINT32_MAX);
	genl_add_u32(&m, GODWIT_A_ID, self->id);
	EXPECT_EQ(0, answers);
	EXPECT_EQ(0, genl_call(&m, count, &answers));
	EXPECT_EQ(1, answers);
}

struct seen {
	uint32_t id[MANY + 8];
	unsigned int n;
};

static void see(const struct nlmsghdr *h, void *arg)
{
	struct seen *seen = arg;

	if (seen->n < MANY + 8)
		seen->id[seen->n++] = genl_u32(h, GODWIT_A_ID);
}

TEST_F(netlink, dump_of_many)
{
	struct session *many = calloc(MANY, sizeof(*many));
	struct seen seen = { .n = 0 };
	struct genl_msg m;
	unsigned int i;

	for (i = 0; i < MANY; i++)
		session_open(&many[i]);
	genl_begin(&m, self->family, GODWIT_CMD_GET_SESSION, NLM_F_DUMP);
	ASSERT_EQ(0, genl_call(&m, see, &seen));
	EXPECT_EQ(MANY + 1, seen.n);
	EXPECT_EQ(self->id, seen.id[0]);
	for (i = 1; i < seen.n; i++)
		EXPECT_LT(seen.id[i - 1], seen.id[i]);
	for (i = 0; i < MANY; i++)
		session_close(&many[i]);
	free(many);
}

TEST_F(netlink, events)
{
	int fd = genl_listen(), vm_fd;
	pid_t pid;

	ASSERT_LE(0, fd);
	session_close(&self->s);
	session_begin(&self->s, self->vm.fd, &self->ram.fd, 1);
	self->id++;
	EXPECT_EQ(GODWIT_CMD_ATTACHED, genl_event(fd, self->id, 5000));
	ASSERT_EQ(0, session_harvest(&self->s, NULL));
	ASSERT_EQ(0, vm_slot(&self->vm, 2, 0, RAM_GPA + 64 * PAGE, PAGE, self->ram.map));
	ASSERT_EQ(0, session_harvest(&self->s, NULL));
	PROOF(EXPECT_EQ(GODWIT_CMD_SLOTS_CHANGED, genl_event(fd, self->id, 5000)));
	ASSERT_EQ(0, session_harvest(&self->s, NULL));
	session_close(&self->s);
	PROOF(EXPECT_EQ(GODWIT_CMD_RETIRED, genl_event(fd, self->id, 10000)));

	pid = vm_elsewhere(NULL, NULL, &vm_fd);
	session_open(&self->s);
	self->id++;
	ASSERT_EQ(0, session_attach(&self->s, vm_fd));
	EXPECT_EQ(GODWIT_CMD_ATTACHED, genl_event(fd, self->id, 5000));
	kill_process(pid);
	EXPECT_EQ(GODWIT_CMD_VM_GONE, genl_event(fd, self->id, 10000));
	PROOF(EXPECT_EQ(GODWIT_CMD_RETIRED, genl_event(fd, self->id, 10000)));
	EXPECT_EQ(0, genl_event(fd, self->id, 200));
	close(vm_fd);
	close(fd);
}

/* What is heard in namespaces of its own. */
struct hearing {
	int namespaces;
	uint32_t id;
	bool listens;
	volatile int event;
};

static void listen_apart(void *arg)
{
	struct hearing *h = arg;
	int fd = unshare(h->namespaces) ? -1 : genl_listen();

	h->listens = fd >= 0;
	if (h->listens && !fork_child()) {
		h->event = genl_event(fd, h->id, 60000);
		pause();
	}
}

static struct hearing *hear_in(int namespaces, uint32_t id, pid_t *pid)
{
	struct hearing *h = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	require(h != MAP_FAILED, "shared memory");
	*h = (struct hearing){ .namespaces = namespaces, .id = id };
	*pid = fork_ready(listen_apart, h);
	return h;
}

/* Root of a container, in namespaces of its own, is not told which processes there are. */
TEST_F(netlink, events_stay_in_the_user_namespace)
{
	struct hearing *here, *apart;
	uint64_t end;
	pid_t pid[2];

	here = hear_in(CLONE_NEWNET, self->id, &pid[0]);
	apart = hear_in(CLONE_NEWUSER | CLONE_NEWNET, self->id, &pid[1]);
	ASSERT_EQ(true, here->listens);
	ASSERT_EQ(true, apart->listens);
	ASSERT_EQ(0, session_attach(&self->s, self->vm.fd));
	for (end = now_ms() + 5000; !here->event && now_ms() < end; )
		sleep_ms(5);
	EXPECT_EQ(GODWIT_CMD_ATTACHED, here->event);
	sleep_ms(300);
	PROOF(EXPECT_EQ(0, apart->event));
	kill_process(pid[0]);
	kill_process(pid[1]);
}

TEST_F(netlink, without_cap_sys_admin)
{
	uint32_t id = self->id;

	drop_sys_admin();
	EXPECT_EQ(-EPERM, ask(self->family, GODWIT_CMD_GET_SESSION, 0, GODWIT_A_ID, &id, sizeof(id)));
	EXPECT_EQ(-EPERM, ask(self->family, GODWIT_CMD_GET_SESSION, NLM_F_DUMP, -1, NULL, 0));
	EXPECT_EQ(-EPERM, genl_listen());
}

KST_MAIN
