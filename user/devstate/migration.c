// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/say.h"
#include "base/text.h"
#include "devstate/migration.h"
#include "devstate/save.h"

#define FD_NAME "godwit"

/*
 * godwit switches all other capabilities off until the migration ends: its socket pair is one plain
 * channel.
 */
static bool migration_wants_cap(const struct migration *m, const char *cap, bool incoming)
{
	return (!m->save_mode && !strcmp(cap, "x-ignore-shared")) || !strcmp(cap, "events") ||
	       (!incoming && !strcmp(cap, "pause-before-switchover"));
}

static void migration_read_vm_status(const json_t *info, char *buf, size_t len)
{
	const char *s = json_string_value(json_object_get(info, "status"));

	snprintf(buf, len, "%s", s ? s : "?");
}

int migration_vm_status(struct qmp *q, char *buf, size_t len, struct err *e)
{
	json_auto_t *ret = NULL;
	int r = qmp_call(q, "query-status", NULL, &ret, e);

	if (!r)
		migration_read_vm_status(ret, buf, len);
	return r;
}

static long long migration_number(const json_t *j, const char *name)
{
	const json_t *n = json_object_get(j, name);

	return json_is_integer(n) ? json_integer_value(n) : -1;
}

void migration_read_status(const json_t *info, struct migration_status *m)
{
	const char *s = json_string_value(json_object_get(info, "status"));

	snprintf(m->status, sizeof(m->status), "%s", s ? s : "none");
	m->under_way = strcmp(m->status, "none") && strcmp(m->status, "completed") &&
		       strcmp(m->status, "failed") && strcmp(m->status, "cancelled");
	m->total_ms = migration_number(info, "total-time");
	m->downtime_ms = migration_number(info, "downtime");
	m->bytes = migration_number(json_object_get(info, "ram"), "transferred");
}

bool migration_has_ended(const char *status)
{
	return !strcmp(status, "failed") || !strcmp(status, "cancelled") ||
	       !strcmp(status, "cancelling");
}

int migration_query(struct qmp *q, struct migration_status *m, struct err *e)
{
	json_auto_t *info = NULL;
	int r = qmp_call(q, "query-migrate", NULL, &info, e);

	if (!r)
		migration_read_status(info, m);
	return r;
}

int migration_running(struct qmp *q, bool *running, struct err *e)
{
	char s[64];
	int r = migration_vm_status(q, s, sizeof(s), e);

	*running = !r && !strcmp(s, "running");
	return r;
}

/* What the VM does, and what its migration: one answer after the other, in one round trip. */
static int migration_ask_state(struct qmp *q, char *vm, size_t len, struct migration_status *ms,
			       struct err *e)
{
	struct qmp_batch b[] = {
		{ .command = "query-status", .must = true },
		{ .command = "query-migrate", .must = true },
	};
	int r = qmp_call_all(q, b, 2, e);

	if (!r) {
		migration_read_vm_status(b[0].ret, vm, len);
		migration_read_status(b[1].ret, ms);
	}
	json_decref(b[0].ret);
	json_decref(b[1].ret);
	return r;
}

static int migration_check_state(struct migration *m, bool incoming, struct err *e)
{
	struct migration_status ms;
	char s[64];
	int r = migration_ask_state(m->qmp, s, sizeof(s), &ms, e);

	if (r)
		return r;
	m->was_running = !strcmp(s, "running");
	if (incoming) {
		if (strcmp(s, "inmigrate"))
			return err_set(e, GW_VM_STATE, EINVAL,
				       "the destination QEMU is \"%s\" and does not wait for a migration: start it with -incoming defer",
				       s);
		if (ms.under_way)
			return err_set(e, GW_VM_STATE, EBUSY,
				       "the destination QEMU is receiving a migration already (%s): use -incoming defer",
				       ms.status);
		return 0;
	}
	if (strcmp(s, "running") && strcmp(s, "paused") && strcmp(s, "prelaunch"))
		return err_set(e, GW_VM_STATE, EINVAL,
			       "the source VM is \"%s\": only a running or paused VM can be migrated", s);
	if (ms.under_way)
		return err_set(e, GW_VM_STATE, EBUSY,
			       "QEMU is migrating the source VM already (%s): wait for that migration, or cancel it",
			       ms.status);
	return 0;
}

static int migration_plan_caps(struct migration *m, bool incoming, const json_t *caps,
			       struct err *e)
{
	const json_t *c;
	bool knows_ignore_shared = false;
	size_t i;

