// SPDX-License-Identifier: GPL-2.0-only
#include <math.h>
#include <stdarg.h>

#include "report/svg.h"

/* Okabe and Ito's colours, which people with any colour vision tell apart. */
static const char style[] =
	"text{font-family:'DejaVu Sans',Verdana,Helvetica,Arial,sans-serif;font-size:13px;fill:#222}"
	".title{font-size:22px;font-weight:bold}.head{font-size:15px;font-weight:bold}.note{fill:#555}.right{text-anchor:end}"
	".tick{font-size:12px;fill:#555}.middle{text-anchor:middle}.number{font-size:11px;fill:#777;text-anchor:middle}"
	".page{fill:#fff}.grid{stroke:#ddd}.axis{stroke:#555}.stripe{fill:#f4f4f4}.out{fill:#d55e00;fill-opacity:.22}"
	".sent{fill:#56b4e9;fill-opacity:.75}.dirty{fill:none;stroke:#d55e00;stroke-width:2.5}"
	".link{fill:none;stroke:#222;stroke-width:1.8;stroke-dasharray:6 4}"
	".stop{fill:#999}.harvest{fill:#f0e442}.check{fill:#d55e00}.ram{fill:#56b4e9}"
	".verify{fill:#cc79a7}.save{fill:#009e73}.load{fill:#e69f00}"
	".raw{fill:#bbb}.lz4{fill:#56b4e9}.zstd{fill:#009e73}.zlib{fill:#e69f00}"
	".normal{fill:#56b4e9}.duplicate{fill:#e69f00}.same{fill:#cc79a7}.untouched{fill:#bbb}"
	".reused{fill:#0072b2}";

void xml_text(FILE *f, const char *text)
{
	for (const char *p = text; *p; p++) {
		if (*p == '&')
			fputs("&amp;", f);
		else if (*p == '<')
			fputs("&lt;", f);
		else if (*p == '>')
			fputs("&gt;", f);
		else if (*p == '"')
			fputs("&quot;", f);
		else
			putc((unsigned char)*p < ' ' ? ' ' : *p, f);
	}
}

void svg_begin(FILE *f, double width, double height, const char *title)
{
	fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" role=\"img\">\n", width,
		height, width, height);
	fputs("<title>", f);
	xml_text(f, title);
	fprintf(f, "</title>\n<style>%s</style>\n", style);
	svg_rect(f, "page", 0, 0, width, height);
}

void svg_end(FILE *f)
{
	fputs("</svg>\n", f);
}

void svg_rect(FILE *f, const char *class, double x, double y, double width, double height)
{
	fprintf(f, "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>\n",
		class, x, y, width, height);
}

void svg_line(FILE *f, const char *class, double x1, double y1, double x2, double y2)
{
	fprintf(f, "<path class=\"%s\" d=\"M%.2f %.2fL%.2f %.2f\"/>\n", class, x1, y1, x2, y2);
}

void svg_text(FILE *f, const char *class, double x, double y, const char *fmt, ...)
{
	char text[1200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(f, "<text class=\"%s\" x=\"%.2f\" y=\"%.2f\">", class, x, y);
	xml_text(f, text);
	fputs("</text>\n", f);
}

void axis_fit_exactly(struct axis *a, double max, unsigned int ticks)
{
	double rough = (max > 0 ? max : 1) / ticks, power = pow(10, floor(log10(rough)));
	double digit = rough / power;

	a->step = (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10) * power;
	a->max = max > 0 ? max : 1;
}

void axis_fit(struct axis *a, double max, unsigned int ticks)
{
	axis_fit_exactly(a, max, ticks);
	a->max = ceil(a->max / a->step - 1e-9) * a->step;
}

double axis_at(const struct axis *a, double value)
{
	return a->from + (a->to - a->from) * value / a->max;
}

int axis_decimals(const struct axis *a)
{
	double digits = -floor(log10(a->step) + 1e-9);

	return digits > 0 ? (int)digits : 0;
}
