// SPDX-License-Identifier: GPL-2.0-only
#include <stdio.h>
#include <unistd.h>

#include "cmd/progress.h"
#include "io/sock.h"
#include "page/page.h"

#define REPAINT_NS	200000000ull
#define PLAIN_NS	2000000000ull

void progress_init(struct progress *p)
{
	p->terminal = isatty(STDERR_FILENO);
	p->painted = false;
	p->next_ns = 0;
}

void progress_show(const struct report *r, void *progress)
{
	struct progress *p = progress;
	uint64_t now = now_ns();

	if (now < p->next_ns)
		return;
	p->next_ns = now + (p->terminal ? REPAINT_NS : PLAIN_NS);
	fprintf(stderr, "%s%s, round %u: sent %.0f MiB, %.0f MiB/s; pending %.1f MiB, dirty %.1f MiB/s; downtime now %.0f ms%s",
		p->terminal ? "\r\033[K" : "godwit: ", r->phase, r->round, (double)r->bytes / (1 << 20),
		(double)r->rate / (1 << 20), (double)(r->pending_pages * PAGE_BYTES) / (1 << 20),
		(double)(r->dirty_rate * PAGE_BYTES) / (1 << 20), (double)r->predicted_ns / 1e6, p->terminal ? "" : "\n");
	fflush(stderr);
	p->painted = true;
}

void progress_end(struct progress *p)
{
	if (p->terminal && p->painted)
		fputc('\n', stderr);
}
