/* SPDX-License-Identifier: GPL-2.0-only */
/* A directory for this program's records, claims and notes, instead of /run/godwit. */
#ifndef GODWIT_RUN_DIR_H
#define GODWIT_RUN_DIR_H

#include <stdlib.h>
#include <unistd.h>

static char run_dir[] = "/tmp/godwit-unit-XXXXXX";

/* For a group of tests. */
static int run_dir_make(void **state)
{
	(void)state;
	return !mkdtemp(run_dir) || setenv("RUNTIME_DIRECTORY", run_dir, 1);
}

/* Fails if a test has left something there. */
static int run_dir_remove(void **state)
{
	(void)state;
	return rmdir(run_dir);
}

#endif
