/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files host*.c share. */
#ifndef GODWIT_FIT_HOST_INTERNAL_H
#define GODWIT_FIT_HOST_INTERNAL_H

#include "fit/host.h"

/**
 * struct host_look - where facts come from, and where they go
 * @host: the object that is filled in
 */
struct host_look {
	json_t *host;
	struct qmp *q;
	const struct vm *vm;
	const char *proc;
	const char *sys;
};

/* A command that QEMU refuses has no answer, *ret is NULL, and that is no error. args: stolen. */
int host_ask(const struct host_look *l, const char *command, json_t *args, json_t **ret,
	     struct err *e);
/* A property in QOM; *ret as above. */
int host_ask_qom(const struct host_look *l, const char *path, const char *property, json_t **ret,
		 struct err *e);

/* The object in there by that name, made if need be. NULL: no memory; all setters take that. */
json_t *host_object(json_t *in, const char *key);
/* One that is too large for JSON becomes the largest there is. */
void host_set_number(json_t *in, const char *key, uint64_t value);

/* The first line of a file, without its end. */
bool host_read_line(const char *path, char *line, size_t size);
/* A file dir/name with a number in it; "max" is UINT64_MAX. */
bool host_read_number(const char *dir, const char *name, uint64_t *value);
/* The number after that word, which begins a line ("SwapFree:"), in the file's own unit. */
bool host_read_field(const char *path, const char *word, uint64_t *value);
/* A module's parameter: Y and N, or 1 and 0. */
bool host_read_switch(const struct host_look *l, const char *module, const char *parameter,
		      bool *on);

/* Facts of a destination. */
int host_view_room(const struct host_look *l, struct err *e);
void host_view_cgroups(const struct host_look *l);
int host_view_backends(const struct host_look *l, struct err *e);

/* The value is there, a number, and not negative. */
bool host_number(const json_t *in, const char *key, uint64_t *value);
/* The value is there, and is this one: what is not known is neither true nor false. */
bool host_is(const json_t *in, const char *key, bool value);
/* NULL: the value is not there, or no string. */
const char *host_text(const json_t *in, const char *key);
/* src, dst: the objects "host". */
void host_compare_room(const json_t *src, const json_t *dst, struct findings *f);

#endif