	json_decref(m->caps);
	json_decref(m->old_caps);
	m->caps = json_array();
	m->old_caps = json_array();
	json_array_foreach(caps, i, c) {
		const char *name = json_string_value(json_object_get(c, "capability"));
		bool on = json_is_true(json_object_get(c, "state"));

		if (!name)
			continue;
		knows_ignore_shared |= !strcmp(name, "x-ignore-shared");
		if (on == migration_wants_cap(m, name, incoming))
			continue;
		json_array_append_new(m->caps, json_pack("{s:s, s:b}", "capability", name,
							 "state", !on));
		json_array_append_new(m->old_caps, json_pack("{s:s, s:b}", "capability", name,
							     "state", on));
	}
	if (!knows_ignore_shared)
		return err_set(e, GW_QMP, EOPNOTSUPP,
			       "this QEMU lacks the capability x-ignore-shared: version 4.0 or newer is needed");
	return 0;
}

/* QEMU's own limits are for RAM that it sends; here they would only slow down the device state. */
static void migration_plan_params(struct migration *m, unsigned int downtime_limit_ms,
				  const json_t *now)
{
	const char *tls;

	json_decref(m->params);
	json_decref(m->old_params);
	m->params = json_pack("{s:I, s:i}", "max-bandwidth", (json_int_t)1 << 40,
			      "downtime-limit", (int)downtime_limit_ms);
	m->old_params = json_object();
	json_object_set(m->old_params, "max-bandwidth", json_object_get(now, "max-bandwidth"));
	json_object_set(m->old_params, "downtime-limit", json_object_get(now, "downtime-limit"));
	tls = json_string_value(json_object_get(now, "tls-creds"));
	if (tls && *tls) {
		json_object_set_new(m->old_params, "tls-creds", json_string(tls));
		json_object_set_new(m->params, "tls-creds", json_string(""));
	}
}

int migration_check(struct migration *m, struct qmp *q, bool incoming,
		    unsigned int downtime_limit_ms, struct err *e)
{
	int r;

	memset(m, 0, sizeof(*m));
	m->qmp = q;
	m->stream = -1;
	r = migration_check_state(m, incoming, e);
	if (!r && !incoming && !m->was_running && save_has_fdset(q))
		r = err_set(e, GW_VM_STATE, EALREADY,
			    "the source VM is paused since a migration, and the guest may run at the destination: if it does not, let it run here (cont) and try again");
	return r ? r : migration_plan(m, incoming, false, downtime_limit_ms, e);
}

int migration_check_again(struct migration *m, unsigned int downtime_limit_ms, struct err *e)
{
	struct qmp *q = m->qmp;

	migration_free(m);
	return migration_check(m, q, false, downtime_limit_ms, e);
}

/* The state of one of these capabilities; NULL: it is none of them. */
static const json_t *migration_cap(const json_t *caps, const char *name)
{
	const json_t *c;
	size_t i;

	json_array_foreach(caps, i, c) {
		const char *other = json_string_value(json_object_get(c, "capability"));

		if (other && !strcmp(other, name))
			return json_object_get(c, "state");
	}
	return NULL;
}

int migration_leaves_ram_out(struct qmp *q, bool *on, struct err *e)
{
	json_auto_t *caps = NULL;
	int r = qmp_call(q, "query-migrate-capabilities", NULL, &caps, e);

	*on = json_is_true(migration_cap(caps, "x-ignore-shared"));
	return r;
}

int migration_check_waits(struct qmp *q, struct err *e)
{
	struct migration m = { .qmp = q, .stream = -1 };

	return migration_check_state(&m, true, e);
}

int migration_plan(struct migration *m, bool incoming, bool save_mode,
		   unsigned int downtime_limit_ms, struct err *e)
{
	struct qmp_batch b[] = {
		{ .command = "query-migrate-capabilities", .must = true },
		{ .command = "query-migrate-parameters", .must = true },
		{ .command = "xen-event-list" },	/* refused unless the machine emulates Xen */
	};
	int r = qmp_call_all(m->qmp, b, incoming ? 1 : 3, e);

	m->save_mode = save_mode;
	if (!r)
		r = migration_plan_caps(m, incoming, b[0].ret, e);
	if (!r && !incoming)
		migration_plan_params(m, downtime_limit_ms, b[1].ret);
	/*
	 * KVM delivers Xen's events into the guest's vcpu_info by a mapping of its own, without a
	 * dirty bit (kvm_xen_set_evtchn_fast()); also while the vCPUs stand still.
	 */
	if (!r && b[2].ret)
		r = err_set(e, GW_VM_STATE, EOPNOTSUPP,
			    "this VM emulates Xen (-accel kvm,xen-version=...): KVM writes Xen's events into its RAM where nothing sees it, so they could be lost: start it without xen-version");
	for (size_t i = 0; i < sizeof(b) / sizeof(b[0]); i++)
		json_decref(b[i].ret);
	return r;
}

