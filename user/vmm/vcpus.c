// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "proc/proc_io.h"
#include "vmm/vcpus.h"

struct vcpu_search {
	struct vcpus *v;
	const json_t *list;
};

/* A thread of QEMU's: is it a vCPU's? */
static int vcpus_take(const char *tasks, const char *tid, void *arg, struct err *e)
{
	struct vcpu_search *s = arg;
	const json_t *cpu;
	pid_t inner = 0;
	size_t i;
	int r = proc_inner_tid(tasks, tid, &inner, e);

	if (r)
		return r;
	json_array_foreach(s->list, i, cpu)
		if (i < VCPUS_MAX &&
		    json_integer_value(json_object_get(cpu, "thread-id")) == inner && inner)
			s->v->tid[i] = (pid_t)strtol(tid, NULL, 10);
	return 0;
}

int vcpus_find(struct qmp *q, pid_t pid, struct vcpus *v, struct err *e)
{
	json_auto_t *list = NULL;
	struct vcpu_search s = { .v = v };
	unsigned int n = 0;
	char proc[32];
	int r = qmp_call(q, "query-cpus-fast", NULL, &list, e);

	*v = (struct vcpus) { .pid = pid };
	s.list = list;
	snprintf(proc, sizeof(proc), "/proc/%d", (int)pid);
	if (!r)
		r = proc_each_thread(proc, vcpus_take, &s, e);
	/* One that was unplugged meanwhile has no thread. */
	for (unsigned int i = 0; i < VCPUS_MAX; i++)
		if (v->tid[i])
			v->tid[n++] = v->tid[i];
	v->n = n;
	return r;
}
