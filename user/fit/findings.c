// SPDX-License-Identifier: GPL-2.0-only
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "fit/findings.h"

static const char *const class_names[] = {
	[FIT_MACHINE] = "machine", [FIT_CPU] = "cpu",	[FIT_MEMORY] = "memory",
	[FIT_DEVICE] = "device",   [FIT_DISK] = "disk", [FIT_BACKEND] = "backend",
	[FIT_HOST] = "host",	   [FIT_ROOM] = "room",
};
static_assert(sizeof(class_names) / sizeof(class_names[0]) == FIT_CLASSES, "a class has no name");

const char *fit_class_name(enum fit_class class)
{
	return class_names[class];
}

void findings_add(struct findings *f, enum fit_class class, enum fit_severity severity,
		  const char *fmt, ...)
{
	char text[sizeof(f->rows->text)];
	struct finding *row;
	va_list ap;

	if (severity == FIT_FATAL && f->accepted & (1u << class))
		severity = FIT_WARNING;
	f->nfatal += severity != FIT_WARNING;
	if (!f->rows)
		f->rows = calloc(FINDINGS_MAX, sizeof(*f->rows));
	if (f->n++ >= FINDINGS_MAX || !f->rows)
		return;
	row = &f->rows[f->n - 1];
	*row = (struct finding){ .class = class, .severity = severity };
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	one_line(row->text, sizeof(row->text), text);
}

static int by_severity(const void *a, const void *b)
{
	const struct finding *x = a, *y = b;

	if (x->severity != y->severity)
		return x->severity > y->severity ? -1 : 1;
	if (x->class != y->class)
		return x->class < y->class ? -1 : 1;
	return strcmp(x->text, y->text);
}

unsigned int findings_kept(const struct findings *f)
{
	if (!f->rows)
		return 0;
	return f->n < FINDINGS_MAX ? f->n : FINDINGS_MAX;
}

void findings_sort(struct findings *f)
{
	if (f->rows)
		qsort(f->rows, findings_kept(f), sizeof(*f->rows), by_severity);
}

enum gw_exit finding_exit(const struct finding *row)
{
	return row->class == FIT_ROOM ? GW_NO_ROOM : GW_MISFIT;
}

int findings_verdict(const struct findings *f, struct err *e)
{
	const struct finding *worst = NULL;

	if (!f->nfatal)
		return 0;
	for (unsigned int i = 0; i < findings_kept(f); i++)
		if (!worst || by_severity(&f->rows[i], worst) < 0)
			worst = &f->rows[i];
	if (!worst)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	if (f->nfatal == 1)
		return err_set(e, finding_exit(worst), EINVAL, "%s", worst->text);
	return err_set(e, finding_exit(worst), EINVAL,
		       "%s; and %u more reasons why it does not fit", worst->text, f->nfatal - 1);
}

void findings_free(struct findings *f)
{
	free(f->rows);
	f->rows = NULL;
	f->n = 0;
	f->nfatal = 0;
}

int fit_accept(const char *words, unsigned int *accepted, struct err *e)
{
	*accepted = 0;
	for (const char *at = words; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		size_t len = strcspn(at, ",");
		unsigned int i = 0;

		while (i < FIT_CLASSES &&
		       (strlen(class_names[i]) != len || strncmp(at, class_names[i], len)))
			i++;
		if (i == FIT_CLASSES)
			return err_set(
				e, GW_USAGE, EINVAL,
				"--accept takes machine, cpu, memory, device, disk, backend, host, room, with commas between them, not \"%.*s\"",
				(int)len, at);
		*accepted |= 1u << i;
	}
	return 0;
}
