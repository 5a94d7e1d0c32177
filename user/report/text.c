// SPDX-License-Identifier: GPL-2.0-only
#include "page/page.h"
#include "plan/link.h"
#include "report/text.h"
#include "wire/wire.h"

#define TAIL_ROWS	20u	/* how many of the last rows are printed */

double report_row_sent(const struct report_row *row)
{
	double ns = (double)(row->end_ns - row->start_ns);

	return row->end_ns > row->start_ns ? (double)row->bytes * 1e9 / ns : 0;
}

double report_ratio(uint64_t pages, uint64_t bytes)
{
	return bytes ? (double)(pages * PAGE_BYTES) / (double)bytes : 1;
}

double report_fault_rate(const struct report *r)
{
	if (!r->postcopy.owed_pages || !r->postcopy.time_ns)
		return 0;
	return (double)r->postcopy.faults / ns_to_seconds(r->postcopy.time_ns);
}

void report_summary(const struct report *r, const struct err *outcome, char text[REPORT_SUMMARY])
{
	if (outcome->exit == GW_OK)
		snprintf(text, REPORT_SUMMARY, "migrated%s", r->verified ? ", all RAM verified" : "");
	else
		snprintf(text, REPORT_SUMMARY, "not migrated (%s) in phase \"%.24s\", round %u",
			 gw_exit_name(outcome->exit), r->phase, r->round);
}

static void report_print_downtime(FILE *f, const struct report *r)
{
	if (r->guest_was_paused)
		fputs("  Total downtime      the guest was paused and is paused at the destination\n", f);
	else
		fprintf(f, "  Total downtime    %10.1f ms   (+/- %.1f ms)\n",
			ns_to_ms(r->downtime_ns), ns_to_ms(r->clock_error_ns));
	fprintf(f,
		"    stop %.1f, harvest %.1f, check %.1f, RAM %.1f, verify %.1f, device state: save %.1f, load and resume %.1f ms\n",
		ns_to_ms(r->blackout.stop_ns), ns_to_ms(r->blackout.harvest_ns),
		ns_to_ms(r->blackout.check_ns), ns_to_ms(r->blackout.ram_ns),
		ns_to_ms(r->blackout.verify_ns), ns_to_ms(r->blackout.save_ns),
		ns_to_ms(r->blackout.load_ns));
}

static void report_print_postcopy(FILE *f, const struct report *r)
{
	if (!r->postcopy.owed_pages)
		return;
	fprintf(f, "  Post-copy         %10.1f ms   (%.1f MiB came after the guest)\n",
		ns_to_ms(r->postcopy.time_ns), bytes_to_mib(r->postcopy.owed_pages * PAGE_BYTES));
	fprintf(f, "    page faults %llu (%.0f/s), asked for %llu: mean %.2f, p99 %.2f, worst %.2f ms\n",
		(unsigned long long)r->postcopy.faults, report_fault_rate(r),
		(unsigned long long)r->postcopy.asked, ns_to_ms(r->postcopy.mean_ns),
		ns_to_ms(r->postcopy.p99_ns), ns_to_ms(r->postcopy.worst_ns));
}

static void report_print_pages(FILE *f, const char *label, uint64_t pages)
{
	fprintf(f, "  %-16s  %10llu pages  %10.1f MiB\n", label, (unsigned long long)pages,
		bytes_to_mib(pages * PAGE_BYTES));
}

