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

static int check_exports(struct qmp *q, struct err *e)
{
	struct qmp_batch b = { .command = "query-block-exports" };	/* from QEMU 5.2 on */
	int r = qmp_call_all(q, &b, 1, e);
	const json_t *export = json_array_get(b.ret, 0);

	if (!r && export) {
		char id[80], node[80];

		one_line(id, sizeof(id), job_text(export, "id"));
		one_line(node, sizeof(node), job_text(export, "node-name"));
		r = err_set(e, GW_VM_STATE, EBUSY,
			    "the source VM exports a disk (\"%s\", of node \"%s\"), and clients of the export may write it: end the export (block-export-del; nbd-server-stop ends a whole server)",
			    id, node);
	}
	json_decref(b.ret);
	return r;
}

int jobs_check_again(struct qmp *q, struct err *e)
{
	json_auto_t *jobs = NULL;
	const json_t *job;
	size_t i;
	int r = qmp_call(q, "query-jobs", NULL, &jobs, e);

	json_array_foreach(jobs, i, job) {
		char id[80], type[40];

		if (r || job_is_over(job_text(job, "status")))
			continue;
		one_line(id, sizeof(id), job_text(job, "id"));
		one_line(type, sizeof(type), job_text(job, "type"));
		r = err_set(e, GW_VM_STATE, EBUSY,
			    "a job is under way in the source VM (\"%s\", %s): wait until it ends, or end it (job-cancel; with libvirt virsh blockjob --abort)",
			    id, type);
	}
	return r ? r : check_exports(q, e);
}

int jobs_check(struct qmp *q, struct err *e)
{
	json_auto_t *dump = NULL;
	int r = jobs_check_again(q, e);

	if (!r)
		r = qmp_call(q, "query-dump", NULL, &dump, e);
	if (!r && !strcmp(job_text(dump, "status"), "active"))
		r = err_set(e, GW_VM_STATE, EBUSY,
			    "QEMU is dumping the source VM's memory to a file: wait until the dump ends (query-dump)");
	return r;
}
