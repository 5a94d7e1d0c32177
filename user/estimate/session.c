// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>

#include "base/clock.h"
#include "estimate/session.h"

#define PATIENCE_MS	5000u

static int session_renew(void *arg, struct err *e)
{
	return foreign_renew(arg, e);
}

int session_open(struct session *s, const struct vm *vm, struct qmp *q, struct err *e)
{
	int r;

	*s = (struct session) { .vm = vm };
	if (q) {
		s->lease = lease_new();
		if (!s->lease)
			return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
		s->watch = (struct foreign_watch) {
			.qmp = q, .timeout_ms = PATIENCE_MS, .lease = s->lease,
		};
		/* Before the log is on: nothing is to be switched off then. */
		r = foreign_renew(&s->watch, e);
		if (r)
			return r;
	}
	r = source_kmod(vm, -1, &s->source, e);
	if (r)
		return r;
	s->source->lease = s->lease;
	s->source->renew = session_renew;
	s->source->renew_arg = &s->watch;
	return 0;
}

void session_close(struct session *s)
{
	struct foreign f = {
		.qmp = s->watch.qmp, .pidfd = s->vm ? s->vm->pidfd : -1,
		.timeout_ms = PATIENCE_MS, .watch = &s->watch,
	};
	bool asks = s->source && s->lease;

	/*
	 * As a sender does that has failed (sender_end_session()), but no guardian would go on
	 * with it: a signal does not end this.
	 */
	if (asks) {
		f.cleared_ns = lease_cleared_ns(s->lease);
		foreign_wait(&f, NULL);
	}
	if (s->source)
		s->source->ops->close(s->source, true);
	if (asks)
		foreign_end_overlap(&f, now_ns());
	lease_free(s->lease);
}