static void report_print_rows(FILE *f, const struct report *r)
{
	unsigned int skip = r->nr_rows > TAIL_ROWS ? r->nr_rows - TAIL_ROWS : 0;

	if (!r->nr_rows)
		return;
	fputs("\n     Round   Time ms  Sent MiB     MiB/s   Ratio  Dirty MiB/s  Remaining MiB  Expected ms\n", f);
	if (skip)
		fprintf(f, "  (the JSON report has %u earlier lines)\n", skip);
	for (unsigned int i = skip; i < r->nr_rows; i++) {
		const struct report_row *row = &r->rows[i];
		char name[32];

		snprintf(name, sizeof(name), row->count > 1 ? "%u-%u" : "%u", row->first,
			 row->first + row->count - 1);
		fprintf(f, "%10s%10.1f%10.1f%10.1f%8.2f", name,
			ns_to_ms(row->end_ns - row->start_ns), bytes_to_mib(row->bytes),
			report_row_sent(row) / (1 << 20),
			report_ratio(row->data_pages, row->page_bytes));
		if (row->blackout)
			fputs("  in the blackout\n", f);
		else if (row->late)
			fprintf(f, "%13s%15.1f%13s\n", "", bytes_to_mib(row->pending_pages * PAGE_BYTES),
				"late");
		else
			fprintf(f, "%13.1f%15.1f%13.1f\n",
				bytes_to_mib(row->dirty_rate * PAGE_BYTES),
				bytes_to_mib(row->pending_pages * PAGE_BYTES),
				ns_to_ms(row->predicted_ns));
	}
}

/* What the pages with data took on the link, and how many of them each codec packed. */
static void report_print_packed(FILE *f, const struct report *r)
{
	if (!r->packed_pages[0] && !r->packed_pages[1] && !r->packed_pages[2])
		return;
	fprintf(f, "  Compression ratio %10.2f      (%.1f MiB of pages as %.1f MiB:",
		report_ratio(r->data_pages, r->page_bytes),
		bytes_to_mib(r->data_pages * PAGE_BYTES), bytes_to_mib(r->page_bytes));
	for (unsigned int i = 0; i < REPORT_CODECS; i++)
		if (r->packed_pages[i])
			fprintf(f, " %s %.0f %%", report_codecs[i],
				100 * (double)r->packed_pages[i] / (double)r->data_pages);
	fputs(")\n", f);
}

/* What of the pages that were sent again had changed. */
static void report_print_delta(FILE *f, const struct report *r)
{
	if (r->delta_pages)
		fprintf(f, "  Pages in part     %10llu pages  %10.1f MiB  (of it sent: %.1f MiB)\n",
			(unsigned long long)r->delta_pages,
			bytes_to_mib(r->delta_pages * PAGE_BYTES), bytes_to_mib(r->delta_bytes));
	if (r->unchanged_pages)
		report_print_pages(f, "Unchanged pages", r->unchanged_pages);
}

/* What the receiver had in a file, and what that saved. */
static void report_print_reused(FILE *f, const struct report *r)
{
	if (!r->reuse.entries && !r->reused_pages)
		return;
	fprintf(f, "  Reused pages      %10llu pages  %10.1f MiB  (as references of %.1f MiB)\n",
		(unsigned long long)r->reused_pages, bytes_to_mib(r->reused_pages * PAGE_BYTES),
		bytes_to_mib(r->reused_bytes));
	fprintf(f, "    of %llu that the receiver has in a file, read in %.1f ms; left out there %llu, memory here %.1f MiB\n",
		(unsigned long long)r->reuse.entries, ns_to_ms(r->reuse.index_ns),
		(unsigned long long)r->reuse.left_out, bytes_to_mib(r->reuse.memory));
	if (r->reuse.refused_pages)
		report_print_pages(f, "Refused there", r->reuse.refused_pages);
}

static void report_print_image(FILE *f, const struct report *r)
{
	if (*r->image.state)
		fprintf(f, "  Image at the source %8s   (%.1f MiB in %.1f ms)\n", r->image.state,
			bytes_to_mib(r->image.bytes), ns_to_ms(r->image.time_ns));
}

static void report_print_expected(FILE *f, const struct report *r)
{
	if (!r->predicted_ns)
		return;
	fprintf(f, "  Expected downtime %10.1f ms   (limit %.0f ms", ns_to_ms(r->predicted_ns),
		ns_to_ms(r->limit_ns));
	if (ns_to_ms(r->link.loss_ns) >= 0.1)
		fprintf(f, "; of it %.1f ms for what the link loses", ns_to_ms(r->link.loss_ns));
	fputs(")\n", f);
}

