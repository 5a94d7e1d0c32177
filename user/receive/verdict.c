// SPDX-License-Identifier: GPL-2.0-only
/*
 * The receiver's verdict on a migration. The receiver keeps it in a file from the beginning
 * (txn/record.h). A sender that knows the token may ask for it: this receiver, or one that is
 * started later.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json_text.h"
#include "base/say.h"
#include "base/stop.h"
#include "receive/receiver_internal.h"

#define QMP_MS		2000u	/* for a QEMU that a killed receiver has left behind */

static void verdict_fails(int ret)
{
	say("cannot keep a record in %s (%s): if this receiver is killed in the switchover the sender cannot learn how the migration ended",
		record_dir(), record_error(ret));
}

void verdict_open(struct receiver *r)
{
	char name[RECORD_NAME];
	int ret;

	if (!r->verdicts)
		return;
	record_name_verdict(name, r->token, sizeof(r->token));
	ret = record_open(&r->record, record_dir(), name);
	if (ret)
		verdict_fails(ret);
	verdict_write(r);
}

void verdict_write(struct receiver *r)
{
	char path[PATH_MAX] = "";
	int ret;

	if (r->record.fd < 0)
		return;
	if (!realpath(r->o->qmp_path, path))
		snprintf(path, sizeof(path), "%s", r->o->qmp_path);
	ret = record_write(&r->record,
			   json_pack("{s:s, s:I, s:o, s:s, s:b, s:b, s:b, s:b, s:O?}",
				     "state", commit_state_name(r->commit),
				     "resumed-ns", (json_int_t)r->resumed_ns,
				     "qmp", path_to_json(path), "vmm", r->vmm, "runs", r->runs,
				     "owing", r->lost || postcopy_lacks_ram(r),
				     "lost", r->lost, "unstarted", r->unstarted,
				     "capabilities", r->migration.old_caps));
	if (!ret)
		return;
	/* A record that is out of date is worse than none. */
	record_remove(&r->record);
	verdict_fails(ret);
}

/* Is the QEMU that answers at the record's path the one that the record is about? */
static bool verdict_same_vmm(const json_t *record, struct qmp *q)
{
	const char *vmm = json_string_value(json_object_get(record, "vmm"));
	char name[RECORD_NAME];

	return vmm && !record_name_vm(name, "doubt", qmp_peer_pid(q)) && !strcmp(vmm, name);
}

/* Is it of the migration whose guest this receiver's QEMU has, or had? */
static bool verdict_names_vmm(const struct receiver *r, const json_t *record)
{
	const char *vmm = json_string_value(json_object_get(record, "vmm"));

	return vmm && *vmm && !strcmp(vmm, r->vmm);
}

/*
 * The record's receiver was killed without a verdict: does the guest run, or is it paused as it
 * should be? If not, the migration stays in doubt. If so this gives QEMU its capabilities back, as
 * that receiver would have done.
 *
 * A receiver that has taken that QEMU over holds the only connection that QEMU serves, and asks
 * over that one. It need not where it has seen the guest run, which nothing undoes: QEMU's main
 * loop may wait for a page meanwhile, which comes only once the sender has this verdict. It gives
 * the capabilities back when all RAM is there.
 */
static bool verdict_runs_now(const struct receiver *r, const json_t *record)
{
	char buf[PATH_MAX];
	const char *path = path_from_json(json_object_get(record, "qmp"), buf, sizeof(buf));
	bool wanted = json_is_true(json_object_get(record, "runs"));
	struct err ignored = { 0 };
	bool holds = r->qmp && verdict_names_vmm(r, record);
	struct qmp *q = holds ? r->qmp : NULL;
	bool runs = false;
	char now[64] = "";

	if (holds && r->ran)
		return true;
	if (holds)
		qmp_set_timeout(q, QMP_MS);
	if (holds || (path && !qmp_open(path, QMP_MS, &q, &ignored) && verdict_same_vmm(record, q)))
		migration_vm_status(q, now, sizeof(now), &ignored);
	if (!strcmp(now, wanted ? "running" : "paused")) {
		struct migration m = { .qmp = q, .old_caps = json_object_get(record, "capabilities") };

		runs = true;
		migration_restore(&m);
	}
	if (!holds)
		qmp_close(q);
	return runs;
}

