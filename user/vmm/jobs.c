// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "vmm/jobs.h"
#include "vmm/text.h"

/* A job that has ended stays in the list until somebody dismisses it. */
static bool is_over(const char *status)
{
	return !strcmp(status, "concluded") || !strcmp(status, "null");
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "?";
}

int jobs_check_again(struct qmp *q, struct err *e)
{
	json_auto_t *jobs = NULL;
	const json_t *job;
	size_t i;
	int r = qmp_call(q, "query-jobs", NULL, &jobs, e);

	json_array_foreach(jobs, i, job) {
		char id[80], type[40];

		if (r || is_over(text_of(job, "status")))
			continue;
		one_line(id, sizeof(id), text_of(job, "id"));
		one_line(type, sizeof(type), text_of(job, "type"));
		r = err_set(e, GW_VM_STATE, EBUSY,
			    "a job is under way in the source VM (\"%s\", %s): wait for its end, or end it (job-cancel; with libvirt virsh blockjob --abort)",
			    id, type);
	}
	return r;
}

int jobs_check(struct qmp *q, struct err *e)
{
	json_auto_t *dump = NULL;
	int r = jobs_check_again(q, e);

	if (!r)
		r = qmp_call(q, "query-dump", NULL, &dump, e);
	if (!r && !strcmp(text_of(dump, "status"), "active"))
		r = err_set(e, GW_VM_STATE, EBUSY, "the source VM's memory is being dumped to a file: wait for that to end (query-dump)");
	return r;
}
