// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cmd/cmd.h"
#include "report/draw.h"
#include "report/json.h"
#include "report/text.h"

typedef void (*draw_fn)(FILE *f, const struct report *r, const struct err *outcome);

struct report_args {
	const char *run;
	const char *output;
	draw_fn draw;
};

static draw_fn report_by_suffix(const char *path)
{
	const char *dot = strrchr(path, '.');

	if (dot && !strcmp(dot, ".svg"))
		return report_draw_svg;
	return dot && !strcmp(dot, ".html") ? report_draw_html : NULL;
}

static const struct cmd_option report_options[] = {
	{
		"output", 'o', .value = "FILE",
		.set = cmd_set_text, .offset = offsetof(struct report_args, output),
		.help = "write to FILE, and no text: a picture if its name ends in .svg, a page "
			"with the picture and a table of the rounds if it ends in .html",
		.more = "The page needs no other file.",
	},
};

static const struct cmd_group report_groups[] = {
	{ "Options", CMD_ROWS(report_options) },
	CMD_HELP,
	{ NULL }
};

static int report_parse(struct report_args *a, int argc, char **argv, struct err *e)
{
	int r = cmd_parse(&cmd_report, argc, argv, a, e);

	if (r || !a->output)
		return r;
	a->draw = report_by_suffix(a->output);
	if (a->draw)
		return 0;
	return err_set(e, GW_USAGE, EINVAL, "--output takes FILE.svg or FILE.html, not \"%s\"",
		       a->output);
}

static int report_draw(const struct report_args *a, const struct report_file *run, struct err *e)
{
	FILE *f = fopen(a->output, "we");
	int code = f ? 0 : errno;

	if (f) {
		a->draw(f, &run->report, &run->outcome);
		code = ferror(f) ? EIO : 0;
		if (fclose(f) && !code)
			code = errno;
	}
	if (!code)
		return 0;
	return err_set(e, GW_USAGE, code, "cannot write %s: %s", a->output, strerror(code));
}

static int report_main(int argc, char **argv)
{
	struct report_args a = { 0 };
	struct report_file run = { 0 };
	struct err e = { 0 };

	if (report_parse(&a, argc, argv, &e))
		return cmd_fail(&e);
	if (!report_read_json(a.run, &run, &e)) {
		if (a.draw) {
			report_draw(&a, &run, &e);
		} else {
			report_print(stdout, &run.report, &run.outcome);
			if (run.outcome.exit)
				printf("\n%s\n", run.outcome.text);
		}
	}
	report_file_free(&run);
	return cmd_fail(&e);
}

const struct command cmd_report = {
	"report", "show what a migration did, as text or as a picture",
	.usage = "[options] RUN.json",
	.about = "Shows the report that \"godwit send --json RUN.json\" has left, of a migration "
		"that went well or did not.",
	.operand = "RUN.json", .operand_at = offsetof(struct report_args, run),
	.groups = report_groups, .reports = true, .main = report_main,
};
