// SPDX-License-Identifier: GPL-2.0-only
/*
 * There is no list for programs, only x-query-ramblock (since 6.2) with the text that people are shown:
 *
 *	              Block Name    PSize              Offset               Used              Total                HVA  RO
 *	                    ram0    4 KiB  0x0000000000000000 0x0000000010000000 0x0000000010000000 0x00007f2d8fe00000  rw
 *
 * "RO" is how the guest sees it; what has no name does not migrate. Addresses came with 8.0, before named files were told
 * from other shared RAM (8.1). A name has no blanks.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/ramblocks.h"

#define COLUMNS 8	/* the page size is two words */

static const char *const header[] = { "Block", "Name", "PSize", "Offset", "Used", "Total", "HVA", "RO" };

/* Up to COLUMNS + 1 words of a line: how many there are. */
static unsigned int split(char *line, char *word[COLUMNS + 1])
{
	unsigned int n = 0;
	char *save = NULL;

	for (char *w = strtok_r(line, " ", &save); w && n <= COLUMNS; w = strtok_r(NULL, " ", &save))
		word[n++] = w;
	return n;
}

static int parse_header(char *line)
{
	char *word[COLUMNS + 1];
	unsigned int n = split(line, word);

	for (unsigned int i = 0; i < n && i < COLUMNS; i++)
		if (strcmp(word[i], header[i]))
			return -EPROTO;
	if (n == COLUMNS)
		return 0;
	return n == COLUMNS - 2 ? -EOPNOTSUPP : -EPROTO;
}

static int hex(const char *word, uint64_t *v)
{
	int end = 0;

	return strlen(word) == 18 && sscanf(word, "0x%16" SCNx64 "%n", v, &end) == 1 && end == 18 ? 0 : -EPROTO;
}

/* 1: it has no name. */
static int parse_line(char *line, struct ramblock *b)
{
	char *word[COLUMNS + 1];
	unsigned int n = split(line, word);

	if (n == COLUMNS - 1)
		return 1;
	if (n != COLUMNS || strlen(word[0]) > WIRE_NAME_MAX)
		return -EPROTO;
	for (const char *c = word[0]; *c; c++)
		if (*c < '!' || *c > '~')
			return -EPROTO;
	if (hex(word[4], &b->bytes) || hex(word[6], &b->hva) || (strcmp(word[7], "rw") && strcmp(word[7], "ro")))
		return -EPROTO;
	if (!b->bytes || b->hva > UINT64_MAX - b->bytes)
		return -EPROTO;
	strcpy(b->name, word[0]);
	return 0;
}

int ramblocks_parse(char *text, struct ramblocks *all)
{
	char *save = NULL, *line = strtok_r(text, "\r\n", &save);
	int r = line ? parse_header(line) : -EPROTO;

	all->n = 0;
	while (!r && (line = strtok_r(NULL, "\r\n", &save))) {
		if (all->n == RAMBLOCKS_MAX)
			return -E2BIG;
		r = parse_line(line, &all->b[all->n]);
		if (r < 0)
			return r;
		if (!r && ramblocks_find(all, all->b[all->n].name))
			return -EPROTO;
		all->n += !r;
		r = 0;
	}
	return r;
}

void ramblocks_sizes(const char *text, struct ramblocks *all)
{
	all->n = 0;
	for (const char *line = text; *line && all->n < RAMBLOCKS_MAX; line += strcspn(line, "\n"), line += *line == '\n') {
		struct ramblock *b = &all->b[all->n];

		static_assert(WIRE_NAME_MAX == 255, "the width below");
		/* What has no name begins with its page size. */
		if (sscanf(line, " %255s %*u %*s 0x%*x 0x%" SCNx64, b->name, &b->bytes) == 2)
			all->n++;
	}
}

int ramblocks_text(struct qmp *q, char **text, struct err *e)
{
	json_auto_t *ret = NULL;
	struct err refused = { 0 };
	const char *said;
	int r = qmp_call(q, "x-query-ramblock", NULL, &ret, &refused);

	*text = NULL;
	if (r && refused.exit != GW_QMP) {
		*e = refused;
		return r;
	}
	said = r ? "" : json_string_value(json_object_get(ret, "human-readable-text"));
	*text = strdup(said ? said : "?");
	return *text ? 0 : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
}

int ramblocks_read(const char *text, struct ramblocks *all, bool *told, struct err *e)
{
	char *copy = strdup(text);
	int r;

	*told = false;
	if (!copy)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	r = *copy ? ramblocks_parse(copy, all) : -EOPNOTSUPP;
	free(copy);
	*told = !r;
	if (r == -EPROTO)
		return err_set(e, GW_NOT_QEMU, EPROTO, "x-query-ramblock: a list that makes no sense: is this QEMU's own QMP socket?");
	if (r == -E2BIG)
		return err_set(e, GW_VM_STATE, E2BIG, "QEMU has more than %u blocks of RAM: unplug some devices", RAMBLOCKS_MAX);
	return 0;
}

int ramblocks_query(struct qmp *q, struct ramblocks *all, bool *told, struct err *e)
{
	char *text;
	int r = ramblocks_text(q, &text, e);

	*told = false;
	if (!r)
		r = ramblocks_read(text, all, told, e);
	free(text);
	return r;
}

bool ramblocks_is(const char *block, const char *name)
{
	static const char old[] = "/objects/";

	return !strcmp(block, name) || (!strncmp(block, old, sizeof(old) - 1) && !strcmp(block + sizeof(old) - 1, name));
}

const struct ramblock *ramblocks_find(const struct ramblocks *all, const char *name)
{
	for (unsigned int i = 0; i < all->n; i++)
		if (ramblocks_is(all->b[i].name, name))
			return &all->b[i];
	return NULL;
}
