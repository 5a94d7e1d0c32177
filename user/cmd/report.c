// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"
#include "report/draw.h"
#include "report/json.h"
#include "report/text.h"

static const char usage[] =
	"usage: godwit report [-o FILE] RUN.json\n"
	"\n"
	"Shows the report that \"godwit send --json RUN.json\" has left, of a migration that went well or did not: as text,\n"
	"or as a picture.\n"
	"\n"
	"  -o, --output FILE    FILE.svg: the picture; FILE.html: a page with it and with a table of the rounds\n";

static const struct option options[] = {
	{ "output", required_argument, NULL, 'o' },
	{ "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 }
};

typedef void (*draw_fn)(FILE *f, const struct report *r, const struct err *outcome);

struct report_args {
	const char *run;
	const char *output;
	draw_fn draw;
	bool help;
};

static draw_fn by_suffix(const char *path)
{
	const char *dot = strrchr(path, '.');

	if (dot && !strcmp(dot, ".svg"))
		return report_draw_svg;
	return dot && !strcmp(dot, ".html") ? report_draw_html : NULL;
}

static int parse(struct report_args *a, int argc, char **argv, struct err *e)
{
	int opt;

	while ((opt = getopt_long(argc, argv, "o:", options, NULL)) != -1) {
		if (opt == 'h') {
			a->help = true;
			return 0;
		}
		if (opt != 'o')
			return err_set(e, GW_USAGE, EINVAL, "see \"godwit report --help\"");
		a->output = optarg;
	}
	if (optind + 1 != argc)
		return err_set(e, GW_USAGE, EINVAL, "report needs one RUN.json: see \"godwit report --help\"");
	a->run = argv[optind];
	if (!a->output)
		return 0;
	a->draw = by_suffix(a->output);
	return a->draw ? 0 : err_set(e, GW_USAGE, EINVAL, "report draws FILE.svg or FILE.html, not \"%s\"", a->output);
}

static int draw(const struct report_args *a, const struct saved_report *run, struct err *e)
{
	FILE *f = fopen(a->output, "we");
	int code = f ? 0 : errno;

	if (f) {
		a->draw(f, &run->report, &run->outcome);
		code = ferror(f) ? EIO : 0;
		if (fclose(f) && !code)
			code = errno;
	}
	return code ? err_set(e, GW_USAGE, code, "cannot write %s: %s", a->output, strerror(code)) : 0;
}

int cmd_report(int argc, char **argv)
{
	struct report_args a = { 0 };
	struct saved_report run = { 0 };
	struct err e = { 0 };

	if (parse(&a, argc, argv, &e))
		return cmd_fail(&e);
	if (a.help) {
		fputs(usage, stdout);
		return 0;
	}
	if (!report_read_json(a.run, &run, &e)) {
		if (a.draw) {
			draw(&a, &run, &e);
		} else {
			report_print(stdout, &run.report, &run.outcome);
			if (run.outcome.exit)
				printf("\n%s\n", run.outcome.text);
		}
	}
	saved_report_free(&run);
	return e.exit ? cmd_fail(&e) : 0;
}
