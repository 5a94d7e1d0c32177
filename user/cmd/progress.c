// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/say.h"
#include "cmd/progress.h"
#include "page/page.h"
#include "report/eta.h"
#include "report/json.h"
#include "report/text.h"

#define REPAINT_NS	200000000ull
#define JSON_NS		500000000ull
#define PLAIN_NS	2000000000ull
#define LINE		256u

int progress_init(struct progress *p, const char *how, struct err *e)
{
	*p = (struct progress) { .fd = STDERR_FILENO };
	if (!how || !strcmp(how, "auto"))
		p->how = isatty(STDERR_FILENO) ? PROGRESS_TERMINAL : PROGRESS_PLAIN;
	else if (!strcmp(how, "plain"))
		p->how = PROGRESS_PLAIN;
	else if (!strcmp(how, "none"))
		p->how = PROGRESS_NONE;
	else if (!strcmp(how, "json"))
		*p = (struct progress) { .how = PROGRESS_JSON, .fd = STDOUT_FILENO };
	else
		return err_set(e, GW_USAGE, EINVAL,
			       "--progress takes auto, plain, json or none, not \"%s\"", how);
	return 0;
}

__attribute__((format(printf, 2, 3)))
static void add(char line[LINE], const char *fmt, ...)
{
	size_t n = strlen(line);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line + n, LINE - n, fmt, ap);
	va_end(ap);
}

static void progress_add_eta(char line[LINE], const struct report *r)
{
	uint64_t ns;

	switch (report_eta(r, &ns)) {
	case ETA_KNOWN:
		add(line, ", ETA %.1f s", (double)ns / 1e9);
		break;
	case ETA_AT_LEAST:
		add(line, ", ETA %.1f s or more", (double)ns / 1e9);
		break;
	case ETA_NEVER:
		add(line, ", does not converge at this rate");
		break;
	case ETA_UNKNOWN:
		break;
	}
}

/* Of the round under way, and the codec that packed most of it. */
static void progress_add_ratio(char line[LINE], const struct report *r)
{
	const struct report_row *row = r->nr_rows ? &r->rows[r->nr_rows - 1] : NULL;
	unsigned int most = 0;

	for (unsigned int i = 1; row && i < REPORT_CODECS; i++)
		if (row->packed_pages[i] > row->packed_pages[most])
			most = i;
	if (row && row->packed_pages[most])
		add(line, ", ratio %.1f by %s", report_ratio(row->data_pages, row->page_bytes),
		    report_codecs[most]);
}

static void progress_add_faults(char line[LINE], const struct report *r)
{
	add(line, ", faults %llu", (unsigned long long)r->postcopy.faults);
	if (r->postcopy.owed_pages)
		add(line, " (%.0f/s)", report_fault_rate(r));
	add(line, ", mean %.1f, p99 %.1f, worst %.1f ms", ns_to_ms(r->postcopy.mean_ns),
	    ns_to_ms(r->postcopy.p99_ns), ns_to_ms(r->postcopy.worst_ns));
}

static void full_line(char line[LINE], const struct report *r)
{
	line[0] = '\0';
	add(line, "%s", r->phase);
	if (r->round)
		add(line, ", round %u", r->round);
	add(line, ": sent %.0f MiB, remaining %.1f MiB, %.1f MiB/s", bytes_to_mib(r->bytes),
	    bytes_to_mib(r->remaining_pages * PAGE_BYTES), bytes_to_mib(r->speed.rate));
	progress_add_ratio(line, r);
	if (r->postcopy.time_ns) {
		progress_add_faults(line, r);
		progress_add_eta(line, r);
		return;
	}
	/* Both are known after the first round. */
	if (r->predicted_ns)
		add(line, ", dirty %.1f MiB/s, downtime %.0f ms",
		    bytes_to_mib(r->dirty_rate * PAGE_BYTES), ns_to_ms(r->predicted_ns));
	if (r->throttle)
		add(line, ", guest slowed by %u %%", r->throttle);
	progress_add_eta(line, r);
}

/*
 * The same for 80 columns and less: sent and remaining, the link's rate and the guest's; what
 * matters most comes first.
 */
static void short_line(char line[LINE], const struct report *r)
{
	line[0] = '\0';
	add(line, "%s %u", r->phase, r->round);
	progress_add_eta(line, r);
	add(line, ": %.0f + %.0f MiB, %.0f", bytes_to_mib(r->bytes),
	    bytes_to_mib(r->remaining_pages * PAGE_BYTES), bytes_to_mib(r->speed.rate));
	if (r->predicted_ns)
		add(line, " - %.0f MiB/s, %.0f ms", bytes_to_mib(r->dirty_rate * PAGE_BYTES),
		    ns_to_ms(r->predicted_ns));
	else
		add(line, " MiB/s");
}

/* A line that is wider than the terminal would wrap, and could not be painted over. */
static void paint(const struct progress *p, const struct report *r)
{
	struct winsize size = { 0 };
	char line[LINE], painted[LINE + 8];
	size_t columns = 80;
	int n;

	if (!ioctl(p->fd, TIOCGWINSZ, &size) && size.ws_col)
		columns = size.ws_col;
	full_line(line, r);
	if (strlen(line) >= columns)
		short_line(line, r);
	n = snprintf(painted, sizeof(painted), "\r%.*s\033[K", (int)(columns - 1), line);
	say_bytes(p->fd, painted, (size_t)n);
}

static bool due(struct progress *p, const struct report *r)
{
	const uint64_t every[] = { [PROGRESS_PLAIN] = PLAIN_NS,
				   [PROGRESS_TERMINAL] = REPAINT_NS,
				   [PROGRESS_JSON] = JSON_NS };
	uint64_t now = now_ns();
	bool changed = p->phase != r->phase || p->round != r->round;

	if (p->how == PROGRESS_NONE || (now < p->next_ns && !(changed && p->how == PROGRESS_JSON)))
		return false;
	p->next_ns = now + every[p->how];
	p->phase = r->phase;
	p->round = r->round;
	return true;
}

/* Return: whether it has a reader. */
static bool progress_show_json(const struct progress *p, const struct report *r)
{
	char *line = report_progress_line(r, NULL);
	int ret = line ? say_bytes(p->fd, line, strlen(line)) : 0;

	free(line);
	return !ret || ret == -EAGAIN;
}

void progress_show(const struct report *r, void *progress)
{
	struct progress *p = progress;
	char line[LINE], whole[LINE + 16];
	int n;

	if (!due(p, r))
		return;
	p->painted = true;
	if (p->how == PROGRESS_JSON) {
		/* Its reader may have gone; the migration goes on. */
		if (!progress_show_json(p, r))
			p->how = PROGRESS_NONE;
	} else if (p->how == PROGRESS_TERMINAL) {
		paint(p, r);
	} else {
		full_line(line, r);
		n = snprintf(whole, sizeof(whole), "godwit: %s\n", line);
		say_bytes(p->fd, whole, (size_t)n);
	}
}

void progress_end(struct progress *p, const struct report *r, const struct err *outcome)
{
	char *line;

	/* No guest waits any more: these wait for their reader. */
	if (p->how == PROGRESS_TERMINAL && p->painted)
		dprintf(p->fd, "\n");
	if (p->how != PROGRESS_JSON)
		return;
	line = report_progress_line(r, outcome);
	if (line)
		dprintf(p->fd, "%s", line);
	free(line);
}
