/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the files host*.c. */
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

/* Sends a command. *ret: NULL if QEMU refuses it, which is no error. args: stolen. */
int host_ask(const struct host_look *l, const char *command, json_t *args, json_t **ret,
	     struct err *e);
/* Reads a property in QOM; *ret as above. */
int host_ask_qom(const struct host_look *l, const char *path, const char *property, json_t **ret,
		 struct err *e);

/* The object of that name, made if there is none. NULL: no memory, which all setters accept. */
json_t *host_object(json_t *in, const char *key);
/* A number that is too large for JSON becomes the largest possible. */
void host_set_number(json_t *in, const char *key, uint64_t value);

/* The first line of a file, without its end. */
bool host_read_line(const char *path, char *line, size_t size);
/* A file dir/name with a number in it; "max" is UINT64_MAX. */
bool host_read_number(const char *dir, const char *name, uint64_t *value);
/* The number after a word that begins a line ("SwapFree:"), in the file's own unit. */
bool host_read_field(const char *path, const char *word, uint64_t *value);
/* A module's parameter: Y and N, or 1 and 0. */
bool host_read_switch(const struct host_look *l, const char *module, const char *parameter,
		      bool *on);

/* The most that TCP gives a connection, for what this end does. */
void host_view_window(const struct host_look *l, bool destination);
/* Facts of a destination. */
int host_view_room(const struct host_look *l, struct err *e);
void host_view_cgroups(const struct host_look *l);
int host_view_backends(const struct host_look *l, struct err *e);

/* The value is known, a number, and not negative. */
bool host_number(const json_t *in, const char *key, uint64_t *value);
/* The value is known, and is this one: an unknown one is neither true nor false. */
bool host_is(const json_t *in, const char *key, bool value);
/* NULL: the value is not known, or no string. */
const char *host_text(const json_t *in, const char *key);
/* src, dst: whole views. */
void host_compare_room(const json_t *src, const json_t *dst, struct findings *f);

#endif
