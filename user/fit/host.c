// SPDX-License-Identifier: GPL-2.0-only
/*
 * The facts of this end. What cannot be read is left out, and so not compared: another kernel, a
 * container that hides it, a QEMU without that command. It is an error only if QEMU stops
 * answering.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fit/host_internal.h"
#include "page/page.h"

int host_ask(const struct host_look *l, const char *command, json_t *args, json_t **ret,
	     struct err *e)
{
	struct err refused = { 0 };
	int r = qmp_call(l->q, command, args, ret, &refused);

	if (!r || refused.exit == GW_QMP)
		return 0;
	*e = refused;
	return r;
}

int host_ask_qom(const struct host_look *l, const char *path, const char *property, json_t **ret,
		 struct err *e)
{
	json_t *args = json_pack("{s:s, s:s}", "path", path, "property", property);

	return host_ask(l, "qom-get", args, ret, e);
}

json_t *host_object(json_t *in, const char *key)
{
	json_t *o = json_object_get(in, key);

	if (o)
		return o;
	json_object_set_new(in, key, json_object());
	return json_object_get(in, key);
}

void host_set_number(json_t *in, const char *key, uint64_t value)
{
	json_int_t n = value < INT64_MAX ? (json_int_t)value : INT64_MAX;

	json_object_set_new(in, key, json_integer(n));
}

bool host_read_line(const char *path, char *line, size_t size)
{
	FILE *f = fopen(path, "re");
	bool said = f && fgets(line, (int)size, f);

	if (f)
		fclose(f);
	if (said)
		line[strcspn(line, "\n")] = '\0';
	return said;
}

static bool parse_number(const char *text, uint64_t *value)
{
	text += strspn(text, " \t");
	return *text != '-' && sscanf(text, "%" SCNu64, value) == 1;
}

bool host_read_number(const char *dir, const char *name, uint64_t *value)
{
	char path[PATH_MAX], line[32];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (!host_read_line(path, line, sizeof(line)))
		return false;
	if (strcmp(line, "max"))
		return parse_number(line, value);
	*value = UINT64_MAX;
	return true;
}

bool host_read_field(const char *path, const char *word, uint64_t *value)
{
	FILE *f = fopen(path, "re");
	size_t len = strlen(word);
	bool found = false;
	char line[256];

	while (f && !found && fgets(line, sizeof(line), f))
		if (!strncmp(line, word, len) && strchr(" \t", line[len]))
			found = parse_number(line + len, value);
	if (f)
		fclose(f);
	return found;
}

bool host_read_switch(const struct host_look *l, const char *module, const char *parameter,
		      bool *on)
{
	char path[PATH_MAX], line[16];

	snprintf(path, sizeof(path), "%s/module/%s/parameters/%s", l->sys, module, parameter);
	if (!host_read_line(path, line, sizeof(line)) || !*line || !strchr("YyNn01", *line))
		return false;
	*on = strchr("Yy1", *line);
	return true;
}

static int view_kvm(const struct host_look *l, struct err *e)
{
	json_auto_t *kvm = NULL;
	int r = host_ask(l, "query-kvm", NULL, &kvm, e);
	json_t *enabled = json_object_get(kvm, "enabled");

	if (json_is_boolean(enabled))
		json_object_set(l->host, "kvm", enabled);
	return r;
}

/*
 * Was the TSC frequency set, by -cpu or by -global? QEMU does not report that, but when it loads a
 * guest it treats a frequency that was set unlike one that KVM chose.
 */
static void view_tsc_set(const struct host_look *l)
{
	char path[PATH_MAX], *arg = NULL;
	bool set = false;
	size_t cap = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%d/cmdline", l->proc, (int)l->vm->pid);
	f = fopen(path, "re");
	if (!f)
		return;
	while (!set && getdelim(&arg, &cap, '\0', f) > 0)
		set = strstr(arg, "tsc-freq") || strstr(arg, "tsc_freq");
	json_object_set_new(l->host, "tsc-set", json_boolean(set));
	free(arg);
	fclose(f);
}

static int view_tsc_hz(const struct host_look *l, struct err *e)
{
	json_auto_t *cpus = NULL, *hz = NULL;
	int r = host_ask(l, "query-cpus-fast", NULL, &cpus, e);
	const char *first = host_text(json_array_get(cpus, 0), "qom-path");

	if (!r && first)
		r = host_ask_qom(l, first, "tsc-frequency", &hz, e);
	if (json_integer_value(hz) > 0)
		json_object_set(l->host, "tsc-hz", hz);
	return r;
}

/* Is this word in the first line of /proc/cpuinfo that begins with that key? */
static bool cpu_flag(const struct host_look *l, const char *key, const char *flag)
{
	char path[PATH_MAX], *line = NULL, *save, *word;
	size_t cap = 0, len = strlen(key);
	bool ours = false, found = false;
	FILE *f;

	snprintf(path, sizeof(path), "%s/cpuinfo", l->proc);
	f = fopen(path, "re");
	while (f && !ours && getline(&line, &cap, f) > 0)
		ours = !strncmp(line, key, len) && strchr(" \t:", line[len]);
	word = ours ? strtok_r(line + len, " \t:\n", &save) : NULL;
	for (; word && !found; word = strtok_r(NULL, " \t\n", &save))
		found = !strcmp(word, flag);
	free(line);
	if (f)
		fclose(f);
	return found;
}

/* Facts of the module that KVM uses. Without either of the two nothing is known. */
static void view_kvm_modules(const struct host_look *l)
{
	bool intel, amd, scaling = true;

	if (host_read_switch(l, "kvm_intel", "nested", &intel)) {
		json_object_set_new(host_object(l->host, "nested"), "vmx", json_boolean(intel));
		scaling = cpu_flag(l, "vmx flags", "tsc_scaling");
		json_object_set_new(l->host, "tsc-scaling", json_boolean(scaling));
	}
	if (host_read_switch(l, "kvm_amd", "nested", &amd)) {
		json_object_set_new(host_object(l->host, "nested"), "svm", json_boolean(amd));
		host_read_switch(l, "kvm_amd", "tsc_scaling", &scaling);
		scaling = scaling && cpu_flag(l, "flags", "tsc_scale");
		json_object_set_new(l->host, "tsc-scaling", json_boolean(scaling));
	}
}

static int view_destination(const struct host_look *l, struct err *e)
{
	int r = view_tsc_hz(l, e);

	view_kvm_modules(l);
	host_view_cgroups(l);
	if (!r)
		r = host_view_room(l, e);
	return r ? r : host_view_backends(l, e);
}

static void view_ram(const struct host_look *l)
{
	json_t *ram = host_object(l->host, "ram");

	for (unsigned int i = 0; i < l->vm->nblocks; i++) {
		const struct ram_block *b = &l->vm->blocks[i];
		json_t *o = host_object(ram, b->name);

		host_set_number(o, "bytes", b->pages * PAGE_BYTES);
		host_set_number(o, "page-size", b->page_size);
		if (b->hva)
			json_object_set_new(o, "private", json_true());
		host_set_number(o, "allocated", ram_ops(b)->allocated(b) * PAGE_BYTES);
	}
}

int host_view(json_t *view, struct qmp *q, const struct vm *vm, const char *proc, const char *sys,
	      bool destination, struct err *e)
{
	const struct host_look l = {
		.host = host_object(view, "host"), .q = q, .vm = vm, .proc = proc, .sys = sys,
	};
	int r = view_kvm(&l, e);

	view_tsc_set(&l);
	view_ram(&l);
	host_view_window(&l, destination);
	return r || !destination ? r : view_destination(&l, e);
}
