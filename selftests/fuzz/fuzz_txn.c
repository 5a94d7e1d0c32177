// SPDX-License-Identifier: GPL-2.0-only
/*
 * The commit's two machines under any events in any order, longer than test_commit.c walks; and what is read of a file or a
 * pipe that another process wrote, which may have died over it: lines of the undo journal, records.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "txn/commit.h"
#include "txn/journal.h"
#include "txn/record.h"

#define CHECK(x)	do { if (!(x)) { fprintf(stderr, "%s\n", #x); abort(); } } while (0)

/* Once DEVICE_END may have left, only the receiver's word lets the source run. */
static void fuzz_source(const uint8_t *data, size_t size)
{
	enum commit_state s = COMMIT_PREPARED, was;
	bool sent = false, dead = false;

	for (size_t i = 0; i < size; i++) {
		enum commit_source_event event = data[i] % SOURCE_EVENTS;
		enum commit_source_action action;

		was = s;
		action = commit_source(&s, event);
		sent |= was == COMMIT_PREPARED && event == SOURCE_SENDS_END;
		dead |= was != COMMIT_RUNS && event == SOURCE_LEARNS_DEAD;
		CHECK(s < COMMIT_STATES && commit_state_parse(commit_state_name(s)) == s);
		CHECK(was != COMMIT_RUNS || s == COMMIT_RUNS);
		CHECK(was != COMMIT_DEAD || s == COMMIT_DEAD);
		CHECK(s != COMMIT_DEAD || !sent || dead);
		CHECK((action == SOURCE_ROLLS_BACK) == (s == COMMIT_DEAD));
		CHECK((action == SOURCE_IS_DONE) == (s == COMMIT_RUNS));
		CHECK(sent || (action != SOURCE_ASKS && action != SOURCE_STAYS_STOPPED));
	}
}

/* The device state is handed over at most once, never after "dead" was said; and what was said stays. */
static void fuzz_destination(const uint8_t *data, size_t size)
{
	enum commit_state s = COMMIT_PREPARED, was;
	unsigned int handed = 0;
	bool said_dead = false, said_runs = false;

	for (size_t i = 0; i < size; i++) {
		enum commit_destination_action action;

		was = s;
		action = commit_destination(&s, data[i] % DESTINATION_EVENTS);
		handed += action == DESTINATION_LOADS_STATE;
		CHECK(handed <= 1 && !(said_dead && action == DESTINATION_LOADS_STATE));
		said_dead |= action == DESTINATION_SAYS_DEAD;
		said_runs |= action == DESTINATION_SAYS_RUNS;
		CHECK(!said_dead || !said_runs);
		CHECK(!said_runs || handed);
		CHECK(s < COMMIT_STATES && (was == COMMIT_PREPARED || s != COMMIT_PREPARED));
	}
}

static void fuzz_journal(const char *text)
{
	struct err ignored = { 0 };
	struct journal j = { .pipe = -1 };
	char line[512];

	CHECK(!journal_open(&j, &ignored));
	while (*text) {
		size_t len = strcspn(text, "\n") + 1, room = sizeof(line) - 1;
		size_t before = json_array_size(j.records);

		snprintf(line, sizeof(line), "%.*s", (int)(len < room ? len : room), text);
		/* A line is one record, or takes one back. */
		if (!journal_load(&j, line))
			CHECK(json_array_size(j.records) <= before + 1);
		else
			CHECK(json_array_size(j.records) == before);
		text += strnlen(text, len);
	}
	journal_close(&j);
}

static void fuzz_record(const uint8_t *data, size_t size)
{
	char dir[] = "/tmp/fuzz-record", path[64];
	bool held;
	json_t *j;
	FILE *f;

	snprintf(path, sizeof(path), "%s.%d", dir, (int)getpid());
	f = fopen(path, "w");
	CHECK(f);
	fwrite(data, 1, size, f);
	fclose(f);
	j = record_read("/tmp", path + strlen("/tmp/"), &held);
	CHECK(!held);
	CHECK(!j || json_is_object(j));
	json_decref(j);
	unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (size < 1)
		return 0;
	switch (data[0] % 4) {
	case 0:
		fuzz_source(data + 1, size - 1);
		break;
	case 1:
		fuzz_destination(data + 1, size - 1);
		break;
	case 2:
		text = strndup((const char *)data + 1, size - 1);
		fuzz_journal(text);
		free(text);
		break;
	default:
		fuzz_record(data + 1, size - 1);
	}
	return 0;
}
