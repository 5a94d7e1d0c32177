// SPDX-License-Identifier: GPL-2.0-only
/* The files of the device in sysfs: mode, what is accepted and what is refused. What they do: retire_test. */
#include <dirent.h>
#include <sys/stat.h>

#include "kst.h"

/**
 * struct tunable - a number in a file
 */
static const struct tunable {
	const char *name;
	mode_t mode;
	long max;
} tunables[] = {
	{ "retire_delay_ms", 0644, 60000 },
	{ "retire_pause_ms", 0644, 60000 },
	{ "retire_busy_percent", 0644, 100 },
	{ "retire_busy_wait_ms", 0644, 60000 },
};

/* What every device has. */
static const char * const common[] = { "dev", "uevent" };

/* A number that is only read: see keep_test. */
#define KEPT "kept_userfaultfds"

static const struct {
	const char *text;
	int answer;
} wrong[] = {
	{ "\n", -EINVAL }, { " ", -EINVAL }, { "-1", -EINVAL }, { "abc", -EINVAL }, { "1.5", -EINVAL },
	{ "1 2", -EINVAL }, { "0x10", -EINVAL }, { "5ms", -EINVAL }, { "60001", -ERANGE }, { "4294967296", -ERANGE },
	{ "99999999999999999999", -ERANGE },
};

static const char *path_of(const struct tunable *t)
{
	static char path[256];

	snprintf(path, sizeof(path), SYSFS "%s", t->name);
	return path;
}

static void put(const char *path, long value)
{
	char text[32];

	snprintf(text, sizeof(text), "%ld\n", value);
	require(!file_write(path, text), path);
}

TEST(mode)
{
	struct stat st;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(tunables); i++) {
		ASSERT_EQ(0, stat(path_of(&tunables[i]), &st));
		EXPECT_EQ(tunables[i].mode, st.st_mode & 07777);
		EXPECT_EQ(0, st.st_uid);
	}
	ASSERT_EQ(0, stat(SYSFS KEPT, &st));
	EXPECT_EQ(0444, st.st_mode & 07777);
	ASSERT_EQ(0, stat(ROWS_OFF, &st));
	EXPECT_EQ(0600, st.st_mode & 07777);
	ASSERT_EQ(0, stat("/dev/godwit", &st));
	EXPECT_EQ(0600, st.st_mode & 07777);
}

TEST(accepted)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(tunables); i++) {
		const char *path = path_of(&tunables[i]);
		long found = file_number(path), values[] = { 0, 1, tunables[i].max };
		unsigned int k;

		for (k = 0; k < ARRAY_SIZE(values); k++) {
			put(path, values[k]);
			EXPECT_EQ(values[k], file_number(path));
		}
		put(path, found);
	}
}

TEST(refused)
{
	unsigned int i, k;

	for (i = 0; i < ARRAY_SIZE(tunables); i++) {
		const char *path = path_of(&tunables[i]);
		long found = file_number(path);

		for (k = 0; k < ARRAY_SIZE(wrong); k++) {
			EXPECT_EQ(wrong[k].answer, file_write(path, wrong[k].text)) {
				TH_LOG("%s: '%s'", path, wrong[k].text);
			}
			EXPECT_EQ(found, file_number(path));
		}
	}
}

static bool is_known(const char *name)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(tunables); i++)
		if (!strcmp(name, tunables[i].name))
			return true;
	for (i = 0; i < ARRAY_SIZE(common); i++)
		if (!strcmp(name, common[i]))
			return true;
	return !strcmp(name, KEPT);
}

/* A file that is not in the tables above is a promise without a test. */
TEST(every_file_is_known)
{
	DIR *dir = opendir(SYSFS);
	struct dirent *e;

	ASSERT_NE(NULL, dir);
	while ((e = readdir(dir))) {
		if (e->d_type != DT_REG)
			continue;
		EXPECT_TRUE(is_known(e->d_name)) {
			TH_LOG("%s", e->d_name);
		}
	}
	closedir(dir);
}

TEST(defaults)
{
	PROOF(EXPECT_EQ(0, module_unload()));
	EXPECT_EQ(0, module_load());
	EXPECT_EQ(100, file_number(SYSFS "retire_delay_ms"));
	EXPECT_EQ(10, file_number(SYSFS "retire_pause_ms"));
	EXPECT_EQ(90, file_number(SYSFS "retire_busy_percent"));
	EXPECT_EQ(1000, file_number(SYSFS "retire_busy_wait_ms"));
	EXPECT_EQ(0, file_number(ROWS_OFF));
}

KST_MAIN
