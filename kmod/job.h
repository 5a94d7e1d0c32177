/* SPDX-License-Identifier: GPL-2.0-only */
/* A session's calls, as jobs: what may wait for the VM. */
#ifndef GODWIT_JOB_H
#define GODWIT_JOB_H

#include <linux/types.h>

struct godwit_job;
struct godwit_session;

typedef int (*godwit_job_fn)(struct godwit_session *s, void *arg);
int godwit_session_run(struct godwit_session *s, godwit_job_fn fn, void *arg, size_t bytes);

/* Its two halves: for a caller that must not be out of memory when it has begun. */
struct godwit_job *godwit_job_new(struct godwit_session *s, godwit_job_fn fn, const void *arg,
				  size_t bytes);
int godwit_job_run(struct godwit_job *job, void *arg, size_t bytes);
/* Of one that does not run. */
void godwit_job_put(struct godwit_job *job);

#endif /* GODWIT_JOB_H */