/* A stream waits for a window that is full when it could send: now and then is no trouble. */
static bool report_was_held_up(const struct report_link *l, uint64_t full_ns)
{
	return full_ns > l->busy_ns / 4;
}

/* Only what is worth a word. */
static void report_print_link(FILE *f, const struct report *r)
{
	const struct report_link *l = &r->link;
	/* Where packets are lost the rate of a connection falls with the round trip. */
	bool more = link_is_long(l->rtt_ns) && r->streams < WIRE_STREAMS_MAX;

	if (l->again)
		fprintf(f, "  Segments resent   %10llu      (%.2f %% of those that rounds sent; round trip %.1f ms%s)\n",
			(unsigned long long)l->again,
			100 * (double)l->again / (double)l->segments, ns_to_ms(l->rtt_ns),
			more ? "; more --streams may carry more" : "");
	if (report_was_held_up(l, l->window_ns))
		fprintf(f, "  Window full       %10.1f ms   (of %.1f ms that a stream sent: the receiver reads more slowly than the link carries, or its host's net.ipv4.tcp_rmem is too small)\n",
			ns_to_ms(l->window_ns), ns_to_ms(l->busy_ns));
	if (report_was_held_up(l, l->buffer_ns))
		fprintf(f, "  Buffer full       %10.1f ms   (of %.1f ms that a stream sent: this host's net.ipv4.tcp_wmem is too small)\n",
			ns_to_ms(l->buffer_ns), ns_to_ms(l->busy_ns));
}

void report_print(FILE *f, const struct report *r, const struct err *outcome)
{
	char summary[REPORT_SUMMARY];

	report_summary(r, outcome, summary);
	fprintf(f, "%s\n", summary);
	fprintf(f, "  Time elapsed      %10.1f ms   (setup %.1f ms)\n", ns_to_ms(r->total_ns),
		ns_to_ms(r->setup_ns));
	if (outcome->exit == GW_OK)
		report_print_downtime(f, r);
	report_print_postcopy(f, r);
	report_print_expected(f, r);
	report_print_link(f, r);
	fprintf(f, "  Iteration         %10u      (streams: %u)\n", r->round, r->streams);
	fprintf(f, "  Data processed    %10.1f MiB  (of it %.1f MiB device state%s)\n",
		bytes_to_mib(r->bytes), bytes_to_mib(r->device_bytes),
		r->save_mode ? ", save mode" : "");
	if (r->encrypted)
		fprintf(f, "  Encrypted           TLS 1.3   (%s, by %s)\n", r->cipher,
			r->kernel_tls ? "the kernel" : "GnuTLS");
	if (r->throttled_ns)
		fprintf(f, "  Guest slowed by   %10u %%     (each vCPU stood still for %.1f ms)\n",
			r->throttle, ns_to_ms(r->throttled_ns));
	if (r->reconnects)
		fprintf(f, "  Reconnected       %10u      times\n", r->reconnects);
	if (r->zero_copies)
		fprintf(f, "  Zero-copy sends   %10llu      (copied by the kernel: %llu)\n",
			(unsigned long long)r->zero_copies,
			(unsigned long long)r->zero_copies_copied);
	if (outcome->exit != GW_OK)
		fprintf(f, "  Memory remaining  %10.1f MiB\n",
			bytes_to_mib(r->remaining_pages * PAGE_BYTES));
	fprintf(f, "  Memory bandwidth  %10.1f MiB/s\n", bytes_to_mib(r->speed.rate));
	fprintf(f, "  Dirty rate        %10llu pages/s\n", (unsigned long long)r->dirty_rate);
	report_print_pages(f, "Memory total", r->total_pages);
	report_print_pages(f, "Normal pages", r->data_pages);
	report_print_pages(f, "Constant pages", r->zero_pages);
	if (r->same_pages)
		report_print_pages(f, "One-byte pages", r->same_pages);
	report_print_pages(f, "Untouched pages", r->untouched_pages);
	report_print_delta(f, r);
	report_print_reused(f, r);
	report_print_packed(f, r);
	report_print_image(f, r);
	report_print_rows(f, r);
}
