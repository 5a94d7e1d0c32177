// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/text.h"
#include "qmp/jobs.h"

/* A job that has ended stays in the list until job-dismiss. */
static bool job_is_over(const char *status)
{
	return !strcmp(status, "concluded") || !strcmp(status, "null");
}

static const char *job_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "?";
}

static int check_exports(const json_t *exports, struct err *e)
{
	const json_t *export = json_array_get(exports, 0);
	char id[80], node[80];

	if (!export)
		return 0;
	one_line(id, sizeof(id), job_text(export, "id"));
	one_line(node, sizeof(node), job_text(export, "node-name"));
	return err_set(e, GW_VM_STATE, EBUSY,
		       "the source VM exports a disk (\"%s\", of node \"%s\"), and clients of the export may write it: end the export (block-export-del; nbd-server-stop ends a whole server)",
		       id, node);
}

static int check_jobs(const json_t *jobs, struct err *e)
{
	const json_t *job;
	size_t i;

	json_array_foreach(jobs, i, job) {
		char id[80], type[40];

		if (job_is_over(job_text(job, "status")))
			continue;
		one_line(id, sizeof(id), job_text(job, "id"));
		one_line(type, sizeof(type), job_text(job, "type"));
		return err_set(
			e, GW_VM_STATE, EBUSY,
			"a job is under way in the source VM (\"%s\", %s): wait until it ends, or end it (job-cancel; with libvirt virsh blockjob --abort)",
			id, type);
	}
	return 0;
}

static int check_dump(const json_t *dump, struct err *e)
{
	if (!dump || strcmp(job_text(dump, "status"), "active"))
		return 0;
	return err_set(e, GW_VM_STATE, EBUSY,
		       "QEMU is dumping the source VM's memory to a file: wait until the dump ends (query-dump)");
}

/* In one round trip. */
static int jobs_ask(struct qmp *q, bool dump, struct err *e)
{
	struct qmp_batch b[] = {
		{ .command = "query-jobs", .must = true },
		{ .command = "query-block-exports" },	/* from QEMU 5.2 on */
		{ .command = "query-dump", .must = true },
	};
	int r = qmp_call_all(q, b, dump ? 3 : 2, e);

	if (!r)
		r = check_jobs(b[0].ret, e);
	if (!r)
		r = check_exports(b[1].ret, e);
	if (!r)
		r = check_dump(b[2].ret, e);
	for (size_t i = 0; i < sizeof(b) / sizeof(b[0]); i++)
		json_decref(b[i].ret);
	return r;
}

int jobs_check_again(struct qmp *q, struct err *e)
{
	return jobs_ask(q, false, e);
}

int jobs_check(struct qmp *q, struct err *e)
{
	return jobs_ask(q, true, e);
}
