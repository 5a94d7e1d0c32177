// SPDX-License-Identifier: GPL-2.0-only
/*
 * The calls of a session on their way through the workqueue.
 *
 * Everything that may wait for the VM runs there, under session->lock, because it borrows the VM's
 * mm and because a helper that is killed while it waits must be able to go: the job then finishes
 * on its own and is thrown away.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "internal.h"
#include "job.h"

/**
 * struct godwit_job - a call on its way through the workqueue
 * @refs: the caller's, which may be killed, and the worker's
 * @arg: the call's argument: a copy, so that it outlives the caller
 */
struct godwit_job {
	struct work_struct work;
	struct completion done;
	refcount_t refs;
	struct godwit_session *session;
	godwit_job_fn fn;
	int ret;
	u8 arg[] __aligned(8);
};

void godwit_job_put(struct godwit_job *job)
{
	if (refcount_dec_and_test(&job->refs))
		kfree(job);
}

static void job_work(struct work_struct *work)
{
	struct godwit_job *job = container_of(work, struct godwit_job, work);
	struct godwit_session *s = job->session;

	mutex_lock(&s->lock);
	job->ret = s->state == GODWIT_STATE_RETIRING || READ_ONCE(s->vm_gone) ?
		   -EOWNERDEAD : job->fn(s, job->arg);
	mutex_unlock(&s->lock);
	godwit_session_put(s);
	/*
	 * Before the caller goes on, which may unload the module next: a worker that is preempted
	 * here would have it refused. godwit_exit() drains the workqueue, so this function has left
	 * the module's text by then.
	 */
	module_put(THIS_MODULE);
	complete(&job->done);
	godwit_job_put(job);
}

/* Takes a copy of arg. NULL: out of memory. */
struct godwit_job *godwit_job_new(struct godwit_session *s, godwit_job_fn fn, const void *arg,
				  size_t bytes)
{
	struct godwit_job *job = kzalloc(struct_size(job, arg, bytes), GFP_KERNEL_ACCOUNT);

	if (!job)
		return NULL;
	INIT_WORK(&job->work, job_work);
	init_completion(&job->done);
	refcount_set(&job->refs, 1);
	job->session = s;
	job->fn = fn;
	memcpy(job->arg, arg, bytes);
	return job;
}

/* Allocates nothing; drops the caller's reference. -EINTR: caller was killed, the job goes on. */
int godwit_job_run(struct godwit_job *job, void *arg, size_t bytes)
{
	int r;

	refcount_inc(&job->refs);		/* the worker's */
	godwit_session_get(job->session);
	/* A job that hangs in a VMM's locks makes rmmod fail, rather than wait without end. */
	__module_get(THIS_MODULE);
	queue_work(godwit_wq, &job->work);

	r = wait_for_completion_killable(&job->done);
	if (!r) {
		r = job->ret;
		memcpy(arg, job->arg, bytes);
	}
	godwit_job_put(job);
	return r == -ERESTARTSYS ? -EINTR : r;
}

/* Runs fn in the workqueue under s->lock. -ENOMEM also: it did not run. */
int godwit_session_run(struct godwit_session *s, godwit_job_fn fn, void *arg, size_t bytes)
{
	struct godwit_job *job = godwit_job_new(s, fn, arg, bytes);

	return job ? godwit_job_run(job, arg, bytes) : -ENOMEM;
}
