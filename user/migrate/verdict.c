// SPDX-License-Identifier: GPL-2.0-only
/*
 * The receiver's verdict on a migration: it is in a file from the beginning (txn/record.h), and whoever knows the token may
 * ask for it: this receiver, or one that is started later.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "io/sock.h"
#include "io/stop.h"
#include "migrate/receiver_internal.h"

#define LISTEN_BACKLOG	8
#define QMP_MS		2000u	/* of a QEMU that a killed receiver has left */

void verdict_open(struct receiver *r)
{
	char name[RECORD_NAME];
	int ret;

	if (!r->verdicts)
		return;
	record_name_verdict(name, r->token, sizeof(r->token));
	ret = record_open(&r->record, record_dir(), name);
	if (ret)
		fprintf(stderr, "godwit: no record in %s (%s): if this receiver is killed in the switchover, nobody can tell the sender how that ended\n",
			record_dir(), strerror(-ret));
	verdict_write(r);
}

void verdict_write(struct receiver *r)
{
	char vmm[RECORD_NAME] = "", path[PATH_MAX] = "";

	if (r->record.fd < 0)
		return;
	record_name_vm(vmm, "doubt", r->vm.pid);
	if (!realpath(r->o->qmp_path, path))
		snprintf(path, sizeof(path), "%s", r->o->qmp_path);
	/* One that says less than what is true is worse than none. */
	if (record_write(&r->record, json_pack("{s:s, s:I, s:s, s:s, s:b, s:O?}", "state", commit_state_name(r->commit), "resumed-ns",
					       (json_int_t)r->resumed_ns, "qmp", path, "vmm", vmm, "runs", r->runs,
					       "capabilities", r->migration.old_caps)))
		record_remove(&r->record);
}

/* Whoever answers at that path is the QEMU that the record is about. */
static bool same_vmm(const json_t *record, struct qmp *q)
{
	const char *vmm = json_string_value(json_object_get(record, "vmm"));
	char name[RECORD_NAME];

	return vmm && !record_name_vm(name, "doubt", qmp_peer_pid(q)) && !strcmp(vmm, name);
}

/*
 * Its receiver has gone without a verdict: does the guest run, or stand as it should? If not, nobody knows. If so QEMU gets
 * back its capabilities, as that receiver would have done.
 */
static bool runs_now(const json_t *record)
{
	const char *path = json_string_value(json_object_get(record, "qmp"));
	bool wanted = json_is_true(json_object_get(record, "runs"));
	struct err ignored = { 0 };
	struct qmp *q = NULL;
	bool runs = false;
	char now[64] = "";

	if (path && !qmp_open(path, QMP_MS, &q, &ignored) && same_vmm(record, q))
		migration_vm_status(q, now, sizeof(now), &ignored);
	if (!strcmp(now, wanted ? "running" : "paused")) {
		struct migration m = { .qmp = q, .old_caps = json_object_get(record, "capabilities") };

		runs = true;
		migration_restore(&m);
	}
	qmp_close(q);
	return runs;
}

static unsigned int look_up(const uint8_t *token, uint64_t *resumed_ns)
{
	char name[RECORD_NAME];
	json_auto_t *record = NULL;
	enum commit_state s;
	bool held = false;

	record_name_verdict(name, token, WIRE_SECRET);
	record = record_find(name, &held);
	if (!record || !json_is_string(json_object_get(record, "state")))
		return WIRE_NO_VERDICT;
	s = commit_state_parse(json_string_value(json_object_get(record, "state")));
	*resumed_ns = (uint64_t)json_integer_value(json_object_get(record, "resumed-ns"));
	if (s == COMMIT_STATES)
		return WIRE_NO_VERDICT;
	/* QEMU never got what only that receiver had. */
	if (!held && s == COMMIT_PREPARED)
		return COMMIT_DEAD;
	if (!held && (s == COMMIT_SENT || s == COMMIT_IN_DOUBT) && runs_now(record))
		return COMMIT_RUNS;
	return s;
}

bool verdict_reply(struct receiver *r)
{
	struct wire_header h = { .type = WIRE_VERDICT, .length = 8 };
	uint8_t token[WIRE_SECRET], body[8];
	uint64_t resumed_ns = 0;
	struct err e = { 0 };
	int ret = channel_body(r->ch, token, sizeof(token), &e);

	if (!ret) {
		h.arg = look_up(token, &resumed_ns);
		wire_put_u64(body, resumed_ns);
		ret = channel_send(r->ch, &h, body, &e);
	}
	/* It closes when it has read that. */
	if (!ret)
		channel_recv(r->ch, &h, false, &e);
	channel_free(r->ch);
	r->ch = NULL;
	if (!ret)
		printf("godwit: a sender has asked how its migration ended: %s\n",
		       h.arg < COMMIT_STATES ? commit_state_name(h.arg) : "not known");
	fflush(stdout);
	/* "in-doubt" tells nobody how it ended: whoever asks again, after us perhaps, may still hear more. */
	return !ret && (h.arg == COMMIT_RUNS || h.arg == COMMIT_DEAD) &&
	       !memcmp(token, r->token, sizeof(token));
}

void verdict_linger(struct receiver *r)
{
	uint64_t until = deadline_ms(r->o->resolve_s * 1000ull);
	struct wire_header h;
	struct err e = { 0 };

	if (r->mute && listen(r->lfd, LISTEN_BACKLOG) < 0)
		return;
	/* What is waited for is only to be polite: the verdict is in its file. */
	stop_heed();
	fprintf(stderr, "godwit: the sender may not know how the migration ended (%s): waiting %u s for it to ask\n",
		commit_state_name(r->commit), r->o->resolve_s);
	while (!r->told && !receiver_greet(r, &h, until, &e)) {
		struct err busy = { 0 };

		if (h.type == WIRE_ASK) {
			r->told = verdict_reply(r);
			continue;
		}
		err_set(&busy, GW_BUSY, EBUSY, "this receiver has served its migration: start another one");
		channel_abort(r->ch, &busy);
		channel_free(r->ch);
		r->ch = NULL;
	}
}
