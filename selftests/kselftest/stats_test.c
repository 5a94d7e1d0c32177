// SPDX-License-Identifier: GPL-2.0-only
/* The directory that each session has in sysfs. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "kst.h"

#define SESSIONS	SYSFS "sessions/"
#define PAGES		64

static const char * const files[] = {
	"state", "owner_pid", "vm_pid", "changes", "harvests", "clears", "pages_vcpu", "pages_mapping", "pages_block",
	"pages_unmap", "pages_change", "slots_ns", "vcpu_ns", "mapping_ns", "collect_ns", "clear_ns", "retire_ns",
};

FIXTURE(stats) {
	struct vm vm;
	struct ram ram;
	struct session s;
	char dir[64];
};

/* The newest session's directory; the number of sessions. */
static unsigned int newest(char *dir, size_t len)
{
	long id;
	unsigned int n = sessions_count(&id);

	snprintf(dir, len, SESSIONS "%ld", id);
	return n;
}

FIXTURE_SETUP(stats)
{
	vm_create(&self->vm, 1, 3);
	ASSERT_EQ(0, ram_create(&self->ram, RAM_TMPFS, PAGES * PAGE));
	ASSERT_EQ(0, vm_slot(&self->vm, 1, 0, RAM_GPA, PAGES * PAGE, self->ram.map));
	vm_table_add(&self->vm, RAM_GPA, PAGES);
	sessions_wait_none();
	session_open(&self->s);
	newest(self->dir, sizeof(self->dir));
}

FIXTURE_TEARDOWN(stats)
{
	session_close(&self->s);
	vm_destroy(&self->vm);
	ram_destroy(&self->ram);
}

static const char *path_of(const char *dir, const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static long number(const char *dir, const char *name)
{
	return file_number(path_of(dir, name));
}

static bool says(const char *dir, const char *name, const char *text)
{
	char found[32] = "";
	FILE *f = fopen(path_of(dir, name), "r");

	require(f && fgets(found, sizeof(found), f), name);
	fclose(f);
	return !strcmp(found, text);
}

TEST_F(stats, modes)
{
	struct dirent *e;
	struct stat st;
	unsigned int i, n = 0;
	DIR *dir;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
		ASSERT_EQ(0, stat(path_of(self->dir, files[i]), &st));
		EXPECT_EQ(0400, st.st_mode & 07777);
		EXPECT_GT(0, file_write(path_of(self->dir, files[i]), "0\n"));
	}
	/* A file that is not in the table above is a promise without a test. */
	dir = opendir(self->dir);
	ASSERT_NE(NULL, dir);
	while ((e = readdir(dir)))
		n += e->d_type == DT_REG;
	closedir(dir);
	EXPECT_EQ(ARRAY_SIZE(files), n);
}

TEST_F(stats, they_count)
{
	struct godwit_harvest h1, h2;

	EXPECT_TRUE(says(self->dir, "state", "new\n"));
	EXPECT_EQ(getpid(), number(self->dir, "owner_pid"));
	EXPECT_EQ(0, number(self->dir, "vm_pid"));
	ASSERT_EQ(0, session_attach(&self->s, self->vm.fd));
	EXPECT_TRUE(says(self->dir, "state", "attached\n"));
	EXPECT_EQ(getpid(), number(self->dir, "vm_pid"));
	ASSERT_EQ(0, session_add_ram(&self->s, self->ram.fd));
	ASSERT_EQ(0, session_start(&self->s));
	EXPECT_TRUE(says(self->dir, "state", "started\n"));
	EXPECT_EQ(0, number(self->dir, "harvests"));

	ASSERT_EQ(0, session_harvest(&self->s, &h1));
	vcpu_batch(&self->vm, 0, 7, 1, 20);
	self->ram.map[5 * PAGE] = 1;
	ASSERT_EQ(0, vm_slot(&self->vm, 2, 0, RAM_GPA + PAGES * PAGE, PAGE, self->ram.map));
	ASSERT_EQ(0, session_harvest(&self->s, &h2));
	ASSERT_EQ(0, session_clear(&self->s, 0, 3, 9));

	EXPECT_EQ(2, number(self->dir, "harvests"));
	EXPECT_EQ(1, number(self->dir, "clears"));
	EXPECT_EQ(h2.changes, number(self->dir, "changes"));
	PROOF(EXPECT_LT(0, h2.changes));
	PROOF(EXPECT_LT(0, h2.pages[GODWIT_ROW_VCPU]));
	PROOF(EXPECT_LT(0, h2.pages[GODWIT_ROW_MAPPING]));
	EXPECT_EQ(h1.pages[GODWIT_ROW_VCPU] + h2.pages[GODWIT_ROW_VCPU], number(self->dir, "pages_vcpu"));
	EXPECT_EQ(h1.pages[GODWIT_ROW_MAPPING] + h2.pages[GODWIT_ROW_MAPPING], number(self->dir, "pages_mapping"));
	EXPECT_EQ(h1.pages[GODWIT_ROW_CHANGE] + h2.pages[GODWIT_ROW_CHANGE], number(self->dir, "pages_change"));
	EXPECT_LT(0, number(self->dir, "slots_ns"));
	EXPECT_LT(0, number(self->dir, "vcpu_ns"));
	EXPECT_LT(0, number(self->dir, "mapping_ns"));
	EXPECT_LT(0, number(self->dir, "collect_ns"));
	EXPECT_LT(0, number(self->dir, "clear_ns"));
	EXPECT_EQ(0, number(self->dir, "retire_ns"));
	/* The phases are parts of the calls. */
	EXPECT_GE(h1.ns + h2.ns, number(self->dir, "slots_ns") + number(self->dir, "vcpu_ns") +
		  number(self->dir, "mapping_ns") + number(self->dir, "collect_ns"));
}

TEST_F(stats, the_directory_goes_with_the_session)
{
	struct session other;
	char dir[64];
	uint64_t end;

	session_open(&other);
	EXPECT_EQ(2, newest(dir, sizeof(dir)));
	EXPECT_STRNE(self->dir, dir);
	session_close(&other);
	for (end = now_ms() + 5000; !access(dir, F_OK) && now_ms() < end; )
		sleep_ms(1);
	PROOF(EXPECT_NE(0, access(dir, F_OK)));
	EXPECT_EQ(0, access(self->dir, F_OK));
}

/* A reader that has the file open when the session goes: it is told, and nothing waits for it. */
TEST_F(stats, an_open_file_outlives_its_session)
{
	char text[32];
	int fd = open(path_of(self->dir, "harvests"), O_RDONLY);

	ASSERT_LE(0, fd);
	session_close(&self->s);
	for (uint64_t end = now_ms() + 5000; !access(self->dir, F_OK) && now_ms() < end; )
		sleep_ms(1);
	PROOF(EXPECT_NE(0, access(self->dir, F_OK)));
	EXPECT_EQ(-1, pread(fd, text, sizeof(text), 0));
	EXPECT_EQ(ENODEV, errno);
	close(fd);
	session_open(&self->s);
}

KST_MAIN
