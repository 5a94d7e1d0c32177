// SPDX-License-Identifier: GPL-2.0-only
/* What `godwit estimate` says: for people, or as JSON. */
#include <jansson.h>
#include <stdio.h>

#include "cmd/estimate_print.h"
#include "page/page.h"

static double estimate_mib(double bytes)
{
	return bytes / (1 << 20);
}

/* Pages per second, each counted once in it. */
static double estimate_dirty_rate(const struct curve *c)
{
	return curve_pages(c, 1000000000);
}

static double estimate_working_set(const struct curve *c)
{
	return c->points[c->n - 1].pages;
}

void estimate_print(const struct estimate_in *in, const struct reusable_state *reuse,
		    const struct estimate *out)
{
	const struct curve *c = in->curve;
	char codec[CODEC_TEXT];

	printf("dirty rate      %10.1f MiB/s  (%llu pages of %llu were watched)\n",
	       estimate_mib(estimate_dirty_rate(c) * PAGE_BYTES),
	       (unsigned long long)c->sample_pages, (unsigned long long)c->total_pages);
	printf("working set     %10.1f MiB    written in %.1f s\n",
	       estimate_mib(estimate_working_set(c) * PAGE_BYTES),
	       (double)c->points[c->n - 1].ns / 1e9);
	printf("allocated       %10.1f MiB    of it %.1f MiB zeros, %.1f MiB of another byte\n",
	       estimate_mib((double)in->content.allocated_pages * PAGE_BYTES),
	       estimate_mib((double)in->content.zero_pages * PAGE_BYTES),
	       estimate_mib((double)in->content.same_pages * PAGE_BYTES));
	if (reuse->entries || reuse->left_out)
		printf("reused          %10.1f MiB    as references of %.2f MiB, to %llu pages (%llu left out)\n",
		       estimate_mib((double)in->content.reused_pages * PAGE_BYTES),
		       estimate_mib((double)out->reused_bytes),
		       (unsigned long long)reuse->entries, (unsigned long long)reuse->left_out);
	printf("link            %10.1f MiB/s", estimate_mib((double)in->rate));
	if (in->loss.share > 0)
		printf("  of the segments %.3f %% are lost, which adds %.0f ms to the downtime",
		       100 * in->loss.share, (double)out->loss_ns / 1e6);
	putchar('\n');
	printf("compression     %10.2f         as %s, by a sample\n", PAGE_BYTES / out->page_bytes,
	       codec_text(&out->choice, codec));
	if (out->converges)
		printf("total time      %10.1f s      in %u rounds\ndowntime        %10.0f ms\nto be sent      %10.1f MiB\n",
		       (double)out->total_ns / 1e9, out->rounds, (double)out->downtime_ns / 1e6,
		       estimate_mib((double)out->bytes));
	else
		printf("it would not end: after %u rounds and %.1f s the guest would have to stand still for %.0f ms (limit %.0f ms): raise --downtime-limit, use a faster link, or reduce the guest's write load\n"
		       "by post-copy it would stand still for %.0f ms, and have all of its RAM after %.1f s, %.1f s of them at the destination\n",
		       out->rounds, (double)out->total_ns / 1e9, (double)out->downtime_ns / 1e6,
		       (double)in->limit_ns / 1e6, (double)out->postcopy.downtime_ns / 1e6,
		       (double)out->postcopy.total_ns / 1e9, (double)out->postcopy.after_ns / 1e9);
}

void estimate_print_json(const struct estimate_in *in, const struct reusable_state *reuse,
			 const struct estimate *out)
{
	char codec[CODEC_TEXT];
	json_t *j = json_pack(
		"{s:b, s:i, s:f, s:f, s:I, s:I, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:s, s:f}",
		"converges", out->converges, "rounds", (int)out->rounds, "total-time",
		(double)out->total_ns / 1e6, "expected-downtime", (double)out->downtime_ns / 1e6,
		"transferred", (json_int_t)out->bytes, "pending-pages",
		(json_int_t)out->pending_pages, "dirty-pages-per-second",
		estimate_dirty_rate(in->curve), "working-set-pages",
		estimate_working_set(in->curve), "pages", (json_int_t)in->curve->total_pages,
		"sample-pages", (json_int_t)in->curve->sample_pages, "allocated-pages",
		(json_int_t)in->content.allocated_pages, "zero-pages",
		(json_int_t)in->content.zero_pages, "same-byte-pages",
		(json_int_t)in->content.same_pages, "reused-pages",
		(json_int_t)in->content.reused_pages, "reused-bytes",
		(json_int_t)out->reused_bytes, "bytes-per-second", (json_int_t)in->rate,
		"round-trip-ms", (double)in->rtt_ns / 1e6, "loss", in->loss.share,
		"expected-loss", (double)out->loss_ns / 1e6, "compress",
		codec_text(&out->choice, codec), "bytes-per-page", out->page_bytes);
	json_t *points = json_array();

	for (unsigned int i = 0; i < in->curve->n; i++)
		json_array_append_new(points, json_pack("{s:f, s:f}", "ms",
							(double)in->curve->points[i].ns / 1e6,
							"pages", in->curve->points[i].pages));
	json_object_set_new(j, "written", points);
	json_object_set_new(
		j, "postcopy",
		json_pack("{s:f, s:f, s:f, s:I}", "total-time",
			  (double)out->postcopy.total_ns / 1e6, "expected-downtime",
			  (double)out->postcopy.downtime_ns / 1e6, "time",
			  (double)out->postcopy.after_ns / 1e6, "owed",
			  (json_int_t)(out->postcopy.owed_pages * PAGE_BYTES)));
	json_object_set_new(j, "reuse",
			    json_pack("{s:I, s:I, s:f, s:I}", "entries", (json_int_t)reuse->entries,
				      "left-out", (json_int_t)reuse->left_out, "index-time",
				      (double)reuse->ns / 1e6, "memory",
				      (json_int_t)reuse->memory));
	json_dumpf(j, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	putchar('\n');
	json_decref(j);
}
