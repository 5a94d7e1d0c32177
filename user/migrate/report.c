// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <jansson.h>
#include <stdio.h>

#include "migrate/report.h"
#include "page/page.h"

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

static double mib(uint64_t bytes)
{
	return (double)bytes / (1 << 20);
}

void report_print(const struct report *r, const struct err *e)
{
	if (e->exit != GW_OK) {
		printf("not migrated (%s) in phase \"%s\", round %u\n", gw_exit_name(e->exit), r->phase, r->round);
		return;
	}
	printf("migrated%s\n", r->verified ? ", all RAM verified" : "");
	printf("  total time      %10.1f ms\n", ms(r->total_ns));
	if (r->guest_was_paused)
		printf("  downtime        the guest was paused before and is paused there\n");
	else
		printf("  downtime        %10.1f ms  (+/- %.1f ms, predicted %.1f ms)\n", ms(r->downtime_ns),
		       ms(r->clock_error_ns), ms(r->predicted_ns));
	printf("    stop %.1f, harvest %.1f, RAM %.1f, verify %.1f, device state and resume %.1f ms\n",
	       ms(r->blackout.stop_ns), ms(r->blackout.harvest_ns), ms(r->blackout.ram_ns), ms(r->blackout.verify_ns),
	       ms(r->blackout.device_ns));
	printf("  rounds          %10u  (%u streams)\n", r->round, r->streams);
	printf("  RAM             %10.1f MiB in %llu pages\n", mib(r->total_pages * PAGE_BYTES),
	       (unsigned long long)r->total_pages);
	printf("  pages sent      %10llu\n", (unsigned long long)r->data_pages);
	printf("  pages zero      %10llu\n", (unsigned long long)r->zero_pages);
	printf("  never touched   %10llu\n", (unsigned long long)r->untouched_pages);
	printf("  dirty rate      %10llu pages/s\n", (unsigned long long)r->dirty_rate);
	printf("  sent            %10.1f MiB, of it %.1f MiB device state\n", mib(r->bytes), mib(r->device_bytes));
}

int report_write_json(const char *path, const struct report *r, const struct err *outcome, struct err *e)
{
	json_t *j = json_pack("{s:s, s:i, s:s, s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b}",
			      "status", gw_exit_name(outcome->exit), "exit", (int)outcome->exit, "message", outcome->text,
			      "phase", r->phase, "streams", (int)r->streams, "rounds", (int)r->round, "total-ms", ms(r->total_ns),
			      "downtime-ms", ms(r->downtime_ns), "clock-error-ms", ms(r->clock_error_ns),
			      "predicted-downtime-ms", ms(r->predicted_ns), "pages", (json_int_t)r->total_pages,
			      "pages-sent", (json_int_t)r->data_pages, "pages-zero", (json_int_t)r->zero_pages,
			      "pages-untouched", (json_int_t)r->untouched_pages,
			      "dirty-pages-per-second", (json_int_t)r->dirty_rate, "bytes", (json_int_t)r->bytes,
			      "device-bytes", (json_int_t)r->device_bytes, "verified", r->verified,
			      "guest-was-paused", r->guest_was_paused);
	json_t *parts = json_pack("{s:f, s:f, s:f, s:f, s:f}", "stop-ms", ms(r->blackout.stop_ns), "harvest-ms",
				  ms(r->blackout.harvest_ns), "ram-ms", ms(r->blackout.ram_ns), "verify-ms",
				  ms(r->blackout.verify_ns), "device-ms", ms(r->blackout.device_ns));
	int failed = !j || !parts || json_object_set_new(j, "blackout", parts) ||
		     json_dump_file(j, path, JSON_INDENT(2) | JSON_REAL_PRECISION(9));

	json_decref(j);
	return failed ? err_set(e, GW_INTERNAL, EIO, "cannot write the report to %s: is it a directory that can be written to?",
				path) : 0;
}
