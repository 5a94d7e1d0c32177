// SPDX-License-Identifier: GPL-2.0-only
/* What TCP may hold for a connection, at each end. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "fit/host_internal.h"

void host_view_window(const struct host_look *l, bool destination)
{
	const char *name = destination ? "tcp_rmem" : "tcp_wmem";
	char path[PATH_MAX], line[96];
	uint64_t most;

	/* Of the network namespace of this process, in which its connections are. */
	snprintf(path, sizeof(path), "%s/sys/net/ipv4/%s", l->proc, name);
	if (host_read_line(path, line, sizeof(line)) &&
	    sscanf(line, "%*u %*u %" SCNu64, &most) == 1)
		host_set_number(l->host, destination ? "tcp-rmem" : "tcp-wmem", most);
}

void host_window(const json_t *src, const json_t *dst, struct window *w)
{
	if (!host_number(json_object_get(src, "host"), "tcp-wmem", &w->send))
		w->send = 0;
	if (!host_number(json_object_get(dst, "host"), "tcp-rmem", &w->receive))
		w->receive = 0;
}

void host_compare_window(const json_t *src, const json_t *dst, struct window *w,
			 struct findings *f)
{
	char text[400];

	host_window(src, dst, w);
	if (window_lacks(w, text, sizeof(text)))
		findings_add(f, FIT_HOST, FIT_WARNING, "%s", text);
}
