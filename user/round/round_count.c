// SPDX-License-Identifier: GPL-2.0-only
#include "round/ram_frame.h"

void round_count_add(struct round_count *sum, const struct round_count *more)
{
	sum->data_pages += more->data_pages;
	sum->zero_pages += more->zero_pages;
	sum->same_pages += more->same_pages;
	sum->page_bytes += more->page_bytes;
	for (unsigned int i = 0; i < CODECS; i++)
		sum->packed_pages[i] += more->packed_pages[i];
	sum->delta_pages += more->delta_pages;
	sum->delta_bytes += more->delta_bytes;
	sum->unchanged_pages += more->unchanged_pages;
	sum->reused_pages += more->reused_pages;
	sum->reused_bytes += more->reused_bytes;
}

void round_count_subtract(struct round_count *from, const struct round_count *part)
{
	from->data_pages -= part->data_pages;
	from->zero_pages -= part->zero_pages;
	from->same_pages -= part->same_pages;
	from->page_bytes -= part->page_bytes;
	from->delta_pages -= part->delta_pages;
	from->delta_bytes -= part->delta_bytes;
	from->unchanged_pages -= part->unchanged_pages;
	from->reused_pages -= part->reused_pages;
	from->reused_bytes -= part->reused_bytes;
	for (unsigned int i = 0; i < CODECS; i++)
		from->packed_pages[i] -= part->packed_pages[i];
}

double round_count_page(const struct round_count *c)
{
	const uint64_t pages = c->data_pages + c->unchanged_pages;

	if (!pages)
		return 0;
	return (double)(c->page_bytes ? c->page_bytes : 1) / (double)pages;
}
