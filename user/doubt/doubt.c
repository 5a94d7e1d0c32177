// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_text.h"
#include "base/say.h"
#include "base/stop.h"
#include "devstate/migration.h"
#include "devstate/save.h"
#include "peer/hello.h"
#include "plan/link.h"
#include "txn/journal.h"
#include "doubt/doubt.h"

#define AGAIN_MS	500u

/* Asks once, until_ns or 0. Return: the receiver's verdict; COMMIT_STATES: it has none. */
static enum commit_state doubt_ask_once(const struct doubt *d, uint64_t until_ns,
					struct doubt_answer *answer, struct err *e)
{
	struct wire_header h = { .type = WIRE_ASK, .length = WIRE_SECRET };
	struct channel *ch = NULL;
	uint64_t features = 0;
	const struct hello_peer peer = {
		.addr = d->addr, .tls = d->tls, .engine = d->engine, .timeout_ms = d->timeout_ms,
		.until_ns = until_ns,
	};
	uint8_t body[8];
	int r = hello(&peer, &ch, &features, e);

	if (!r && !(features & WIRE_VERDICTS))
		r = err_set(e, GW_VERSION, EPROTONOSUPPORT,
			    "the receiver at %s keeps no verdicts: look at the destination", d->addr);
	if (!r)
		r = channel_send(ch, &h, d->token, e);
	if (!r)
		r = channel_expect(ch, WIRE_VERDICT, &h, e);
	if (!r)
		r = channel_body(ch, body, sizeof(body), e);
	channel_free(ch);
	if (r)
		return COMMIT_STATES;
	answer->resumed_ns = wire_get_u64(body);
	answer->owing = h.flags & WIRE_OWING;
	answer->lost = h.flags & WIRE_LOST;
	if (h.arg == WIRE_NO_VERDICT)
		err_set(e, GW_UNKNOWN, ENOENT, "the receiver at %s has no record of this migration",
			d->addr);
	else
		err_set(e, GW_UNKNOWN, EAGAIN, "the receiver at %s says \"%s\"", d->addr,
			commit_state_name((enum commit_state)h.arg));
	return h.arg < COMMIT_STATES ? (enum commit_state)h.arg : COMMIT_STATES;
}

unsigned int doubt_patience_ms(const struct doubt *d)
{
	return link_patience_ms(d->seconds * 1000u, d->rtt_ns);
}

enum commit_source_event doubt_ask(const struct doubt *d, struct doubt_answer *answer,
				   struct err *e)
{
	uint64_t deadline = deadline_ms(doubt_patience_ms(d));

	for (;;) {
		struct err why = { 0 };

		*answer = (struct doubt_answer) { 0 };
		switch (doubt_ask_once(d, d->strict ? deadline : 0, answer, &why)) {
		case COMMIT_RUNS:
			return SOURCE_LEARNS_RUNS;
		case COMMIT_DEAD:
			return SOURCE_LEARNS_DEAD;
		default:
			break;
		}
		if (deadline_ms(AGAIN_MS) > deadline || stop_requested()) {
			*e = why;
			return SOURCE_STOPS_ASKING;
		}
		nap_ms(AGAIN_MS);
	}
}

/* The sender or its guardian undoes settings, whatever becomes of the guest. */
static json_t *doubt_without_settings(const json_t *records)
{
	json_t *left = json_array(), *record;
	size_t i;

	json_array_foreach(records, i, record)
		if (!json_is_true(json_object_get(record, "setting")))
			json_array_append(left, record);
	return left;
}

static int doubt_open(struct record *r, pid_t vmm)
{
	char name[RECORD_NAME];
	int ret = r->fd < 0 ? record_name_vm(name, "doubt", vmm) : 0;

	return ret || r->fd >= 0 ? ret : record_open(r, RECORD_DIR, name);
}

int doubt_reserve(struct record *r, pid_t vmm, struct err *e)
{
	int ret = doubt_open(r, vmm);

	if (!ret)
		ret = record_reserve(r);
	if (!ret)
		return 0;
	record_remove(r);
	return err_set(e, ret == -ENOSPC || ret == -EDQUOT ? GW_NO_ROOM : GW_INTERNAL, EOPNOTSUPP,
		       "no note of post-copy can be made in " RECORD_DIR " (%s), without which \"godwit send --recover\" could not go on if the sender is killed: make room there, or give --postcopy off",
		       record_error(ret));
}

void doubt_write(struct record *r, pid_t vmm, const struct doubt *d, const json_t *undo)
{
	char token[RECORD_NAME];
	int ret = doubt_open(r, vmm);

	/* QEMU has exited: its guest cannot run twice. */
	if (ret == -ENOENT || ret == -ESRCH)
		return;
	record_name_verdict(token, d->token, sizeof(d->token));
	if (!ret)
		ret = record_write(r, json_pack("{s:o, s:s, s:b, s:b, s:b, s:b, s:s?, s:b, s:o}",
						"receiver", path_to_json(d->addr),
						"token", token,
						"ran", d->ran, "complete", d->complete,
						"dead", d->dead, "paused", d->paused,
						"state", d->state, "continued", d->continued,
						"undo", doubt_without_settings(undo)));
	if (ret)
		say("cannot write a note in " RECORD_DIR " (%s): if this migration ends in doubt, \"godwit resolve\" will not find it",
			record_error(ret));
}

