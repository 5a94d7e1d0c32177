// SPDX-License-Identifier: GPL-2.0-only
/*
 * QMP has no structured list, only x-query-ramblock (since 6.2) with the human monitor's
 * text (here in two parts):
 *
 *	Block Name    PSize              Offset               Used              Total  ...
 *	      ram0    4 KiB  0x0000000000000000 0x0000000010000000 0x0000000010000000  ...
 *
 *	                HVA  RO
 *	 0x00007f2d8fe00000  rw
 *
 * "RO" is how the guest sees the block; a block without a name does not migrate. A name has no
 * blanks. The addresses came with 8.0: for an older QEMU see ramblock_locate.c.
 */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "vmm/ramblocks.h"

#define COLUMNS		8	/* the page size is two words */
#define COLUMNS_OLD	6	/* before the addresses */

static const char *const header[] = {
	"Block", "Name", "PSize", "Offset", "Used", "Total", "HVA", "RO",
};

/* Cuts a line into words, up to COLUMNS + 1. Return: how many. */
static unsigned int ramblocks_split(char *line, char *word[COLUMNS + 1])
{
	unsigned int n = 0;
	char *save = NULL;

	for (char *w = strtok_r(line, " ", &save); w && n <= COLUMNS; w = strtok_r(NULL, " ", &save))
		word[n++] = w;
	return n;
}

/* Return: how many columns the list has, or -EPROTO. */
static int ramblocks_parse_header(char *line)
{
	char *word[COLUMNS + 1];
	unsigned int n = ramblocks_split(line, word);

	for (unsigned int i = 0; i < n && i < COLUMNS; i++)
		if (strcmp(word[i], header[i]))
			return -EPROTO;
	return n == COLUMNS || n == COLUMNS_OLD ? (int)n : -EPROTO;
}

static int ramblocks_parse_hex(const char *word, uint64_t *v)
{
	int end = 0;

	if (strlen(word) != 18 || sscanf(word, "0x%16" SCNx64 "%n", v, &end) != 1 || end != 18)
		return -EPROTO;
	return 0;
}

/* 0 and a block, 1: the block has no name, -EPROTO. */
static int ramblocks_parse_line(char *line, unsigned int columns, struct ramblock *b)
{
	char *word[COLUMNS + 1];
	unsigned int n = ramblocks_split(line, word);

	if (n == columns - 1)
		return 1;
	if (n != columns || strlen(word[0]) > WIRE_NAME_MAX)
		return -EPROTO;
	for (const char *c = word[0]; *c; c++)
		if (*c < '!' || *c > '~')
			return -EPROTO;
	*b = (struct ramblock) { 0 };
	if (ramblocks_parse_hex(word[3], &b->offset) || ramblocks_parse_hex(word[4], &b->bytes) ||
	    ramblocks_parse_hex(word[5], &b->max))
		return -EPROTO;
	if (n == COLUMNS && (ramblocks_parse_hex(word[6], &b->hva) ||
			     (strcmp(word[7], "rw") && strcmp(word[7], "ro"))))
		return -EPROTO;
	if (!b->bytes || b->bytes > b->max || b->hva > UINT64_MAX - b->max)
		return -EPROTO;
	strcpy(b->name, word[0]);
	return 0;
}

int ramblocks_parse(char *text, struct ramblocks *all)
{
	char *save = NULL, *line = strtok_r(text, "\r\n", &save);
	int columns = line ? ramblocks_parse_header(line) : -EPROTO, r;

	all->n = 0;
	if (columns < 0)
		return columns;
	while ((line = strtok_r(NULL, "\r\n", &save))) {
		if (all->n == RAMBLOCKS_MAX)
			return -E2BIG;
		r = ramblocks_parse_line(line, (unsigned int)columns, &all->b[all->n]);
		if (r < 0)
			return r;
		if (!r && ramblocks_find(all, all->b[all->n].name))
			return -EPROTO;
		all->n += !r;
	}
	return columns == COLUMNS_OLD;
}

void ramblocks_sizes(const char *text, struct ramblocks *all)
{
	const char *line = text;

	all->n = 0;
	while (*line && all->n < RAMBLOCKS_MAX) {
		struct ramblock *b = &all->b[all->n];

		static_assert(WIRE_NAME_MAX == 255, "the width below");
		/*
		 * The line of a block without a name begins with the page size, and does not match.
		 */
		if (sscanf(line, " %255s %*u %*s 0x%*x 0x%" SCNx64, b->name, &b->bytes) == 2)
			all->n++;
		line += strcspn(line, "\n");
		line += *line == '\n';
	}
}

int ramblocks_text(struct qmp *q, char **text, struct err *e)
{
	json_auto_t *ret = NULL;
	struct err own = { 0 };
	const char *list;
	int r = qmp_call(q, "x-query-ramblock", NULL, &ret, &own);

	*text = NULL;
	if (r && own.exit != GW_QMP) {
		*e = own;
		return r;
	}
	list = r ? "" : json_string_value(json_object_get(ret, "human-readable-text"));
	*text = strdup(list ? list : "?");
	return *text ? 0 : err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
}

int ramblocks_read(struct qmp *q, pid_t pid, const char *text, struct ramblocks *all, struct err *e)
{
	CLEANUP_FREE char *copy = strdup(text);
	int r;

	if (!copy)
		return err_set(e, GW_INTERNAL, ENOMEM, "out of memory");
	all->n = 0;
	*all->why = '\0';
	if (!*copy) {
		snprintf(all->why, sizeof(all->why), "QEMU before version 6.2 has no x-query-ramblock");
		return 0;
	}
	r = ramblocks_parse(copy, all);
	all->located = r == 1;
	if (r == -EPROTO)
		return err_set(e, GW_NOT_QEMU, EPROTO,
			       "x-query-ramblock: a list that makes no sense: is this QEMU's own QMP socket?");
	if (r == -E2BIG)
		return err_set(e, GW_VM_STATE, E2BIG,
			       "QEMU has more than %u RAM blocks: unplug some devices",
			       RAMBLOCKS_MAX);
	return r ? ramblocks_locate(q, pid, all, e) : 0;
}

int ramblocks_query(struct qmp *q, pid_t pid, struct ramblocks *all, struct err *e)
{
	CLEANUP_FREE char *text = NULL;
	int r = ramblocks_text(q, &text, e);

	return r ? r : ramblocks_read(q, pid, text, all, e);
}

bool ramblocks_is(const char *block, const char *name)
{
	static const char old[] = "/objects/";

	return !strcmp(block, name) || (!strncmp(block, old, sizeof(old) - 1) &&
					!strcmp(block + sizeof(old) - 1, name));
}

const struct ramblock *ramblocks_find(const struct ramblocks *all, const char *name)
{
	for (unsigned int i = 0; i < all->n; i++)
		if (ramblocks_is(all->b[i].name, name))
			return &all->b[i];
	return NULL;
}

/* A ROM's name begins with a slash, a device's path does not; an id has none. */
static bool ramblocks_is_plugged(const char *block, const char *id)
{
	const char *slash = *block == '/' ? NULL : strrchr(block, '/');

	return slash && !strcmp(slash + 1, id);
}

const struct ramblock *ramblocks_find_backend(const struct ramblocks *all, const char *id,
					      uint64_t bytes)
{
	const struct ramblock *found = ramblocks_find(all, id);
	unsigned int n = 0;

	if (found)
		return found;
	for (unsigned int i = 0; i < all->n; i++)
		if (all->b[i].bytes == bytes && ramblocks_is_plugged(all->b[i].name, id)) {
			found = &all->b[i];
			n++;
		}
	return n == 1 ? found : NULL;
}