/*
 * A receiver that took over, and whose QEMU exited before a sender told it the token, knows which
 * record is of that QEMU.
 */
static bool verdict_tells_loss(const struct receiver *r, const json_t *record)
{
	const char *state = json_string_value(json_object_get(record, "state"));

	if (json_is_true(json_object_get(record, "lost")))
		return true;
	return r->lost && verdict_names_vmm(r, record) && state &&
	       (r->ran || commit_state_parse(state) == COMMIT_RUNS) &&
	       json_is_true(json_object_get(record, "owing"));
}

/* The record of that migration, a new reference; NULL: there is none. */
static json_t *verdict_find(const uint8_t token[WIRE_SECRET], bool *writer_lives)
{
	char name[RECORD_NAME];

	record_name_verdict(name, token, WIRE_SECRET);
	return record_find(name, writer_lives);
}

json_t *verdict_ours(const struct receiver *r, const uint8_t token[WIRE_SECRET])
{
	bool writer_lives;
	json_t *record = verdict_find(token, &writer_lives);

	if (record && verdict_names_vmm(r, record))
		return record;
	json_decref(record);
	return NULL;
}

bool verdict_is_of_another(const struct receiver *r, const uint8_t token[WIRE_SECRET])
{
	bool writer_lives;
	json_auto_t *record = verdict_find(token, &writer_lives);
	const char *vmm = json_string_value(json_object_get(record, "vmm"));

	return vmm && *r->vmm && strcmp(vmm, r->vmm) && record_process(vmm);
}

bool verdict_lost(const struct receiver *r, const uint8_t token[WIRE_SECRET])
{
	json_auto_t *record = NULL;
	bool writer_lives;

	/* Also without a record. */
	if (r->lost && r->verdicts && join_secret_ok(token, r->token))
		return true;
	record = verdict_find(token, &writer_lives);
	return verdict_tells_loss(r, record);
}

/*
 * Only now does a receiver that took over, and whose QEMU has exited since, know which migration
 * that was: for other receivers, the record. Unless it is another guest's: its record stays as it
 * is, and our sender has yet to come.
 */
void verdict_adopt(struct receiver *r, const uint8_t token[WIRE_SECRET])
{
	json_auto_t *record = verdict_ours(r, token);

	if (!(r->lost || r->whole) || r->verdicts || !record)
		return;
	memcpy(r->token, token, sizeof(r->token));
	r->verdicts = true;
	verdict_open(r);
}

/* The second: killed before QEMU had said that the guest runs. The first: taken over from it. */
bool verdict_unstarted(const json_t *record)
{
	const char *state = json_string_value(json_object_get(record, "state"));
	const enum commit_state s = state ? commit_state_parse(state) : COMMIT_STATES;

	return json_is_true(json_object_get(record, "unstarted")) ||
	       (json_is_true(json_object_get(record, "runs")) &&
		(s == COMMIT_SENT || s == COMMIT_IN_DOUBT));
}

static bool verdict_says_whole(const json_t *record)
{
	const char *state = json_string_value(json_object_get(record, "state"));

	return state && commit_state_parse(state) == COMMIT_RUNS &&
	       json_is_false(json_object_get(record, "owing")) &&
	       !json_is_true(json_object_get(record, "lost"));
}

json_t *verdict_whole(const uint8_t token[WIRE_SECRET])
{
	bool writer_lives;
	json_t *record = verdict_find(token, &writer_lives);

	if (record && verdict_says_whole(record))
		return record;
	json_decref(record);
	return NULL;
}

/* Of a guest that has come to the QEMU of this receiver: no process takes two. */
static bool verdict_is_of_guest(const char *name, const json_t *record, const void *arg)
{
	const char *state = json_string_value(json_object_get(record, "state"));

	(void)name;
	return verdict_names_vmm(arg, record) && state &&
	       commit_state_parse(state) == COMMIT_RUNS;
}

bool verdict_search(const struct receiver *r, uint8_t token[WIRE_SECRET])
{
	char name[RECORD_NAME];

	return record_search("verdict-", verdict_is_of_guest, r, name) &&
	       record_parse_verdict(name, token, WIRE_SECRET);
}

