// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"
#include "check/check_internal.h"

static const char *const result_names[] = {
	[CHECK_OK] = "ok",
	[CHECK_WARNING] = "warning",
	[CHECK_NO] = "no",
	[CHECK_UNKNOWN] = "unknown",
};
static_assert(sizeof(result_names) / sizeof(result_names[0]) == CHECK_RESULTS,
	      "a result has no name");

const char *check_result_name(enum check_result result)
{
	return result_names[result];
}

void check_add(struct check *c, const char *name, enum check_result result, const char *fmt, ...)
{
	struct check_row *row = &c->rows[c->n++];
	char text[sizeof(row->text)];
	va_list ap;

	assert(c->n <= CHECK_ROWS_MAX);
	*row = (struct check_row) { .name = name, .result = result };
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* A text that was cut within a character of UTF-8 would be no JSON: one_line() mends it. */
	one_line(row->text, sizeof(row->text), text);
}

void check_refuse(struct check *c, const char *name, const struct err *e)
{
	check_add(c, name, CHECK_NO, "%s", e->text);
	c->rows[c->n - 1].exit = e->exit;
}

/* Runs one preflight step, of the list that `godwit send` runs as well. */
static void check_step(struct preflight *l, const struct preflight_step *step, struct check *c)
{
	struct err e = { 0 };
	char text[256];

	if (preflight_leaves_out(l, step))
		return;
	if (step->possible && !step->possible(l)) {
		check_add(c, step->name, CHECK_UNKNOWN, "not checked: see above");
		return;
	}
	if (step->run(l, &e)) {
		check_refuse(c, step->name, &e);
		return;
	}
	step->found(l, text, sizeof(text));
	check_add(c, step->name, CHECK_OK, "%s", text);
}

void check_run(const struct check_options *o, struct check *c)
{
	struct migration migration = { .stream = -1 };
	struct vm vm = { .pidfd = -1, .vm_fd = -1 };
	struct private_ram private = { 0 };
	enum devstate_mode mode = MODE_MIGRATE;
	struct qmp *qmp = NULL;
	struct preflight l = {
		.qmp_path = o->qmp_path, .pid = o->pid, .timeout_ms = o->timeout_ms,
		.downtime_limit_ms = o->downtime_limit_ms, .pause = o->pause, .wish = o->wish,
		.qmp = &qmp, .vm = &vm, .migration = &migration, .mode = &mode, .private = &private,
	};

	c->n = 0;
	for (unsigned int i = 0; i < preflight_steps_count; i++)
		check_step(&l, &preflight_steps[i], c);
	check_ram_access(&vm, c);
	check_host(&l, c);
	if (o->tls)
		check_credentials(o->tls, c);
	if (o->addr)
		check_peer(o, &l, c);
	private_ram_free(&private);
	migration_free(&migration);
	vm_close(&vm);
	qmp_close(qmp);
}

enum gw_exit check_verdict(const struct check *c)
{
	for (unsigned int i = 0; i < c->n; i++)
		if (c->rows[i].result == CHECK_NO)
			return c->rows[i].exit;
	return GW_OK;
}
