// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>

#include "migrate/resolve.h"
#include "txn/journal.h"
#include "vmm/migration.h"

static int undo(struct qmp *q, const json_t *note, struct err *e)
{
	struct journal j = { .records = json_deep_copy(json_object_get(note, "undo")), .pipe = -1 };
	int r = journal_undo(&j, q, UNDO_ALL, e);

	journal_close(&j);
	return r;
}

static int moved(struct qmp *q, const char *addr, struct err *e)
{
	bool running;
	int r = migration_running(q, &running, e);

	if (!r && running)
		r = err_set(e, GW_VM_STATE, EEXIST, "the guest runs here AND at %s, as somebody has continued it here (cont): stop it here now, the other one is the guest that has moved", addr);
	return r;
}

static int act(struct qmp *q, struct doubt *d, const json_t *note, enum commit_state *verdict, struct err *e)
{
	uint64_t resumed_ns;
	struct err why = { 0 };

	switch (doubt_ask(d, &resumed_ns, &why)) {
	case SOURCE_HEARS_RUNS:
		*verdict = COMMIT_RUNS;
		return moved(q, d->addr, e);
	case SOURCE_HEARS_DEAD:
		*verdict = COMMIT_DEAD;
		return undo(q, note, e);
	default:
		return err_set(e, GW_UNKNOWN, EAGAIN, "still in doubt: %.800s. Nothing was changed", why.text);
	}
}

int resolve_run(const struct resolve_options *o, enum commit_state *verdict, struct err *e)
{
	json_auto_t *note = NULL;
	struct doubt d = o->doubt;
	struct qmp *q = NULL;
	int r = qmp_open(o->qmp_path, d.timeout_ms, &q, e);
	pid_t pid = r || o->pid ? o->pid : qmp_peer_pid(q);

	if (!r)
		r = doubt_read(pid, &d, &note, e);
	if (o->doubt.addr)
		d.addr = o->doubt.addr;
	if (!r)
		r = act(q, &d, note, verdict, e);
	if (!r)
		doubt_forget(pid);
	qmp_close(q);
	return r;
}
