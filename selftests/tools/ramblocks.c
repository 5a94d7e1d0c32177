// SPDX-License-Identifier: GPL-2.0-only
/*
 * ramblocks QMP-SOCKET PID: a line for each RAM block of that QEMU, "NAME LOCATED SAID BYTES": where
 * ramblocks_locate() finds it, and where QEMU says that it is (0x0: it does not say, before 8.0). The
 * last line is how long that took: "ms N".
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "vmm/ramblocks.h"

static struct ramblocks said, found;

static int locate(struct qmp *q, pid_t pid, struct err *e)
{
	char *text = NULL;
	uint64_t begin;
	int r = ramblocks_text(q, &text, e);

	if (r)
		return r;
	if (ramblocks_parse(text, &said) < 0)
		return err_set(e, GW_NOT_QEMU, 1, "no list of RAM blocks");
	free(text);
	found = said;
	for (unsigned int i = 0; i < found.n; i++)
		found.b[i].hva = 0;
	begin = now_ns();
	r = ramblocks_locate(q, pid, &found, e);
	if (!r && *found.why)
		r = err_set(e, GW_RAM_PRIVATE, 1, "%s", found.why);
	for (unsigned int i = 0; !r && i < found.n; i++)
		printf("%s 0x%" PRIx64 " 0x%" PRIx64 " %" PRIu64 "\n", found.b[i].name, found.b[i].hva,
		       said.b[i].hva, found.b[i].bytes);
	if (!r)
		printf("ms %.1f\n", (double)(now_ns() - begin) / 1e6);
	begin = now_ns();
	if (!r)
		r = ramblocks_check_located(pid, &found, e);
	if (!r)
		printf("again-ms %.1f\n", (double)(now_ns() - begin) / 1e6);
	return r;
}

int main(int argc, char **argv)
{
	struct err e = { 0 };
	struct qmp *q = NULL;

	if (argc != 3) {
		fprintf(stderr, "ramblocks QMP-SOCKET PID\n");
		return 2;
	}
	if (!qmp_open(argv[1], 5000, &q, &e))
		locate(q, (pid_t)atoi(argv[2]), &e);
	qmp_close(q);
	if (e.exit)
		fprintf(stderr, "ramblocks: %s\n", e.text);
	return e.exit;
}
