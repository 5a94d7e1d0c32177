// SPDX-License-Identifier: GPL-2.0-only
/*
 * The table out of "info qom-tree /machine", which has each object's name and type, children below
 * their parents:
 *
 *	/machine (pc-q35-7.2-machine)
 *	  /peripheral (container)
 *	    /net0 (virtio-net-pci)
 *
 * Source: QEMU qom/qom-hmp-cmds.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "qom/qom_internal.h"

struct tree_line {
	size_t depth;
	const char *name, *type;
};

/* A name may hold anything, a type no parenthesis. */
static bool take_line(char *line, struct tree_line *out)
{
	size_t spaces = strspn(line, " "), len = strlen(line);
	char *type;

	if (spaces % 2 || line[spaces] != '/' || line[len - 1] != ')')
		return false;
	line[len - 1] = '\0';
	type = strrchr(line, '(');
	if (!type || !type[1] || type - line < (ptrdiff_t)spaces + 3 || type[-1] != ' ')
		return false;
	type[-1] = '\0';
	*out = (struct tree_line){ spaces / 2, line + spaces + 1, type + 1 };
	return true;
}

/* The first line is /machine; each other is at most one level below the one before. */
static bool take_lines(char *text, struct tree_line *lines, unsigned int *n)
{
	char *save;

	*n = 0;
	for (char *line = strtok_r(text, "\r\n", &save); line;
	     line = strtok_r(NULL, "\r\n", &save)) {
		struct tree_line *l = &lines[*n];

		if (!take_line(line, l))
			return false;
		if (*n ? !l->depth || l->depth > l[-1].depth + 1 : l->depth != 0)
			return false;
		++*n;
	}
	return *n;
}

/* Appends what is directly below that line. */
static int add_children(struct qom *t, uint32_t parent, const struct tree_line *lines,
			unsigned int n, unsigned int line, struct err *e)
{
	unsigned int first = t->n;
	int r = 0;

	for (unsigned int i = line + 1; !r && i < n && lines[i].depth > lines[line].depth; i++) {
		unsigned int before = t->n;

		if (lines[i].depth != lines[line].depth + 1)
			continue;
		r = qom_add(t, parent, lines[i].name, lines[i].type, e);
		if (!r && t->n > before)
			t->o[before].line = i;
	}
	qom_sort(t, first);
	return r;
}

int qom_take_tree(struct qom *t, const char *text, struct err *e)
{
	struct tree_line *lines;
	unsigned int n = 1;
	char *copy = strdup(text);
	int r = 0;

	for (const char *c = text; *c; c++)
		n += *c == '\n';
	lines = calloc(n, sizeof(*lines));
	if (!copy || !lines)
		r = qom_no_memory(e);
	else if (!take_lines(copy, lines, &n))
		r = -EPROTO;
	if (!r)
		r = add_children(t, QOM_ROOT, lines, n, 0, e);
	for (unsigned int i = 0; !r && i < t->n; i++)
		if (!qom_is_further_cpu(t, i))
			r = add_children(t, i, lines, n, t->o[i].line, e);
	free(lines);
	free(copy);
	return r;
}
