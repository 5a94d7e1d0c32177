/* SPDX-License-Identifier: GPL-2.0-only */
/* Two ends, and what fit/host.h finds. After cmocka.h. */
#ifndef GODWIT_HOST_PAIR_H
#define GODWIT_HOST_PAIR_H

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "fit/host.h"

/* A view of that "host", "cpu" and "ram" (NULL: it does not say where RAM is), in JSON with ' for ", and with 5M for 5 MiB. */
static inline json_t *view(const char *host, const char *cpu, const char *ram)
{
	json_error_t error;
	char in[4096], out[8192], *to = out, *end;
	json_t *v;

	snprintf(in, sizeof(in), "{'host': %s, 'cpu': %s, 'ram': %s}", host, cpu, ram ? ram : "{}");
	for (char *c = in; *c; c++) {
		unsigned long n = isdigit((unsigned char)*c) ? strtoul(c, &end, 10) : 0;

		if (isdigit((unsigned char)*c) && *end == 'M') {
			to += sprintf(to, "%lu", n << 20);
			c = end;
		} else {
			*to++ = *c == '\'' ? '"' : *c;
		}
	}
	*to = '\0';
	v = json_loads(out, 0, &error);
	if (!v)
		fail_msg("%s: %s", error.text, out);
	return v;
}

/**
 * struct pair - two ends
 * @finds: part of the text of the only finding; NULL: there is none
 */
struct pair {
	const char *cpu, *src, *dst;
	enum fit_class class;
	enum fit_severity severity;
	const char *finds;
};

/* here, there: where RAM is, by each end, or NULL. */
static inline void check_places(const struct pair *p, const char *here, const char *there)
{
	json_auto_t *src = view(p->src, p->cpu, here), *dst = view(p->dst, "{'vmx': true, 'tsc-frequency': 1}", there);
	struct findings f = { .rows = NULL };

	host_compare(src, dst, &f);
	if (f.n != (p->finds != NULL))
		fail_msg("%u findings (%s): %s", f.n, f.n ? f.rows[0].text : "", p->dst);
	if (p->finds) {
		assert_int_equal(f.rows[0].class, p->class);
		assert_int_equal(f.rows[0].severity, p->severity);
		if (!strstr(f.rows[0].text, p->finds))
			fail_msg("\"%s\" is not in \"%s\"", p->finds, f.rows[0].text);
	}
	findings_free(&f);
}

static inline void check(const struct pair *p)
{
	check_places(p, NULL, NULL);
}

#define CHECK_ALL(pairs)	do {						\
	for (size_t i = 0; i < sizeof(pairs) / sizeof((pairs)[0]); i++)		\
		check(&(pairs)[i]);						\
} while (0)

/* The source's block of 400 MiB holds 100 of them. */
#define HOLDS_100	"{'ram': {'ram0': {'bytes': 400M, 'allocated': 100M}}}"
/* The destination's file holds so much, on that file system. */
#define RAM(held, fs)	"'ram': {'ram0': {'bytes': 400M, 'allocated': " held ", 'fs': '" fs "'}}"
#define TMPFS(left)									\
	"'fs': {'0:5': {'type': 'tmpfs', 'mount': '/mnt', 'page': 4096, 'size': 900M, 'free': " left "}}"

#endif