static void doubt_note_that(pid_t vmm, json_t *note, const char *key, const char *words)
{
	struct record r = RECORD_NONE;
	char name[RECORD_NAME];
	int ret;

	if (json_is_true(json_object_get(note, key)))
		return;
	json_object_set_new(note, key, json_true());
	ret = record_name_vm(name, "doubt", vmm);
	if (!ret)
		ret = record_open(&r, RECORD_DIR, name);
	if (!ret)
		ret = record_write(&r, json_incref(note));
	record_close(&r);
	if (ret)
		say("cannot change the note in " RECORD_DIR " (%s): %s", record_error(ret), words);
}

void doubt_note_ran(pid_t vmm, json_t *note)
{
	doubt_note_that(vmm, note, "ran",
			"do not continue this QEMU, whatever \"godwit resolve\" hears later: the guest has run at the destination");
}

void doubt_note_complete(pid_t vmm, json_t *note)
{
	/* Both by one write. */
	json_object_set_new(note, "ran", json_true());
	doubt_note_that(vmm, note, "complete",
			"\"godwit resolve\" may say later that the guest may lack RAM, which it does not");
}

void doubt_note_dead(pid_t vmm, json_t *note)
{
	doubt_note_that(vmm, note, "dead",
			"if \"godwit resolve\" ends now, the guest may stay in doubt, though it never ran at the destination");
}

void doubt_note_continued(pid_t vmm, json_t *note)
{
	doubt_note_that(vmm, note, "continued",
			"send no RAM of this QEMU any more: its guest was continued here");
}

/* QEMU is "postmigrate", which another migration of the guest may have left, after a `cont`. */
static int doubt_check_migration(struct qmp *q, const struct doubt *d, bool *other, struct err *e)
{
	struct migration_status m;
	int r = migration_query(q, &m, e);

	if (!r)
		*other |= !journal_may_be_the_one(d->undo, &m);
	return r;
}

int doubt_check_source(struct qmp *q, const struct doubt *d, struct err *e)
{
	char now[64], disk[80] = "";
	int r = migration_vm_status(q, now, sizeof(now), e);
	bool other = d->continued;

	if (!r && d->state && strcmp(d->state, "postmigrate"))
		r = save_active_disk(q, disk, sizeof(disk), e);
	else if (!r && d->state && !strcmp(now, d->state))
		r = doubt_check_migration(q, d, &other, e);
	if (r < 0)
		return r;
	if (d->state)
		other |= r > 0 || !strcmp(now, "running") || (*d->state && strcmp(now, d->state));
	return !other ? 0 : err_set(e, d->ran ? GW_RAN_TWICE : GW_VM_STATE, EEXIST,
				    "another client has continued the guest here, or reset it, or saved or sent it once more, since it was sent (this QEMU is \"%s\"%s%s): its RAM may have changed, and none of it is sent to the guest at the destination. Leave this QEMU stopped; %s",
				    now, *disk ? ", and has a disk: " : "", disk,
				    d->complete ?
				    "the guest at the destination lacks none, but look at what has been written to its disks here meanwhile" :
				    "if the guest at the destination lacks RAM, end both QEMUs, look at the guest's disks, and start it anew from them");
}

bool doubt_ran(const json_t *note)
{
	return json_is_true(json_object_get(note, "ran"));
}

enum doubt_guest doubt_guest(const json_t *note)
{
	const json_t *paused = json_object_get(note, "paused");

	if (!json_is_boolean(paused))
		return DOUBT_GUEST_UNKNOWN;
	return json_is_true(paused) ? DOUBT_GUEST_PAUSED : DOUBT_GUEST_RAN;
}

const char *doubt_lost_words(enum doubt_guest guest)
{
	switch (guest) {
	case DOUBT_GUEST_PAUSED:
		return "It was paused: unless somebody has continued it there, all of it is here, and once no QEMU there has it any more `cont` brings it back";
	case DOUBT_GUEST_RAN:
		return "It has run there, so its disks and its peers know more than the RAM here does, which is of no use any more: do not continue this QEMU, and once no QEMU there has the guest start it anew from its disks";
	default:
		return "If it ran when it was sent, or somebody has continued it there, its disks and its peers know more than the RAM here does, which is of no use any more: do not continue this QEMU, and once no QEMU there has the guest start it anew from its disks. Only if it was paused, and stayed so, all of it is here, and `cont` brings it back then";
	}
}

void doubt_forget(pid_t vmm)
{
	record_unlink_vm(RECORD_DIR, "doubt", vmm);
}

int doubt_read(pid_t vmm, struct doubt *d, json_t **note, struct err *e)
{
	char name[RECORD_NAME];
	bool held = false;
	int r = record_name_vm(name, "doubt", vmm);

	*note = r ? NULL : record_read(RECORD_DIR, name, &held);
	if (!*note)
		return err_set(e, GW_NO_MIGRATION, ENOENT,
			       "no migration of this VM (process %d) ended in doubt: " RECORD_DIR " has no note of one",
			       (int)vmm);
	if (held)
		return err_set(e, GW_BUSY, EBUSY,
			       "the migration of this VM is still under way: wait for \"godwit send\" to end");
	d->addr = path_from_json(json_object_get(*note, "receiver"), d->read, sizeof(d->read));
	d->undo = json_object_get(*note, "undo");
	if (!d->addr ||
	    !record_parse_verdict(json_string_value(json_object_get(*note, "token")), d->token,
				  sizeof(d->token)) ||
	    !json_is_array(d->undo))
		return err_set(e, GW_INTERNAL, EPROTO, "the note " RECORD_DIR "/%s makes no sense",
			       name);
	d->ran = doubt_ran(*note);
	d->complete = json_is_true(json_object_get(*note, "complete"));
	d->dead = json_is_true(json_object_get(*note, "dead"));
	d->state = json_string_value(json_object_get(*note, "state"));
	d->continued = json_is_true(json_object_get(*note, "continued"));
	return 0;
}