/* flags: WIRE_OWING if it runs and may lack RAM, WIRE_LOST if it has run, and is lost. */
static unsigned int verdict_look_up(const struct receiver *r, const uint8_t *token,
				    uint64_t *resumed_ns, uint16_t *flags)
{
	bool writer_lives = false;
	json_auto_t *record = verdict_find(token, &writer_lives);
	enum commit_state s;

	if (!record || !json_is_string(json_object_get(record, "state")))
		return WIRE_NO_VERDICT;
	s = commit_state_parse(json_string_value(json_object_get(record, "state")));
	*resumed_ns = (uint64_t)json_integer_value(json_object_get(record, "resumed-ns"));
	*flags = json_is_true(json_object_get(record, "owing")) ? WIRE_OWING : 0;
	if (r->features & WIRE_LOSSES && verdict_tells_loss(r, record))
		*flags |= WIRE_LOST;
	if (s == COMMIT_STATES)
		return WIRE_NO_VERDICT;
	/* Only the killed receiver had the device state, and QEMU got none of it. */
	if (!writer_lives && s == COMMIT_PREPARED)
		return COMMIT_DEAD;
	if (!writer_lives && (s == COMMIT_SENT || s == COMMIT_IN_DOUBT) &&
	    verdict_runs_now(r, record))
		return COMMIT_RUNS;
	return s;
}

/* A sender that recovers has sent BLOCKS before it hears us: no sign that it was read. */
static int verdict_skip_blocks(struct receiver *r, struct wire_header *h, struct err *e)
{
	uint8_t part[512];
	int ret = 0;

	while (!ret && h->length) {
		size_t n = h->length < sizeof(part) ? h->length : sizeof(part);

		ret = channel_body(r->ch, part, n, e);
		h->length -= (uint32_t)n;
	}
	return ret ? ret : channel_recv(r->ch, h, false, e);
}

enum sender_knowledge receiver_was_read(struct receiver *r)
{
	struct wire_header end;
	struct err e = { 0 };
	int ret;

	/* A stranger may ask, too, and keeps the sender out meanwhile. */
	channel_set_last(r->ch);
	ret = channel_recv(r->ch, &end, false, &e);
	if (!ret && end.type == WIRE_BLOCKS)
		ret = verdict_skip_blocks(r, &end, &e);
	/* Our patience is over, or the kernel's, or the operator's. */
	return ret == -ETIMEDOUT || ret == -EHOSTUNREACH || ret == -ENETUNREACH || ret == -EINTR ?
		       SENDER_TOLD : SENDER_KNOWS;
}

enum sender_knowledge verdict_reply(struct receiver *r)
{
	struct wire_header h = { .type = WIRE_VERDICT, .length = 8 };
	enum sender_knowledge heard = SENDER_MAY_NOT_KNOW;
	uint8_t token[WIRE_SECRET], body[8];
	uint64_t resumed_ns = 0;
	uint16_t flags = 0;
	struct err e = { 0 };
	int ret = channel_body(r->ch, token, sizeof(token), &e);

	if (!ret && r->waits && join_secret_ok(token, r->token)) {
		/* Before the answer: from here on RECONNECT is too late. */
		commit_destination(&r->commit, DESTINATION_GIVES_UP);
		verdict_write(r);
	}
	if (!ret && r->whole)
		verdict_adopt(r, token);
	if (!ret) {
		h.arg = verdict_look_up(r, token, &resumed_ns, &flags);
		h.flags = h.arg == COMMIT_RUNS ? flags : 0;
		wire_put_u64(body, resumed_ns);
		ret = channel_send(r->ch, &h, body, &e);
	}
	if (!ret)
		heard = receiver_was_read(r);
	channel_free(r->ch);
	r->ch = NULL;
	if (!ret)
		say_out("a sender asked how its migration ended: %s",
		       h.flags & WIRE_LOST ? "the guest is lost, or had ended" :
		       h.arg < COMMIT_STATES ? commit_state_name(h.arg) : "unknown");
	/* "in-doubt" is not final: a later question, perhaps to another receiver, may get more. */
	if (h.arg != COMMIT_RUNS && h.arg != COMMIT_DEAD)
		return SENDER_MAY_NOT_KNOW;
	return memcmp(token, r->token, sizeof(token)) ? SENDER_MAY_NOT_KNOW : heard;
}