static int migration_check_blocked(const json_t *info, struct err *e)
{
	const json_t *blockers = json_object_get(info, "blocked-reasons");
	const char *why = json_string_value(json_array_get(blockers, 0));
	char shown[400];

	if (!why)
		return 0;
	return err_set(e, GW_VM_STATE, EBUSY,
		       "QEMU cannot migrate this VM: \"%s\": unplug that device (device_del), or start QEMU without it",
		       one_line(shown, sizeof(shown), why));
}

int migration_check_blockers(struct qmp *q, struct err *e)
{
	json_auto_t *info = NULL;
	int r = qmp_call(q, "query-migrate", NULL, &info, e);

	return r ? r : migration_check_blocked(info, e);
}

int migration_check_idle(struct qmp *q, struct migration_status *last, struct err *e)
{
	json_auto_t *info = NULL;
	int r = qmp_call(q, "query-migrate", NULL, &info, e);

	if (r)
		return r;
	migration_read_status(info, last);
	if (last->under_way)
		return err_set(e, GW_VM_STATE, EBUSY,
			       "another program migrates the source VM, or saves it to a file (%s): wait for that to end, or cancel it",
			       last->status);
	return migration_check_blocked(info, e);
}

static int migration_set_caps(struct migration *m, json_t *list, struct err *e)
{
	return qmp_call(m->qmp, "migrate-set-capabilities",
			json_pack("{s:O}", "capabilities", list), NULL, e);
}

int migration_configure(struct migration *m, struct err *e)
{
	int r = migration_set_caps(m, m->caps, e);

	if (!r && m->params)
		r = qmp_call(m->qmp, "migrate-set-parameters", json_incref(m->params), NULL, e);
	return r;
}

int migration_start(struct migration *m, bool incoming, struct err *e)
{
	int pair[2], r;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return err_set(e, GW_INTERNAL, errno, "socketpair: %s", strerror(errno));
	r = qmp_call_fd(m->qmp, "getfd", json_pack("{s:s}", "fdname", FD_NAME), pair[1], NULL, e);
	if (!r)
		r = qmp_call(m->qmp, incoming ? "migrate-incoming" : "migrate",
			     json_pack("{s:s}", "uri", "fd:" FD_NAME), NULL, e);
	close(pair[1]);
	if (r) {
		close(pair[0]);
		return r;
	}
	fcntl(pair[0], F_SETFL, O_NONBLOCK);
	m->stream = pair[0];
	return 0;
}

int migration_continue(struct migration *m, struct err *e)
{
	return qmp_begin(m->qmp, "migrate-continue", json_pack("{s:s}", "state", "pre-switchover"),
			 e);
}

int migration_take_writes(struct qmp *q, struct err *e)
{
	char *text;
	/*
	 * QEMU takes all waiting writes before it reads a register whose writes may wait. This one
	 * is PCI's address port: it reads as what was written to it, and reading changes nothing. A
	 * machine without this port has no register whose writes wait.
	 */
	int r = qmp_monitor(q, "i /xw 0xcf8", &text, e);

	free(text);
	return r;
}

void migration_close_stream(struct migration *m)
{
	if (m->stream >= 0)
		close(m->stream);
	m->stream = -1;
}

void migration_restore(struct migration *m)
{
	struct err failed = { 0 };

	if (!m->old_caps || m->given)
		return;
	if (!m->qmp)
		err_set(&failed, GW_TIMEOUT, ETIMEDOUT, "its monitor does not answer");
	else
		migration_set_caps(m, m->old_caps, &failed);
	if (failed.exit && failed.exit != GW_VM_GONE)
		say("QEMU may keep the capabilities of this migration: %s%s", failed.text,
			json_is_false(migration_cap(m->old_caps, "x-ignore-shared")) ?
			"; with x-ignore-shared its own migrations leave RAM out: switch that off (migrate-set-capabilities)" :
			"");
}

void migration_restore_begin(struct migration *m)
{
	struct err ignored = { 0 };

	if (m->old_caps)
		m->given = !qmp_begin(m->qmp, "migrate-set-capabilities",
				      json_pack("{s:O}", "capabilities", m->old_caps), &ignored);
}

void migration_free(struct migration *m)
{
	migration_close_stream(m);
	json_decref(m->caps);
	json_decref(m->params);
	json_decref(m->old_caps);
	json_decref(m->old_params);
}
